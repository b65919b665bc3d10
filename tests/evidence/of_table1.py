"""docs/results.md, the paper's Table 1."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import fmean
from typing import Any

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import pct, points_above, raw, spread, unsigned
from evidence.search_pays import above_uniform, after_epochs, estimates_of, left, runs_of, tests_of, unpruned

PAGE = "docs/results.md"
STRUCTURES = {
    "uniform": "uniform",
    "global-l1": "global l1",
    "random": "random search",
    "released": "released search",
    "search": "searched",
    "scratch": "searched, from new weights",
}
CASES = {"VGG16, -50 %": "vgg16_50", "VGG16, -70 %": "vgg16_70", "ResNet56, -50 %": "resnet56_50"}
WITH_ONE_SEED = {"ResNet110, -40 %": "resnet110_40", "ResNet110, -65 %": "resnet110_65"}
# Their commands were interrupted, or others ran beside a part of them.
DISTURBED = ("resnet56_50", "resnet110_40", "resnet110_65")
WITH_THE_PAPERS_RECIPES = {"VGG16": "vgg16", "ResNet56": "resnet56"}

not_measured(
    PAGE,
    Origin.PUBLISHED,
    "The paper has 93.61 ± 0.05 % for F, from a base of 93.56 ± 0.19 %",
    "The paper has 93.39 ± 0.07 % for F",
    "The paper has 92.82 ± 0.06 % for F and 93.31 ± 0.28 % for S, from a base of 93.10 ± 0.20 %, and 89.80 % for",
    "says the paper for VGG16 (93.72 and 93.61 % at -50 %)",
    "93.61 ± 0.05 %, from 93.56 ± 0.19 %",
    "92.82 ± 0.06 %, from 93.10 ± 0.20 %",
    "in the paper VGG16 gains 0.05 and ResNet56 loses 0.28",
)


def besides_training(result: dict[str, Any], arm: str) -> float:
    """The mean seconds of the commands of an arm without those of their epochs."""
    return fmean(run["seconds"] - run["training_seconds"] for run in runs_of(result, arm))


@table(PAGE, "Table 1, network and MACs", "structure")
def table_1() -> list[Row]:
    cases = CASES | WITH_ONE_SEED
    return [row_of(name, case, arm) for (name, case), arm in product(cases.items(), STRUCTURES)]


def row_of(name: str, case: str, arm: str) -> Row:
    """A row of Table 1."""
    result = after_epochs(case, 30)
    (evaluations,) = {run["evaluations"] for run in runs_of(result, arm)}
    seconds = "-" if case in DISTURBED else f"{besides_training(result, arm):.0f}"
    spent = (f"{evaluations:,}" if evaluations > 1 else "-", seconds)
    seen = (left(result, arm, "params"), estimates_of(result, arm), str(result["summary"][arm]["epochs"]))
    return (name, STRUCTURES[arm], *spent, *seen, spread(tests_of(result, arm)), above_uniform(result, arm))


@table(PAGE, "recipes of the paper, network and MACs", "parameters left")
def with_recipes_of_the_paper() -> list[Row]:
    published = ("93.61 ± 0.05 %, from 93.56 ± 0.19 %", "92.82 ± 0.06 %, from 93.10 ± 0.20 %")
    return [
        (f"{name}, -50 %", left(result, "released", "params"), estimates_of(result, "released"),
         f"{pct(unpruned(result))} %", f"{pct(run['test'])} %", theirs)
        for (name, network), theirs in zip(WITH_THE_PAPERS_RECIPES.items(), published, strict=True)
        for result in [raw(f"search_pays_{network}_50_160_epochs_paper.json")]
        for run in runs_of(result, "released")
    ]  # fmt: skip


@states(PAGE)
def fine_tuning_as_in_the_paper_loses() -> Iterator[Claim]:
    results = [raw(f"search_pays_{network}_50_160_epochs_paper.json") for network in WITH_THE_PAPERS_RECIPES.values()]
    lost = [unpruned(result) - run["test"] for result in results for run in runs_of(result, "released")]
    yield says("VGG16 ends {} and ResNet56 {} points below its base", *map(pct, lost))
    (seed,) = (run["test"] for run in runs_of(results[1], "released"))
    ours = tests_of(after_epochs("resnet56_50", 30), "released")[0]
    words = "after 30 epochs with `finetune-mixed` the released search has {} % on ResNet56 with the same seed, "
    words += "{} points more"
    yield says(words, pct(ours), pct(ours - seed))


@states(PAGE)
def its_bases_have() -> Iterator[Claim]:
    yield says("VGG16, from our base of {} %", pct(unpruned(*(after_epochs(f"vgg16_{rate}", 30) for rate in (50, 70)))))
    yield says("ResNet56, from our base of {} %", pct(unpruned(after_epochs("resnet56_50", 30))))
    yield says(
        "ResNet110, from our base of {} %", pct(unpruned(*(after_epochs(f"resnet110_{rate}", 30) for rate in (40, 65))))
    )


@states(PAGE)
def structures_at_50_are_near_to_each_other() -> Iterator[Claim]:
    half = after_epochs("vgg16_50", 30)
    above = [
        100 * fmean(half["summary"][arm]["above_uniform"]) for arm in ("global-l1", "random", "released", "search")
    ]
    words = "within {:.2f} points of each other, {:.2f} to {:.2f} above uniform widths"
    yield says(words, max(above) - min(above), min(above), max(above))


@states(PAGE)
def searches_at_70_are_ahead() -> Iterator[Claim]:
    tests = {arm: tests_of(after_epochs("vgg16_70", 30), arm) for arm in STRUCTURES}
    for ours, other in product(("search", "released"), ("uniform", "global-l1", "random")):
        assert all(one > two for one, two in zip(tests[ours], tests[other], strict=True))
    ranking, random = (unsigned(points_above(tests["search"], tests[arm])) for arm in ("global-l1", "random"))
    yield says("is {} points above the global ranking and {} above random structures", ranking, random)
    released = unsigned(points_above(tests["released"], tests["search"]))
    yield says("the released one is {} points above the default one", released)


@states(PAGE)
def the_default_search_needs_a_tenth_of_the_evaluations() -> Iterator[Claim]:
    for rate, words in (
        (
            50,
            "at -50 % the default search ends at {} to {} %, the released one at {} to {} %, in {} s instead of {} s,",
        ),
        (70, "at -70 % at {} to {} % and {} to {} %, in {} s instead of {} s."),
    ):
        result = after_epochs(f"vgg16_{rate}", 30)
        estimates = [[run["estimate"] for run in runs_of(result, arm)] for arm in ("search", "released")]
        ends = [pct(end(found), 1) for found in estimates for end in (min, max)]
        plain = besides_training(result, "uniform")
        yield says(words, *ends, *(f"{besides_training(result, arm) - plain:.0f}" for arm in ("search", "released")))


@states(PAGE)
def new_weights_are_behind() -> Iterator[Claim]:
    behind = [
        f"{100 * (fmean(tests_of(result, 'search')) - fmean(tests_of(result, 'scratch'))):.1f}"
        for result in (after_epochs(case, 30) for case in CASES.values())
    ]
    words = "it is {} points behind at -50 % and {} points behind at -70 %, after twice as many epochs; "
    yield says(words + "it is {} points behind on ResNet56", *behind)


@states(PAGE)
def the_gpu_took_energy() -> Iterator[Claim]:
    results = [after_epochs(f"vgg16_{rate}", 30) for rate in (50, 70)]
    all_of_them = [result["joules"] / 1000 for result in results]
    assert [len(result["rows"]) for result in results] == [18, 18]
    words = "took {:.0f} kJ for the 18 commands at -50 % and {:.0f} kJ for those at -70 %, {:.1f} and {:.1f} kJ each"
    yield says(words, *all_of_them, *(joules / 18 for joules in all_of_them))


@states(PAGE)
def the_differences_on_resnet56_are_small() -> Iterator[Claim]:
    tests = {arm: tests_of(after_epochs("resnet56_50", 30), arm) for arm in STRUCTURES}
    for words, arm, other in (
        ("the default search is {} points above uniform widths", "search", "uniform"),
        ("the released one {}, the best", "released", "uniform"),
        ("the best of random structures {}", "random", "uniform"),
        ("The global ranking is {} points below uniform widths", "uniform", "global-l1"),
    ):
        yield says(words, unsigned(points_above(tests[arm], tests[other])))
    for arm in ("search", "released"):
        assert all(one > two for one, two in zip(tests[arm], tests["uniform"], strict=True))


@states(PAGE)
def resnet110_has_one_seed() -> Iterator[Claim]:
    slight, strong = (after_epochs(f"resnet110_{rate}", 30) for rate in (40, 65))
    above = {arm: 100 * found["above_uniform"][0] for arm, found in slight["summary"].items()}
    words = (
        "At -40 % the searched network is {:.2f}, the released one {:.2f} and the global ranking {:.2f} points above "
    )
    words += "uniform widths, random structures {:.2f} below"
    yield says(words, above["search"], above["released"], above["global-l1"], -above["random"])
    gained = [run["test"] - run["unpruned"] for run in slight["rows"] if run["arm"] != "scratch"]
    yield says(
        "all but the last are {} to {} points better than the unpruned network", pct(min(gained)), pct(max(gained))
    )
    above = {arm: 100 * found["above_uniform"][0] for arm, found in strong["summary"].items()}
    words = "at -65 % both searches are within {:.2f} points of uniform widths, "
    words += "random structures and the global ranking {:.2f} and {:.2f} points below"
    yield says(words, max(abs(above["search"]), abs(above["released"])), -above["random"], -above["global-l1"])
    estimates = {arm: run["estimate"] for arm in STRUCTURES for run in runs_of(strong, arm)}
    names = ("uniform", "search", "released")
    words = "estimates at -65 % are {} % for uniform widths and {} and {} % for the searched and the released structure"
    yield says(words, *(pct(estimates[name], 1) for name in names))
    behind = [tests_of(result, "search")[0] - tests_of(result, "scratch")[0] for result in (slight, strong)]
    yield says(
        "From new weights ResNet110 is {} and {} points below the searched", *(pct(share, 1) for share in behind)
    )
