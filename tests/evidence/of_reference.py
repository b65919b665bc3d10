"""docs/estimate.md, docs/formats.md, docs/tracing.md: limits of the code, and the structures of the authors."""

from __future__ import annotations

from collections.abc import Iterator

from aacp.latency import timing
from aacp.latency.devices import results
from aacp.repairs import grams
from aacp.runs.exports import SAME_SPEED
from evidence.claims import Claim, Origin, not_measured, says, states
from evidence.raw import pct, raw

FORMATS, TRACING = "docs/formats.md", "docs/tracing.md"

not_measured(FORMATS, Origin.SETTING, "Above 2 GB the weights are in a second file")
not_measured(  # in tables
    FORMATS,
    Origin.SETTING,
    f"lies with a probability of {pct(timing.CONFIDENCE, 0)} %",
    f"ends above {SAME_SPEED} or below 1 / {SAME_SPEED}",
)
# Counted in tests/channels/test_coordinates.py, from the published structure.
not_measured(TRACING, Origin.EXACT, "That for ResNet50 has 42.2 % fewer", "as in their code, 42.0 %")
not_measured(TRACING, Origin.PUBLISHED, "which the paper states for R_f = 0.42")


@states("docs/estimate.md")
def covariances_take_at_most() -> Iterator[Claim]:
    words = "Layers that read more than {:,} values have a covariance over channels alone"
    yield says(words, grams.MAX_COLUMNS)
    yield says("all covariances together take at most {:.0f} GiB", grams.MAX_BYTES / 2**30)


@states(FORMATS)
def files_of_another_machine_are_read_up_to() -> Iterator[Claim]:
    yield says("`results.json` comes from another machine: at most {:.0f} MiB are read", results.MAX_BYTES / 2**20)


@states(TRACING)
def the_published_mobilenet_removes() -> Iterator[Claim]:
    (removed,) = (row["removed"] for row in raw("released_structures.json")["rows"] if row["name"] == "the authors'")
    yield says("The structure that they published for MobileNetV2 has {} % fewer MACs", pct(removed, 1))
