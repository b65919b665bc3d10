"""docs/results.md, ResNet56 on CIFAR-10 from the public checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import fmean, stdev

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import RESULTS, in_words, mean, pct, raw, spread

PAGE = "docs/results.md"
CUT_STREAMS = "uniform, residual streams cut too"
WIDTHS = (("searched", "default", ""), ("uniform", "uniform", "_uniform"), (CUT_STREAMS, "uniform", ""))

not_measured(
    PAGE,
    Origin.PUBLISHED,
    "94.22 % (CORING, -47 %, 400 epochs) and 94.16 % (CHIP, -47 %, 400 epochs)",
    "Others are 93.83 % (polarization, -47 %) and 93.77 % (DepGraph, -53 %)",
)
not_measured(
    PAGE,
    Origin.SETTING,
    "they have the full rate of 0.05",
    "at the full learning rate of 0.05",
    "*rate 0.05*",
    "at a rate of 0.05 end",
    "The learning rate of fine-tuning is 0.05",
    "One epoch at 0.05 harms",
    "1 and 10 epochs have their default rate of 0.005",
    "10 epochs at 0.005",
    "rates below 0.005 were not tried",
    "after 1 and 3 epochs at 0.005",
    "Rungs of 3 epochs had a rate of 0.015",
)


def file_of(kind: str, rate: str, recipe: str = "finetune_mixed") -> str:
    """The name of a result of prune_cifar10.py."""
    return f"prune_cifar10_{recipe}{kind}{'_70' if rate == '-70 %' else ''}"


def accuracies(file: str, method: str) -> list[float]:
    """The test accuracies of seeds 0 and 1 after training."""
    runs = {run["seed"]: run for run in raw(f"{file}.json")["rows"] if run["method"] == method}
    return [runs[seed]["after"]["test"] for seed in (0, 1)]


@table(PAGE, "MACs", "widths")
def resnet56() -> list[Row]:
    rows = []
    for rate in ("-50 %", "-70 %"):
        for name, method, kind in WIDTHS:
            file = file_of(kind, rate)
            estimates = [pct(raw(f"{file}/{method}-{seed}/structure.json")["score"], 1) for seed in (0, 1)]
            files = (f"{file}_10_epochs", file)
            after = [spread(accuracies(one, method)) if (RESULTS / f"{one}.json").exists() else "-" for one in files]
            rows.append((rate, name, f"{', '.join(estimates)} %", *after))
    return rows


@states(PAGE)
def the_unpruned_network_is_the_public_one() -> Iterator[Claim]:
    accuracy = pct(raw("checkpoints.json")["checkpoints"]["resnet56"]["accuracy"])
    yield says("from a [public checkpoint](#public-checkpoints) ({} %)", accuracy)


@states(PAGE)
def uniform_widths_are_estimated() -> Iterator[Claim]:
    scores = {(row["scope"], row["rate"]): pct(row["score"], 1) for row in raw("uniform_scope.json")["rows"]}
    yield says("estimated at {} % instead of {} %", scores["inner", 0.5], scores["all", 0.5])
    (tighter,) = (score for (_, rate), score in scores.items() if rate == 0.7)
    yield says("at -70 % at {} %", tighter)


@states(PAGE)
def estimates_are_above_test_accuracies() -> Iterator[Claim]:
    rows = raw("estimate_level.json")["rows"]
    half, more = ([pct(row["test"], 1) for row in rows if row["macs"] == limit] for limit in ("-50 %", "-70 %"))
    yield says("on {} and {} % of the test images at -50 %, on {} and {} % at -70 %", *half, *more)
    for row in rows:
        structure = raw(f"{file_of('', row['macs'])}/default-{row['seed']}/structure.json")
        assert row["estimate"] == structure["score"]


def search_is_worth(rate: str, epochs: str) -> float:
    """The mean points of searched above uniform widths that leave streams alone."""
    uniform, searched = (file_of(kind, rate) + epochs for kind in ("_uniform", ""))
    return 100 * (fmean(accuracies(searched, "default")) - fmean(accuracies(uniform, "uniform")))


@states(PAGE)
def the_search_is_worth() -> Iterator[Claim]:
    half, more = (search_is_worth(rate, "") for rate in ("-50 %", "-70 %"))
    words = "the search is worth {:.1f} points at -50 % after ten epochs"
    yield says(words, search_is_worth("-50 %", "_10_epochs"))
    yield says("After a hundred epochs it is worth {:.2f} points at -50 % and {:.1f} points at -70 %", half, more)
    yield says("100 epochs leave {:.2f} points between searched and uniform widths", half)
    cut = fmean(accuracies(file_of("", "-70 %"), "uniform"))
    yield says("end level with the search after 100 epochs ({} %, two seeds)", pct(cut))
    assert pct(cut) == pct(fmean(accuracies(file_of("", "-70 %"), "default")))


@states(PAGE)
def searched_networks_keep_more_parameters() -> Iterator[Claim]:
    more = []
    for rate, (_, method, kind) in product(("-50 %", "-70 %"), WIDTHS[1:]):
        uniform, searched = (kept(file_of(each, rate), name) for each, name in ((kind, method), ("", "default")))
        more.append(searched / uniform - 1)
    yield says("keep {} to {} % more parameters than the uniform ones", pct(min(more), 0), pct(max(more), 0))


def kept(file: str, method: str) -> float:
    """The mean share of the parameters that networks keep."""
    runs = [run for run in raw(f"{file}.json")["rows"] if run["method"] == method]
    return fmean(run["after"]["params"] / run["before"]["params"] for run in runs)


@states(PAGE)
def uniform_widths_with_cut_streams_are_as_good() -> Iterator[Claim]:
    for rate in ("-50 %", "-70 %"):
        searched, uniform = (accuracies(file_of("", rate), method) for method in ("default", "uniform"))
        assert abs(fmean(searched) - fmean(uniform)) < max(stdev(searched), stdev(uniform))
    yield says("with {} seeds each; uniform widths with cut streams are then as good", in_words(len(searched)))


@states(PAGE)
def without_mixing() -> Iterator[Claim]:
    result = raw("prune_cifar10_finetune.json")
    found: dict[str, list[float]] = {}
    for run in result["rows"]:
        found.setdefault(run["method"], []).append(run["after"]["test"])
    yield says("searched {} %, uniform {} %", mean(found["default"]), mean(found["uniform"]))
    longest = max(run["seconds"] for run in result["rows"])
    yield says("shared one H200 and took {:.1f} minutes together", longest / 60)
