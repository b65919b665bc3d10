"""docs/latency.md: the thresholds of the code, and what predictions and exports take."""

from __future__ import annotations

from collections.abc import Iterator

from aacp.latency.defaults import STRUCTURES
from aacp.latency.judging import MAX_MEDIAN_ERROR, MAX_NOISE, MIN_RANK_CORRELATION
from aacp.latency.measure import HELD_OUT
from aacp.latency.table import SMALLEST_USEFUL_SHARE
from aacp.latency.timing import CONFIDENCE
from aacp.pipeline.delivery import MAX_TIMING_SECONDS
from aacp.pipeline.latency_stage import REJECTED_RATIO
from aacp.pipeline.searching import UNUSED_SHARE
from evidence.claims import Claim, Origin, not_measured, says, states
from evidence.raw import pct, raw

PAGE = "docs/latency.md"

not_measured(PAGE, Origin.EXAMPLE, "1.36 is the median of the ratios of the turns")


@states(PAGE)
def tables_are_judged_by_the_thresholds_of_the_code() -> Iterator[Claim]:
    yield says("**Structures.** {} structures are run whole", STRUCTURES)
    yield says("**Error.** {} more structures are measured", HELD_OUT)
    words = "the rank correlation is at least {}, the median error at most {} %, and the measurements are uncertain"
    yield says(words, MIN_RANK_CORRELATION, pct(MAX_MEDIAN_ERROR, 0))
    yield says("uncertain by at most {} % (`latency/judging.py`", pct(MAX_NOISE, 0))
    yield says("where no structure takes less than {} % of the time", pct(SMALLEST_USEFUL_SHARE, 0))


@states(PAGE)
def limits_are_checked_by_the_thresholds_of_the_code() -> Iterator[Claim]:
    yield says("holds it with a probability of {} % whatever the distribution", pct(CONFIDENCE, 0))
    yield says("faster than the table says, by more than {} % of the limit", pct(UNUSED_SHARE, 0))
    yield says("turns or {:.0f} seconds. In `7.67", MAX_TIMING_SECONDS)
    yield says("takes more than {:.2f} times as long as it may", REJECTED_RATIO)


@states(PAGE)
def predictions_take_little_time() -> Iterator[Claim]:
    (milliseconds,) = {
        f"{1000 * raw(f'latency_prediction_resnet20_{runtime}_cpu_1.json')['seconds_for_1000_predictions']:.1f}"
        for runtime in ("torch", "onnxruntime")
    }
    yield says("1,000 structures of ResNet20 in {} ms (`benchmarks/latency_prediction.py`)", milliseconds)


@states(PAGE)
def the_older_exporter_is_faster() -> Iterator[Claim]:
    found = raw("export_speed.json")
    assert (found["hardware"], [row["network"] for row in found["rows"]]) == (
        "aarch64",
        ["resnet20", "torchvision:mobilenet_v2"],
    )
    small, large = (row["seconds"] for row in found["rows"])
    words = "(ResNet20: {:.2f} s, with the newer one {:.1f} s; MobileNetV2: {:.1f} s and {:.1f} s on one core"
    yield says(words, small["older"], small["newer"], large["older"], large["newer"])
