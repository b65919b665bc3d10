"""README.md: reasons, the comparison with other tools, and results."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, stdev

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.of_short_trainings import gains_of_low_rates
from evidence.raw import RESULTS, in_words, mean, pct, raw
from evidence.search_pays import LOW, after_epochs, highest_rate, tests_of, unpruned

PAGE = "README.md"

not_measured(PAGE, Origin.PUBLISHED, "has 94.42 % at -58 %", "published 94.22 % at -47 %")


@states(PAGE)
def limits_on_latency_are_met() -> Iterator[Claim]:
    found = raw("latency_limits.json")
    limit = 1 - found["limits"]["latency"]
    ratios = [seed["latency"] for seed in found["seeds"]]
    assert set(found["limits"]) == {"latency", "macs", "params"}
    assert max(ratios) < limit
    words = "all {} exported files took {:.2f} to {:.2f} of the original's time (limit {:.2f})"
    yield says(words, in_words(len(ratios)), min(ratios), max(ratios), limit)


@states(PAGE)
def networks_are_verified() -> Iterator[Claim]:
    zoo, tasks = (raw(f"{name}.json") for name in ("zoo", "tasks"))
    passed = sum(row["passes"] for row in zoo["networks"].values())
    yield says("{} of {} networks of torchvision and timm, cut to half, compute", passed, len(zoo["networks"]))
    exact = sum(row["exact"] for row in tasks["networks"].values())
    yield says("of {} networks for other tasks, [{} do]", len(tasks["networks"]), exact)


@states(PAGE)
def two_limits_are_met_with_little_loss() -> Iterator[Claim]:
    result = after_epochs("vgg16_70_90", 10)
    searched, uniform = (mean(tests_of(result, arm)) for arm in ("search", "uniform"))
    removed = [pct(result[rate], 0) for rate in ("rate", "params_rate")]
    words = "VGG16 with {} % fewer MACs and {} % fewer parameters has {} % after {} epochs, with uniform widths {} %:"
    yield says(words, *removed, searched, result["epochs"], uniform)


@states(PAGE)
def structures_are_scored_fast() -> Iterator[Claim]:
    ours = raw("psae_speed_resnet56_twice.json")["rows"]["masked"]
    assert ours["structures"] == 1000
    yield says("{:,} structures of ResNet56 are scored in {:.1f} s on one H200", ours["structures"], ours["seconds"])


@states(PAGE)
def nothing_is_lost() -> Iterator[Claim]:
    found = raw("kills.json")
    assert all(one == other for one, other in found["sha256"].values())
    yield says("A run killed {} times with `kill -9` ended with the same bytes", in_words(len(found["kills"])))


def tests_of_tools(resnet56: bool) -> list[list[float]]:
    """The accuracies of aacp, of the better mode of Torch-Pruning, and of FastNAS, by seed."""
    ours = after_epochs("resnet56_70", 10) if resnet56 else after_epochs("vgg16_70", 100)
    theirs = after_epochs("resnet56_70", 10, "_peers") if resnet56 else ours
    modes = [tests_of(theirs, arm) for arm in ("torch-pruning", "torch-pruning-global") if arm in theirs["summary"]]
    return [tests_of(ours, "search"), max(modes, key=fmean), tests_of(theirs, "modelopt")]


@table(PAGE, "[comparison](docs/alternatives.md)", "aacp")
def comparison_with_other_tools() -> list[Row]:
    """What the tools do is typed in; the accuracies are computed."""
    resnet56, vgg16 = (tuple(f"{mean(tests)} %" for tests in tests_of_tools(small)) for small in (True, False))
    return [
        ("limits at once", "any number, of seven costs", "one ratio of channels", "one, on FLOPs or parameters"),
        ("search", "over the widths of all groups", "none: ranks channels", "one threshold for all layers"),
        ("verification of the cut", "compared with the masked original", "none built in", "none built in"),
        ("ResNet56, -70 % MACs, 10 epochs", *resnet56),
        ("VGG16, -70 % MACs, 100 epochs", *vgg16),
    ]


@states("docs/alternatives.md")
def searches_are_ahead_of_other_tools_or_level() -> Iterator[Claim]:
    ours, pruning, fastnas = tests_of_tools(resnet56=True)
    assert all(one > max(others) for one, *others in zip(ours, pruning, fastnas, strict=True))
    ours, pruning, _ = tests_of_tools(resnet56=False)
    assert fmean(ours) - fmean(pruning) > stdev(ours)
    small, large = after_epochs("resnet56_70", 10), after_epochs("vgg16_70", 100)
    (rate,) = {result["rate"] for result in (small, large)}
    words = (
        "at -{} % aacp is ahead of both on ResNet56 after {} epochs; on VGG16 after {} epochs it is level with FastNAS"
    )
    yield says(words, pct(rate, 0), small["epochs"], large["epochs"])


@states(PAGE)
def the_difference_to_fastnas_is_small_on_vgg16() -> Iterator[Claim]:
    ours, _, fastnas = tests_of_tools(resnet56=False)
    assert abs(fmean(ours) - fmean(fastnas)) < stdev(ours)
    yield says("On VGG16 the difference to FastNAS is within the spread of the seeds.")


@states(PAGE)
def tools_were_compared_at_the_full_rate() -> Iterator[Claim]:
    (rate,) = {highest_rate(log) for log in RESULTS.glob("search_pays_vgg16_70_100_epochs/*/training-log.jsonl")}
    on_resnet56 = [after_epochs("resnet56_70", 10), after_epochs("resnet56_70", 10, "_peers")]
    assert not any("--lr" in result["command"] for result in on_resnet56)
    (seeds,) = {len(tests) for small in (True, False) for tests in tests_of_tools(small)}
    yield says("The same base, recipe (learning rate {}) and epochs, {} seeds each", rate, in_words(seeds))


@states(PAGE)
def rows_at_half_the_macs_were_trained_at_the_full_rate() -> Iterator[Claim]:
    names = [f"prune_cifar10_finetune_mixed{kind}" for kind in ("", "_10_epochs", "_uniform", "_uniform_10_epochs")]
    assert not any("--lr" in row["command"] for name in names for row in raw(f"{name}.json")["rows"])
    runs = [raw(f"{name}/default-{seed}/run.json") for name in names[:2] for seed in (0, 1)]
    (rate,) = {run["recipe"]["lr"] for run in runs}
    assert "--lr" not in after_epochs("vgg16_70_90", 10)["command"]
    yield says("The rows at -50 %, and VGG16 with two limits, were trained at a learning rate of {}.", rate)


def from_public_checkpoint(suffix: str, method: str) -> list[float]:
    """The test accuracies of ResNet56 from the public checkpoint, by seed."""
    rows = raw(f"prune_cifar10_finetune_mixed{suffix}.json")["rows"]
    return [row["after"]["test"] for row in rows if row["method"] == method]


@table(PAGE, "start", "MACs")
def results_of_resnet56() -> list[Row]:
    public = [
        [f"{mean(from_public_checkpoint(kind + epochs, method))} %" for epochs in ("_10_epochs", "")]
        for method, kind in (("default", ""), ("uniform", "_uniform"))
    ]
    after = [after_epochs("resnet56_70", 10, LOW), after_epochs("resnet56_70", 100)]
    ours = [[f"{mean(tests_of(each, arm))} %" for each in after] for arm in ("repaired", "search", "uniform")]
    start = pct(raw("checkpoints.json")["checkpoints"]["resnet56"]["accuracy"])
    return [
        (f"public checkpoint, {start} %, two seeds", "-50 %", "searched", *public[0]),
        ("", "-50 %", "uniform", *public[1]),
        (f"our base, {pct(unpruned(*after))} %, three seeds", "-70 %", "searched, repaired", *ours[0]),
        ("", "-70 %", "searched", *ours[1]),
        ("", "-70 %", "uniform", *ours[2]),
    ]


@states(PAGE)
def uniform_widths_that_cut_streams_are_as_good() -> Iterator[Claim]:
    tests = from_public_checkpoint("_70", "uniform")
    words = "so are uniform widths that also cut residual streams ({} %, {} seeds)"
    yield says(words, pct(fmean(tests)), in_words(len(tests)))


@states(PAGE)
def long_trainings_reach() -> Iterator[Claim]:
    resnet56, vgg16 = after_epochs("resnet56_50", 200), after_epochs("vgg16_60", 100)
    (seeds,) = {len(tests_of(result, arm)) for result in (resnet56, vgg16) for arm in result["summary"]}
    words = "Searched and repaired, {} seeds: VGG16 has {} % at -60 % after {} epochs (uniform widths {} %;"
    searched, uniform = (mean(tests_of(vgg16, arm)) for arm in ("repaired", "uniform"))
    yield says(words, in_words(seeds), searched, vgg16["epochs"], uniform)
    words = "ResNet56 from our base {} % at -50 % after {} (uniform"
    yield says(words, mean(tests_of(resnet56, "repaired")), resnet56["epochs"])
    assert "uniform" not in resnet56["summary"]


@states(PAGE)
def a_low_rate_helps_short_trainings() -> Iterator[Claim]:
    gains = gains_of_low_rates(10)
    yield says("it is worth [{:.2f} to {:.2f} points after 10 epochs]", min(gains), max(gains))


@states(PAGE)
def mobilenet_needs_no_training() -> Iterator[Claim]:
    found = after_epochs("mobilenet_v2_50", 0)
    repaired = tests_of(found, "repaired")
    original = unpruned(after_epochs("mobilenet_v2_50", 10))
    words = "has {} % of the test images right, the original {} % (searched and repaired, {} seeds)"
    yield says(words, mean(repaired), pct(original), in_words(len(repaired)))


@states(PAGE)
def mobilenet_needs_training_on_imagenet() -> Iterator[Claim]:
    results = [raw(f"repair_mobilenet_{name}.json") for name in ("mimic_30", "50")]
    best = [pct(max(row["score"] for row in result["rows"]), 1) for result in results]
    (whole,) = {pct(result["unpruned"]["score"], 1) for result in results}
    repaired, mimicked = results[0]["rows"]
    words = "at -30 % it has {} %, {} % after {:,} steps of training without labels (`--mimic`), at half the MACs {} % "
    found = (pct(repaired["score"], 1), best[0], int(mimicked["plan"]["mimic"]), best[1])
    yield says(words + "at best, of {} % of the test pictures", *found, whole)


@states(PAGE)
def repair_without_labels_takes_seconds() -> Iterator[Claim]:
    result = raw("repair_resnet56_l1.json")
    half, more = result["product"]
    assert (half["rate"], more["rate"]) == (0.5, 0.7)
    words = (
        "repairs the weights on {:,} images without labels: {} % at -50 %, {} % at -70 %, {:.0f} and {:.0f} s for the "
        "whole command on one H200"
    )
    yield says(words, result["images"], pct(half["score"]), pct(more["score"]), half["seconds"], more["seconds"])
