"""docs/results.md, the estimate: how well it ranks structures and what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import pct, raw

PAGE = "docs/results.md"


def ways_of(file: str) -> Any:
    """The ways to estimate that psae_speed.py has timed."""
    return raw(f"psae_speed_{file}.json")["rows"]


@states(PAGE)
def estimates_rank_structures_as_training_does() -> Iterator[Claim]:
    found = raw("psae_ranking_resnet56.json")
    assert len(found["outcomes"]) == 12
    lowest, highest = (pct(pick(found["outcomes"]), 0) for pick in (min, max))
    words = "which ranges from {} to {} %: Spearman {:.3f}, Kendall {:.3f}"
    yield says(words, lowest, highest, found["spearman"], found["kendall"])


@table(PAGE, "network", "1,000 structures")
def seconds_of_estimates() -> list[Row]:
    rows = []
    for name, file, way in (("ResNet56", "resnet56_twice", "masked"), ("VGG16", "vgg16", "masked, two passes")):
        ways = ways_of(file)
        ours, eager = ways[way], ways["eager reference"]
        assert (ours["structures"], eager["structures"]) == (1000, 30)
        times = (f"{ours['seconds']:.1f} s", f"{ours['ms_each']:.1f} ms", f"{eager['ms_each']:.0f} ms")
        rows.append((name, *times, f"{ours['spearman']:.4f}"))
    return rows


@states(PAGE)
def the_warm_up_of_estimates_takes() -> Iterator[Claim]:
    first, second = (ways_of("resnet56_twice")[way] for way in ("masked", "masked, again"))
    yield says("includes the warm-up: {:.1f} s for ResNet56 in a new process", first["warm_up"])
    yield says("needed {:.1f} s, of which {:.1f} s were warm-up", second["seconds"], second["warm_up"])
    cold = ways_of("resnet56_cold")["masked"]
    yield says("just been started, the warm-up took {:.1f} s", cold["warm_up"])


@states(PAGE)
def recalibration_takes() -> Iterator[Claim]:
    found = raw("recalibration_speed.json")
    words = "on {:,} images of {} px takes {:.2f} s on an H200, where a forward pass takes {:.2f} s"
    seconds = (median(found[what]) for what in ("recalibration", "forward"))
    yield says(words, found["images"], found["pixels"], *seconds)


@table(PAGE, "network, 224 px", "an estimate")
def estimates_of_large_images() -> list[Row]:
    rows = []
    for name, file in (("MobileNetV2", "mobilenet_v2"), ("ResNet50", "resnet50")):
        found = raw(f"psae_speed_{file}.json")
        assert found["calibration"] + found["holdout"] == found["rows"]["compiled forward"]["images"] == 9096
        ours, eager, forward = (found["rows"][way] for way in ("masked", "eager reference", "compiled forward"))
        times = (ours["ms_each"], forward["ms"], eager["ms_each"])
        rows.append((name, *(f"{time:.0f} ms" for time in times), f"{ours['ms_each'] / forward['ms']:.2f}"))
    return rows


@states(PAGE)
def an_estimate_on_a_cpu_takes() -> Iterator[Claim]:
    found = raw("psae_cpu.json")
    assert found["torch"].endswith("1 threads")
    seconds, ratios = median(row["estimate"] for row in found["rows"]), found["ratios"]
    words = "one thread) takes {:.1f} s, which is {:.2f} times a plain forward pass of the cut network"
    yield says(words, seconds, median(ratios))
    yield says("(median of {}; {:.2f} to {:.2f};", len(ratios), min(ratios), max(ratios))
    later = [raw(f"psae_cpu_streamed_data_{run}.json") for run in (1, 2)]
    assert all(result["torch"].endswith("2 threads") for result in later)
    words = "A later version with two threads took {:.2f} and {:.2f} times as long as the forward pass"
    yield says(words, *(median(result["ratios"]) for result in later))
