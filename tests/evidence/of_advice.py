"""When a search is worth it: the table of docs/search.md, and the texts of aacp.pipeline.advice."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from aacp.pipeline.advice import SHORT_TRAINING
from evidence.claims import Row, table
from evidence.of_resnet56 import accuracies, file_of, search_is_worth
from evidence.raw import pct, raw, unsigned
from evidence.search_pays import LOW, above_uniform, after_epochs, before_training, runs_of, tests_of

PAGE = "docs/search.md"
AT_70 = ("resnet56_70", "vgg16_70")


@table(PAGE, "your limits and training", "use")
def what_to_use() -> list[Row]:
    return [
        ("several limits at once", with_two_limits()),
        ("MACs -60 to -70 %", with_few_macs()),
        ("MACs -50 %, 100 epochs", where_uniform_widths_are_as_good()),
        ("no training", without_training()),
        ("10 epochs or fewer", with_short_trainings()),
    ]


def with_two_limits() -> str:
    found = after_epochs("vgg16_70_90", 10)["summary"]
    above = [100 * fmean(found[arm]["above_uniform"]) for arm in ("search", "repaired")]
    (points,) = {f"{mean:.0f}" for mean in above}
    words = f"a search: {points} points better than uniform widths"
    return f"{words} with MACs -70 % and parameters -90 % (VGG16, 10 epochs)"


def with_few_macs() -> str:
    one, ten, hundred = (range_of_worth(epochs, rate) for epochs, rate in ((1, LOW), (10, LOW), (100, "")))
    vgg16 = after_epochs("vgg16_70", 30)
    searched, ranked = (unsigned(above_uniform(vgg16, arm)) for arm in ("search", "global-l1"))
    less = unsigned(above_uniform(after_epochs("vgg16_60", 100), "repaired"))
    public = file_of("", "-70 %")
    assert f"{100 * (fmean(accuracies(public, 'default')) - fmean(accuracies(public, 'uniform'))):.2f}" == "0.00"
    return (
        f"a search: at -70 % {one} points after 1 epoch, {ten} after 10, {hundred} after 100 (ResNet56 and VGG16 from "
        f"our bases). From the public checkpoint of ResNet56 it is {search_is_worth('-70 %', ''):.1f} points better "
        f"after 100 epochs, and no better than uniform widths with `--scope all`. On VGG16 after 30 epochs it is "
        f"{searched} points better than uniform widths, one global ranking by l1-norms {ranked}; at -60 % "
        f"a repaired search is {less} points better after 100"
    )


def range_of_worth(epochs: int, rate: str) -> str:
    """The least and the largest mean points of a plain or repaired search above uniform widths at -70 %."""
    found = [after_epochs(case, epochs, rate)["summary"] for case in AT_70]
    points = [100 * fmean(each[arm]["above_uniform"]) for each in found for arm in ("search", "repaired")]
    return f"{min(points):.1f} to {max(points):.1f}"


def where_uniform_widths_are_as_good() -> str:
    resnet56 = search_is_worth("-50 %", "")
    mobilenet = unsigned(above_uniform(after_epochs("mobilenet_v2_50", 10), "search"))
    vgg16, ours = (unsigned(above_uniform(after_epochs(f"{name}_50", 30), "search")) for name in ("vgg16", "resnet56"))
    return (
        f"`--method uniform` is as good on ResNet56 ({resnet56:.2f} points) and needs no search (`aacp prune` says so "
        f"at its start); after 200 and 300 epochs they were not compared. On MobileNetV2 it is as good after 10 epochs "
        f"({mobilenet} points), on VGG16 a search is {vgg16} points better after 30, on ResNet56 from our base {ours}"
    )


def without_training() -> str:
    untrained = after_epochs("resnet56_70", 0)
    searched, uniform = (f"{pct(fmean(tests_of(untrained, arm)))} %" for arm in ("repaired", "uniform-repaired"))
    small, large = (
        100 * (tests_of(before_training(case, "repaired"), "repaired")[0] - tests_of(other, "uniform-repaired")[0])
        for case in ("mobilenet_v2_30", "mobilenet_v2_70")
        for other in [before_training(case, "uniform-repaired")]
    )
    assert small < 0.1 < large
    return (
        f"a search, repaired (`--no-training`): {searched} on ResNet56 at -70 %, where repaired uniform widths have "
        f"{uniform}. On MobileNetV2 at 32 px repaired uniform widths are as good at -30 % and {large:.1f} points worse "
        "at -70 % (one seed). For MobileNetV2 on ImageNet a global ranking by l1-norms that is repaired too is as good "
        "at -20 and -30 % ([results](results.md#without-training))"
    )


def with_short_trainings() -> str:
    one, ten = (times_ahead(epochs) for epochs in (1, 10))
    found = [after_epochs(case, 10, LOW) for case in AT_70]
    ahead = 100 * fmean(fmean(tests_of(each, "repaired")) - fmean(tests_of(each, "search")) for each in found)
    imagenette = after_epochs("imagenette_mobilenet_v2_30", 10)["summary"]
    plain, repaired = (100 * fmean(imagenette[arm]["above_uniform"]) for arm in ("search", "repaired"))
    small = above_uniform(after_epochs("mobilenet_v2_50", 10), "repaired")
    return (
        "a search with `--reconstruction repair --importance obs` (`aacp prune` says so at its start): ahead of the "
        f"plain search in {one} comparisons after 1 epoch and in {ten} after 10, there by {ahead:.2f} points on "
        f"average (ResNet56 and VGG16 at -70 %); on MobileNetV2 at 224 px, -30 %, {repaired:.1f} points above uniform "
        f"widths after 10, the plain search {plain:.1f}; on MobileNetV2 at 32 px, -50 %, {small}"
    )


def times_ahead(epochs: int) -> str:
    """In how many pairs with the same seed the repaired search is ahead of the plain one."""
    found = [after_epochs(case, epochs, LOW) for case in AT_70]
    pairs = [pair for each in found for pair in zip(tests_of(each, "repaired"), tests_of(each, "search"), strict=True)]
    return f"{sum(repaired > plain for repaired, plain in pairs)} of {len(pairs)}"


# -- texts of the program ----------------------------------------------------------------------------------------------


def points_of_the_repaired_search() -> Iterator[float]:
    """How far the repaired search ended above the plain one after short trainings at their default rate, on average."""
    for case, epochs, rate in (
        *((network, epochs, LOW) for network in AT_70 for epochs in (1, 10)),
        ("imagenette_mobilenet_v2_30", 10, ""),
    ):
        result = after_epochs(case, epochs, rate)
        assert result["epochs"] <= SHORT_TRAINING
        plain = {row["seed"]: row["test"] for row in runs_of(result, "search")}
        yield 100 * fmean(row["test"] - plain[row["seed"]] for row in runs_of(result, "repaired"))


def an_estimate_with_repair_takes() -> float:
    """How many times as long as one without repair."""
    ways = raw("repair_cost_estimate.json")["estimate"]
    plain, repaired = (median(ways[way]["seconds"][5:]) for way in ("plain", "repaired"))
    assert repaired / plain == ways["ratio"]
    return float(ways["ratio"])
