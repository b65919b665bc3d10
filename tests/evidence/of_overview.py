"""The table at the top of docs/results.md: an answer to each question that the page is read for."""

from __future__ import annotations

from statistics import fmean, stdev

from evidence.claims import Row, table
from evidence.of_advice import range_of_worth
from evidence.of_readme import tests_of_tools
from evidence.of_resnet56 import search_is_worth
from evidence.raw import mean, pct, raw
from evidence.search_pays import LOW, after_epochs, tests_of, unpruned

PAGE = "docs/results.md"


@table(PAGE, "question", "answer")
def questions() -> list[Row]:
    published, pays, table_1 = "beside-published-results", "does-the-search-pay", "the-papers-table-1"
    return [
        (
            "How accurate are networks after a long training?",
            after_long_trainings(),
            f"[published results](#{published})",
        ),
        ("Is a search better than uniform widths?", searched_above_uniform(), f"[does the search pay](#{pays})"),
        ("Is it better than other ways to find widths?", beside_other_searches(), f"[Table 1](#{table_1})"),
        ("Is it better than other tools?", beside_other_tools(), "[other tools](#other-tools)"),
        (
            "How much is lost without training?",
            lost_without_training(),
            "[does the search pay](#does-the-search-pay), [without training](#without-training)",
        ),
        ("Are limits on latency met?", limits_on_latency(), "[latency](#latency)"),
    ]


def with_base(shown: str, before: float) -> str:
    """An accuracy, and that of the unpruned network."""
    return f"{shown} % ({pct(before)} % before pruning)"


def after_long_trainings() -> str:
    vgg16, resnet56 = (
        with_base(mean(tests_of(result, "repaired")), unpruned(result))
        for result in (after_epochs("vgg16_60", 100), after_epochs("resnet56_50", 200))
    )
    return (
        f"VGG16 at -60 %: {vgg16}; ResNet56 at -50 %: {resnet56}; pruned networks were trained longer, on more images "
        "and with a teacher"
    )


def searched_above_uniform() -> str:
    one, hundred = range_of_worth(1, LOW), range_of_worth(100, "")
    two_limits = 100 * fmean(after_epochs("vgg16_70_90", 10)["summary"]["search"]["above_uniform"])
    half, more = (search_is_worth(rate, "") for rate in ("-50 %", "-70 %"))
    mobilenet = after_epochs("mobilenet_v2_50", 10)["summary"]
    for arm in ("search", "repaired"):
        assert abs(fmean(mobilenet[arm]["above_uniform"])) < stdev(mobilenet[arm]["above_uniform"])
    return (
        f"ResNet56 and VGG16 at -70 %: by {one} points after 1 epoch and by {hundred} after 100, from the public "
        f"checkpoint of ResNet56 by {more:.1f}; VGG16 with two limits: by {two_limits:.0f} after 10; ResNet56 at "
        f"-50 %: by {half:.2f} after 100; MobileNetV2 at -50 %: no difference after 10"
    )


def beside_other_searches() -> str:
    half, more = (
        [f"{pct(fmean(tests_of(result, arm)))} %" for arm in ("search", "random", "global-l1", "released")]
        for result in (after_epochs("vgg16_50", 30), after_epochs("vgg16_70", 30))
    )
    words = (
        "{}, the best of random structures {}, a global ranking {}, the search of the paper's authors with ten times "
        "the evaluations {}"
    )
    tests = [tests_of(after_epochs("vgg16_50", 30), arm) for arm in ("search", "random", "global-l1", "released")]
    means = [fmean(each) for each in tests]
    assert max(means) - min(means) < max(stdev(each) for each in tests)
    return (
        f"VGG16 after 30 epochs, at -70 %: {words.format(*more)}; at -50 % the same four have {', '.join(half)}: no "
        "difference beyond the spread of the seeds"
    )


def beside_other_tools() -> str:
    small, large = (
        "{} %, Torch-Pruning {} %, ModelOpt FastNAS {} %".format(*(pct(fmean(tests)) for tests in tests_of_tools(each)))
        for each in (True, False)
    )
    return f"At -70 %: ResNet56 after 10 epochs {small}; VGG16 after 100 epochs {large}, where FastNAS is as good"


def lost_without_training() -> str:
    base = unpruned(after_epochs("mobilenet_v2_50", 10))
    mobilenet = with_base(mean(tests_of(after_epochs("mobilenet_v2_50", 0), "repaired")), base)
    half, _ = raw("repair_resnet56_l1.json")["product"]
    resnet56 = with_base(pct(half["score"]), half["evaluation"]["before"]["test"])
    imagenet = raw("repair_mobilenet_mimic_30.json")
    repaired, mimicked = imagenet["rows"]
    assert int(mimicked["plan"]["mimic"]) == 3000
    left = (
        f"{pct(repaired['score'], 1)} %, after 3,000 steps of mimicry {pct(mimicked['score'], 1)} % "
        f"({pct(imagenet['unpruned']['score'], 1)} % before pruning)"
    )
    return (
        f"CIFAR-10 at -50 %: MobileNetV2 {mobilenet}, ResNet56 {resnet56}; ImageNet at -30 %: MobileNetV2 {left}; at "
        "-50 % it is not usable"
    )


def limits_on_latency() -> str:
    found = raw("latency_limits.json")
    ratios = [seed["latency"] for seed in found["seeds"]]
    limit = 1 - found["limits"]["latency"]
    met = sum(ratio <= limit for ratio in ratios)
    ends = f"{min(ratios):.2f} to {max(ratios):.2f}"
    runs = f"MobileNetV2 in ONNX Runtime, in {met} of {len(ratios)} runs"
    return f"{runs}: the files take {ends} of the original's time (limit {limit:.2f})"
