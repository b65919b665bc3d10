"""docs/results.md, search: methods compared on ResNet56 and on synthetic problems."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, stdev

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import RESULTS, raw, records

PAGE = "docs/results.md"
PAPER_METHODS = ("paper", "released", "de")
FAMILIES = {"additive": "additive", "coupled between neighbours": "neighbour", "coupled at random": "random"}


def without_zero(share: float) -> str:
    """A share such as .935."""
    return f"{share:.3f}".lstrip("0")


@states(PAGE)
def the_present_default_finds_after_50_evaluations() -> Iterator[Claim]:
    bests = []
    for seed in (0, 1):
        found = records(RESULTS / f"prune_cifar10_finetune_mixed/default-{seed}/history.jsonl")
        bests.append(without_zero(max(each["score"] for each in found[:50])))
    yield says("the default has {} and {} after 50 evaluations", *bests)


@table(PAGE, "evaluations", "default")
def best_estimates() -> list[Row]:
    runs = raw("psae_search_resnet56.json")["rows"]
    rows = []
    for mark in ("50", "200"):
        cells = []
        for method in ("default", "ide+", "tournament", "paper"):
            found = {run["seed"]: run["after"][mark] for run in runs if run["method"] == method}
            cells.append(", ".join(without_zero(found[seed]) for seed in sorted(found)))
        rows.append((mark, *cells))
    return rows


@table(PAGE, "damage", "default")
def regrets() -> list[Row]:
    """The last of three marks, 200 evaluations; rivals are the methods that are neither ours nor the paper's.

    The authors' released search is shown at 200 evaluations and at its own length.
    """
    rows = []
    for title, family in FAMILIES.items():
        file = raw(f"search_{family}.json")
        last = {method: [seed[-1] for seed in seeds] for method, seeds in file["regrets"].items()}
        assert {len(values) for values in last.values()} == {50}  # problems
        rivals = [method for method in last if method not in ("default", *PAPER_METHODS)]
        best = min(rivals, key=lambda method: fmean(last[method]))
        at_own_length = file["regrets_at_own_length"]["released"]
        shown = [last["default"], last["released"], at_own_length, last["paper"], last[best]]
        *cells, of_rival = [f"{fmean(values):.2f} ± {stdev(values):.2f}" for values in shown]
        rows.append((title, *cells, f"{of_rival} ({best})"))
    return rows


@states(PAGE)
def the_released_search_has_its_own_length() -> Iterator[Claim]:
    (length,) = {raw(f"search_{family}.json")["own_lengths"]["released"] for family in FAMILIES.values()}
    yield says("is also given its own length of {:,} evaluations", length)


@states(PAGE)
def a_search_that_knows_others_is_ahead() -> Iterator[Claim]:
    found = raw("transfer.json")
    assert found["marks"] == [30, 50, 100]
    means, errors = [], []
    for rows in found["accuracy in per cent"].values():
        assert len(rows["taught"]) == 12
        apart = [taught[0] - fresh[-1] for taught, fresh in zip(rows["taught"], rows["fresh"], strict=True)]
        means.append(fmean(apart))
        errors.append(stdev(apart) / len(apart) ** 0.5)
    words = "{:.2f} points below to {:.2f} points above where a fresh search is after {}"
    yield says(words, -min(means), max(means), found["marks"][-1])
    yield says("(standard errors {:.2f} to {:.2f})", min(errors), max(errors))


@states(PAGE)
def rescaling_leaves_unused() -> Iterator[Claim]:
    rows = [row for row in raw("slack.json") if row["pruning_step"] == 1 / 8]
    slack = {(row["model"], row["form"]): row["mean"] for row in rows}
    ours, theirs = ([slack[name, form] for name in ("vgg16", "resnet56")] for form in ("two-sided", "shrink"))
    words = "step of 1/8: {:.2f} points on VGG16, {:.2f} on ResNet56 ({:.1f} and {:.1f} with the paper's one-sided"
    yield says(words, *ours, *theirs)
