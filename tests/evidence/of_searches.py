"""docs/results.md, whether the search pays: ResNet56, VGG16 and MobileNetV2, with and without training."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import fmean
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import RESULTS, mean, pct, points_above, raw, records, spread, unsigned
from evidence.search_pays import (
    LOW,
    UNTRAINED,
    WIDTHS,
    above_uniform,
    after_epochs,
    before_training,
    compared_with_uniform,
    estimates_of,
    left,
    row_of,
    runs_of,
    tests_of,
    unpruned,
)

PAGE = "docs/results.md"
FULL = "10, rate 0.05"
# Network and limits, the case in the names of results, and the end of the name for each number of epochs.
COMPARED = (
    ("ResNet56, MACs -70 %", "resnet56_70", {0: "", 1: LOW, 10: LOW, 100: ""}),
    ("ResNet56, MACs -50 %", "resnet56_50", {0: "", 30: ""}),
    ("VGG16, MACs -70 %", "vgg16_70", {0: "", 1: LOW, 10: LOW, 30: "", 100: ""}),
    ("VGG16, MACs -60 %", "vgg16_60", {0: "", 100: ""}),
    ("VGG16, MACs -50 %", "vgg16_50", {30: ""}),
    ("VGG16, MACs -70 %, parameters -90 %", "vgg16_70_90", {10: ""}),
    ("MobileNetV2, MACs -30 %", "mobilenet_v2_30", {0: "", 10: ""}),
    ("MobileNetV2, MACs -50 %", "mobilenet_v2_50", {0: "", 10: ""}),
    ("MobileNetV2, MACs -70 %", "mobilenet_v2_70", {0: "", 10: ""}),
    ("MobileNetV2, Imagenette, MACs -30 %", "imagenette_mobilenet_v2_30", {10: ""}),
)
AT_70 = ("resnet56_70", "vgg16_70")


@table(PAGE, "points above uniform widths after", "widths")
def what_a_search_is_worth() -> list[Row]:
    rows = []
    for (name, case, measured), arm in product(COMPARED, ("search", "repaired")):
        cells = [worth(case, arm, epochs, measured) for epochs in (0, 1, 10, 30, 100)]
        if set(cells) != {"-"}:
            rows.append((name, WIDTHS[arm], *cells))
    return rows


def worth(case: str, arm: str, epochs: int, measured: dict[int, str]) -> str:
    """A cell of the table above, with an asterisk if a short training had the full learning rate."""
    if epochs not in measured:
        return "-"
    result = after_epochs(case, epochs, measured[epochs])
    if arm not in result["summary"]:
        return "-"
    had_full_rate = 0 < epochs < 100 and result.get("lr", 0.05) == 0.05  # older results do not state it
    return above_uniform(result, arm) + "*" * had_full_rate


@table(PAGE, "ResNet56, epochs", "widths")
def resnet56() -> list[Row]:
    rows = []
    for shown, epochs, rate in (("0", 0, ""), ("1", 1, LOW), ("10", 10, LOW), (FULL, 10, ""), ("100", 100, "")):
        result = after_epochs("resnet56_70", epochs, rate)
        rows += [(shown, *cells) for cells in compared_with_uniform(result, "params")]
        if shown == FULL:
            rows.append(finalists_of_resnet56(tests_of(result, "uniform")))
    return rows


def finalists_of_resnet56(uniform: list[float]) -> Row:
    result = raw("search_pays_resnet56_70_10_epochs_finalists.json")
    tests = tests_of(result, "finalists")
    about = (left(result, "finalists", "params"), estimates_of(result, "finalists"))
    return (FULL, "searched, best of 8 finalists", *about, spread(tests), points_above(tests, uniform))


@table(PAGE, "VGG16, limits", "epochs")
def vgg16() -> list[Row]:
    rows = []
    for limits, rates, shown, epochs, rate in (
        ("MACs, base of Table 1", "70", "0", 0, ""),
        ("MACs, base of Table 1", "70", "1", 1, LOW),
        ("MACs, base of Table 1", "70", "10", 10, LOW),
        ("MACs", "70", FULL, 10, ""),
        ("MACs", "70", "100", 100, ""),
        ("MACs and parameters -90 %", "70_90", FULL, 10, ""),
    ):
        result = after_epochs(f"vgg16_{rates}", epochs, rate)
        for arm in ("uniform", "search", "repaired"):
            costs = [left(result, arm, cost) for cost in ("macs", "params")]
            cells = (WIDTHS[arm], *costs, spread(tests_of(result, arm)), above_uniform(result, arm))
            rows.append((limits, shown, *cells))
    return rows


@table(PAGE, "MobileNetV2, MACs", "epochs")
def mobilenet() -> list[Row]:
    rows = []
    for rate, shown in ((30, "10"), (50, FULL), (70, "10")):
        for epochs in (0, 10):
            case = f"mobilenet_v2_{rate}"
            compared = compared_with_uniform(after_epochs(case, epochs), "macs", "params")
            if not epochs and case in UNTRAINED:
                arm = "uniform-repaired"
                compared.insert(1, row_of(before_training(case, arm), arm, "macs", "params"))
            rows += [(f"-{rate} %", shown if epochs else "0", *cells) for cells in compared]
    return rows


@states(PAGE)
def the_unpruned_networks_have() -> Iterator[Claim]:
    base = pct(unpruned(*(after_epochs("resnet56_70", epochs) for epochs in (10, 100))))
    yield says("ResNet56 {} % (`bases/resnet56`)", base)
    yield says("VGG16 {} % (`bases/vgg16_again`)", pct(unpruned(after_epochs("vgg16_70", 100))))
    base = pct(unpruned(after_epochs("vgg16_70", 1, LOW), after_epochs("vgg16_70", 30)))
    yield says("that of [Table 1](#the-papers-table-1), {} %", base)
    base = pct(unpruned(after_epochs("mobilenet_v2_50", 10)))
    yield says("from our base of {} % (`bases/mobilenet_v2`", base)
    yield says("our base ({} %) is below both aims", base)


@states(PAGE)
def a_search_and_a_repair_without_training_are_worth() -> Iterator[Claim]:
    found = after_epochs("resnet56_70", 0)
    search, repair, both = (
        unsigned(points_above(tests_of(found, arm), tests_of(found, other)))
        for arm, other in (("search", "uniform"), ("uniform-repaired", "uniform"), ("repaired", "uniform-repaired"))
    )
    words = "the search is worth {} points on ResNet56 at -70 % and repair more: {} for uniform widths."
    yield says(words, search, repair)
    yield says("Of repaired networks the searched ones are {} points better", both)
    repaired = [row for row in found["rows"] if "repaired" in row["arm"]]
    low, high = ([pct(end(row[key] for row in repaired), 1) for end in (min, max)] for key in ("estimate", "holdout"))
    yield says("too low: {} to {} % where the networks have {} to {} % on the hold-out", *low, *high)


@states(PAGE)
def one_epoch_at_the_full_rate_harms_repaired_networks() -> Iterator[Claim]:
    found = [after_epochs(case, epochs) for case in AT_70 for epochs in (0, 1)]
    found += [after_epochs(case, 1, LOW) for case in AT_70]
    tests = [pct(fmean(tests_of(each, "repaired"))) for each in found]
    words = "on ResNet56 it has {} % before and {} % after it, on VGG16 {} and {} %. "
    yield says(words + "At a tenth of the rate it has {} and {} % after the epoch", *tests)


@states(PAGE)
def a_search_is_worth_after_few_epochs() -> Iterator[Claim]:
    ends = [
        end(points)
        for epochs, rate in ((1, LOW), (10, LOW), (100, ""))
        for points in [points_of_searches([after_epochs(case, epochs, rate) for case in AT_70])]
        for end in (min, max)
    ]
    words = "by {:.1f} to {:.1f} points after 1 epoch, {:.1f} to {:.1f} after {} and {:.1f} to {:.1f} after 100"
    yield says(words, *ends[:4], after_epochs("vgg16_70", 10, LOW)["epochs"], *ends[4:])
    trained = [after_epochs(case, epochs, rate) for case in AT_70 for epochs, rate in ((1, LOW), (10, LOW), (100, ""))]
    trained += [after_epochs(case, 30) for case in ("resnet56_50", "vgg16_50")]
    for result in trained:
        for arm in {"search", "repaired"} & set(result["summary"]):
            assert min(result["summary"][arm]["above_uniform"]) > 0


def points_of_searches(results: list[dict[str, Any]]) -> list[float]:
    """The mean points above uniform widths of both searches in each result."""
    return [100 * fmean(each["summary"][arm]["above_uniform"]) for each in results for arm in ("search", "repaired")]


@states(PAGE)
def the_repaired_search_is_ahead_of_the_plain_one() -> Iterator[Claim]:
    for case, words in (("resnet56_70", "On ResNet56 it is ahead by {} points"), ("vgg16_70", "on VGG16 by {}")):
        results = [after_epochs(case, epochs, LOW) for epochs in (1, 10)]
        ahead = [points_above(tests_of(each, "repaired"), tests_of(each, "search")).lstrip("+") for each in results]
        yield says(f"{words} after 1 epoch, and by {{}} after 10", *ahead)


@states(PAGE)
def at_the_full_rate_the_repaired_search_is_ahead() -> Iterator[Claim]:
    for case, epochs, words in (
        ("resnet56_70", 100, "in all six pairs: by {} points after 100 epochs"),
        ("resnet56_70", 10, "after 100 epochs and by {} after 10."),
        ("vgg16_70", 10, "On VGG16 it is ahead by {} after 10 epochs"),
        ("vgg16_70_90", 10, "and by {} with two limits"),
    ):
        found = after_epochs(case, epochs)
        repaired, plain = (tests_of(found, arm) for arm in ("repaired", "search"))
        yield says(words, unsigned(points_above(repaired, plain)))
        assert "vgg16" in case or all(one > other for one, other in zip(repaired, plain, strict=True))
    found = after_epochs("vgg16_70", 100)
    yield says(
        "and behind by {} after 100.", unsigned(points_above(tests_of(found, "search"), tests_of(found, "repaired")))
    )
    found = after_epochs("resnet56_70", 10)
    gain = points_above(tests_of(found, "uniform-repaired"), tests_of(found, "uniform"))
    yield says("uniform widths of ResNet56 gain {} from them", unsigned(gain))


@states(PAGE)
def two_limits_at_once() -> Iterator[Claim]:
    found = after_epochs("vgg16_70_90", 10)
    macs, others = (100 * fmean(run["macs"] for run in runs_of(found, arm)) for arm in ("uniform", "search"))
    more = 100 * fmean(found["summary"]["search"]["above_uniform"])
    words = (
        "have {:.0f} % of the MACs left, the searched ones {:.0f} %, and after 10 epochs they are {:.0f} points better"
    )
    yield says(words, macs, others, more)
    assert all(more > 100 * points for points in after_epochs("vgg16_70", 10)["summary"]["repaired"]["above_uniform"])


@states(PAGE)
def mobilenet_loses_without_training() -> Iterator[Claim]:
    found, trained = (after_epochs("mobilenet_v2_50", epochs) for epochs in (0, 10))
    repaired, before = fmean(tests_of(found, "repaired")), unpruned(trained)
    words = "has lost {} points without any training: {} % of {} %."
    yield says(words, pct(before - repaired), pct(repaired), pct(before))
    searched = unsigned(points_above(tests_of(found, "search"), tests_of(found, "uniform")))
    yield says("The search alone is {} points above uniform widths without training", searched)
    lost = [100 * (before - fmean(tests_of(trained, arm))) for arm in WIDTHS if arm in trained["summary"]]
    yield says("{:.1f} to {:.1f} points below the unpruned network", min(lost), max(lost))


@states(PAGE)
def mobilenet_at_other_rates() -> Iterator[Claim]:
    cases = ("mobilenet_v2_30", "mobilenet_v2_70")
    before, trained = ([after_epochs(case, epochs) for case in cases] for epochs in (0, 10))
    words = "have {} and {} % without training, uniform widths {} and {} %"
    yield says(words, *(mean(tests_of(each, arm)) for arm in ("repaired", "uniform") for each in before))
    uniform = [tests_of(before_training(case, "uniform-repaired"), "uniform-repaired")[0] for case in cases]
    yield says("uniform widths that are repaired, too, {} and {} % with one seed", *map(pct, uniform))
    searched = [tests_of(each, "repaired")[0] for each in before]
    words = "between repaired networks of this seed the search loses {:.2f} points at -30 % and gains {:.2f} at -70 %"
    yield says(words, *(100 * abs(one - other) for one, other in zip(searched, uniform, strict=True)))
    assert searched[0] < uniform[0]
    assert searched[1] > uniform[1]
    lost = max(run["unpruned"] - run["test"] for each in trained for run in each["rows"])
    yield says("or at most {} points worse", pct(lost))
    words = "the repaired search is {} and {} points above uniform widths, the plain one {} and {}"
    yield says(words, *(above_uniform(each, arm) for arm in ("repaired", "search") for each in trained))
    assert min(trained[1]["summary"]["repaired"]["above_uniform"]) > 0


def with_limit_on_latency() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """For each latency table its number, its searches and what it is."""
    for number, label in (("first", ""), ("second", "_again"), ("third", "_third")):
        name = f"search_pays_mobilenet_v2_latency_40_0_epochs{label}"
        yield number, raw(f"{name}.json"), raw(f"{name}/latency.json")


@table(PAGE, "latency table", "seed")
def limit_on_latency() -> list[Row]:
    return [
        (
            number,
            str(run["seed"]),
            WIDTHS[run["arm"]],
            *(f"{pct(run[cost], 1)} %" for cost in ("latency", "macs", "params")),
            str(run["evaluations"]) if run["evaluations"] > 1 else "-",
            f"{pct(run['estimate'], 1)} %",
            f"{pct(run['test'])} %",
        )
        for number, result, _ in with_limit_on_latency()
        for run in sorted(result["rows"], key=lambda run: int(run["seed"]))
    ]


@states(PAGE)
def limits_on_latency_are_met() -> Iterator[Claim]:
    results = [result for _, result, _ in with_limit_on_latency()]
    (limit,) = {1 - result["latency_rate"] for result in results}
    yield says("at most {} % of the time of the unpruned network", pct(limit, 0))
    unused = [[limit - run["latency"] for run in result["rows"]] for result in results]
    older, newer = unused[0] + unused[1], unused[2]
    assert min(older + newer) > 0
    assert len(older + newer) == 10
    ends = (pct(end, 1) for part in (older, newer) for end in (min(part), max(part)))
    yield says("of the older version by {} to {} points, those of the newer one by {} to {} points", *ends)
    errors = [tables["error"] for _, _, tables in with_limit_on_latency()]
    medians = [pct(each["median"], 1) for each in errors]
    yield says("{}, {} and {} % in the median of {} structures", *medians, errors[0]["structures"])
    above = [100 * share for each in results for share in each["summary"]["search"]["above_uniform"]]
    assert [points > 0 for points in above] == [True, True, True, False, True]
    words = "{:.2f} and {:.2f} points better than uniform widths with the first table and {:.2f} with the second; "
    words += "with the third it is {:.2f} points worse with seed {} and {:.2f} better with seed {}"
    *earlier, (worse, better) = (each["summary"]["search"]["above_uniform"] for each in results)
    yield says(words, *(100 * points for each in earlier for points in each), -100 * worse, 0, 100 * better, 1)


@states(PAGE)
def corrected_searches_lose_what_the_first_one_found() -> Iterator[Claim]:
    folder = RESULTS / "search_pays_mobilenet_v2_latency_40_0_epochs_third"
    seeds = [folder / f"search-{seed}" for seed in (0, 1)]
    first = [[line["score"] for line in records(seed / "history.jsonl")] for seed in seeds]
    (evaluations,) = {len(scores) for scores in first}
    best = [pct(max(scores), 1) for scores in first]
    yield says("The first {} evaluations with the third table found", evaluations)
    yield says("structures with estimates of up to {} and {} %", *best)
    missed = [line["ratio"]["median"] for seed in seeds for line in records(seed / "checks.jsonl")[:3]]
    yield says("took {} to {} % of the time", pct(min(missed), 1), pct(max(missed), 1))
    later = [[line["score"] for line in records(path)] for seed in seeds for path in seed.glob("*/history.jsonl")]
    (length,) = {len(scores) for scores in later}
    bound = 0.8
    (low,) = {sum(score < bound for score in scores) for scores in later}
    words = "have {} evaluations, of which {} are spent on first designs that score below {} %"
    yield says(words, length, low, pct(bound, 0))
    rows = [run for run in raw(f"{folder.name}.json")["rows"] if run["arm"] == "search"]
    yield says("the delivered structures have estimates of {} and {} %", *(pct(run["estimate"], 1) for run in rows))


@states(PAGE)
def later_versions_keep_what_the_first_search_found() -> Iterator[Claim]:
    rows = raw("corrected_searches.json")["rows"]
    commits = list(dict.fromkeys(row["commit"] for row in rows))
    assert commits == ["7d93bcc", "b7d2ff9"]
    best = {(row["commit"], row["run"], row["seed"]): 100 * max(row["scores"]) for row in rows}
    bound = 0.8
    low = {
        commit: [sum(score < bound for score in row["scores"]) for row in rows if row["commit"] == commit]
        for commit in commits
    }
    assert len(best) == 8
    ends = {(commit, run): sorted(best[commit, run, seed] for seed in (0, 1)) for commit in commits for run in (0, 1)}
    new, old = commits
    words = "With commit {} the best estimates are {:.1f} to {:.1f} % after the first search of seed {} and"
    yield says(words, old, *ends[old, 0], 0)
    yield says("and {:.1f} to {:.1f} % after that of seed {}, with", *ends[old, 1], 1)
    length = len(rows[0]["scores"])
    percent = pct(bound, 0)
    yield says("with {} to {} of {} structures below {} %", min(low[old]), max(low[old]), length, percent)
    yield says("With commit {} they are {:.1f} to {:.1f} % and {:.1f} to {:.1f} %", new, *ends[new, 0], *ends[new, 1])
    yield says("with {} to {} of {} below {} %", min(low[new]), max(low[new]), length, percent)
    before = {row["run"]: 100 * row["before"] for row in rows}
    assert all(abs(best[new, run, seed] - before[run]) < 0.3 for run in (0, 1) for seed in (0, 1))  # as good as before
