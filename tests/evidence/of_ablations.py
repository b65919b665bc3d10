"""docs/results.md: what searched networks keep, the ablations on VGG16, and results beside published ones."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import in_words, pct, points_above, raw, spread
from evidence.search_pays import estimates_of, tests_of, unpruned

PAGE = "docs/results.md"
NETWORKS = {"resnet56": "ResNet56", "vgg16": "VGG16"}
ORDERS = {"search": "l1", "l2": "l2", "activation": "activation", "obs": "obs"}

not_measured(
    PAGE,
    Origin.PUBLISHED,
    "The paper has l1 and random: 93.61 ± 0.05 and 93.34 ± 0.15 %",
    "*With 50 % fewer MACs, accuracy does not fall until more than 50 % of the parameters have to go*",
    "(0.46 points with the paper's schedule)",
)
not_measured(
    PAGE,
    Origin.SETTING,
    "the weights after 33, 66 and 100 of the 100 epochs",
    "the rates of 0.8 and a part of the second half",
)


@table(PAGE, "kept, network", "MACs")
def kept_of_each_stage() -> list[Row]:
    rows = []
    for row in raw("fig5.json")["rows"]:
        stages = [f"{100 * share:.0f} %" for share in row["stages"]]
        rows.append(
            (NETWORKS[row["network"]], row["limit"], str(len(row["runs"])), *stages, *["-"] * (5 - len(stages)))
        )
    return rows


@states(PAGE)
def first_blocks_of_stages_keep_more() -> Iterator[Claim]:
    rows = [row for row in raw("fig5.json")["rows"] if row["network"] == "resnet56"]
    first, middle, last = ([share for row in rows for share in row[part][1:]] for part in ("first", "middle", "last"))
    assert all(one > other for one, other in zip(first, middle, strict=True))
    ends = [f"{100 * end(shares):.0f}" for shares in (first, middle, last) for end in (min, max)]
    words = "the first block keeps {} to {} %, the blocks in the middle {} to {} %"
    yield says(words, *ends[:4])
    higher = sum(one > other for one, other in zip(last, middle, strict=True))
    words = "the last block keeps {} to {} %, and more than the middle of its stage in {} of {} cases"
    yield says(words, *ends[4:], *(in_words(count) for count in (higher, len(last))))


@states(PAGE)
def stages_keep() -> Iterator[Claim]:
    stages = {name: [row["stages"] for row in raw("fig5.json")["rows"] if row["network"] == name] for name in NETWORKS}
    ratios = [last / other for *others, last in stages["resnet56"] for other in others]
    yield says(
        "the last stage keeps {:.1f} to {:.1f} times the share of each of the other two", min(ratios), max(ratios)
    )
    for first, second, third, *others in stages["vgg16"]:
        assert max(others) < min(first, second, third) <= first == min(first, second, third)


@table(PAGE, "order of channels, VGG16", "estimated before training")
def orders_of_channels() -> list[Row]:
    result = raw("search_pays_vgg16_50_10_epochs.json")
    random = tests_of(result, "random-channels")
    rows = []
    for arm, order in ORDERS.items():
        tests = tests_of(result, arm)
        rows.append((order, estimates_of(result, arm), spread(tests), points_above(tests, random)))
    l1, *others = (tests_of(result, arm) for arm in ORDERS)
    for tests in others:
        apart = [one - other for one, other in zip(l1, tests, strict=True)]
        assert 0 < fmean(apart) < stdev(apart)
        assert fmean(tests) > fmean(random)
    return [*rows, ("random", estimates_of(result, "random-channels"), spread(random), "-")]


@states(PAGE)
def the_base_of_the_ablations_has() -> Iterator[Claim]:
    base = unpruned(raw("search_pays_vgg16_50_10_epochs.json"))
    yield says("VGG16 on CIFAR-10 from our base ({} %, `bases/vgg16_stages`)", pct(base))


@table(PAGE, "epochs of the unpruned network", "unpruned")
def bases_that_are_trained_less() -> list[Row]:
    rows = []
    for epochs, suffix in (("33", "_base_33"), ("66", "_base_66"), ("100", "")):
        result = raw(f"search_pays_vgg16_50_10_epochs{suffix}.json")
        uniform, searched = (tests_of(result, arm) for arm in ("uniform", "search"))
        cells = (spread(uniform), spread(searched), points_above(searched, uniform))
        rows.append((epochs, f"{pct(unpruned(result))} %", *cells))
    return rows


def fig6() -> dict[tuple[str, float], list[dict[str, Any]]]:
    """The runs of each point of Fig. 6, by half and rate."""
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in raw("fig6.json")["rows"]:
        found.setdefault((row["half"], row["rate"]), []).append(row)
    return found


@table(PAGE, "MACs removed", "parameters removed")
def one_limit_fixed() -> list[Row]:
    rows = []
    for (half, rate), points in fig6().items():
        varied = f"at least {100 * rate:.0f} %"
        limits = ("50 %", varied) if half == "a" else (varied, "50 %")
        left = [f"{pct(fmean(point[cost] for point in points), 1)} %" for cost in ("macs", "params")]
        rows.append((*limits, str(len(points)), *left, spread([point["test"] for point in points])))
    return rows


@states(PAGE)
def accuracy_does_not_fall_with_more_parameters_removed() -> Iterator[Claim]:
    tests = {rate: [point["test"] for point in points] for (half, rate), points in fig6().items() if half == "a"}
    falls = max(tests)
    noise = max(max(found) - min(found) for found in tests.values())
    assert abs(fmean(tests[falls]) - fmean(tests[0.0])) < noise
    yield says("Here it does not fall up to {:.0f} %", 100 * falls)
    first = [point for (half, _), points in fig6().items() if half == "a" for point in points]
    assert all(0.2 < point["params"] < 0.25 for point in first)
    networks = {tuple(point[key] for key in ("seed", "macs", "params", "estimate", "test")) for point in first}
    yield says("the first half has {} different networks in {} runs", str(len(networks)), str(len(first)))
    second = {rate: points for (half, rate), points in fig6().items() if half == "b"}
    alone = 1 - fmean(point["macs"] for point in second[0.0])
    yield says("the limit on parameters alone removes {:.0f} % of the MACs", 100 * alone)
    for rate, points in second.items():
        assert (max(point["params"] for point in points) < 0.3) == (rate >= 0.4)
    yield says("with at least {} % fewer MACs, only the limit on MACs", "40")


@table(PAGE, "network", "MACs")
def vgg16_and_resnet110() -> list[Row]:
    rows = []
    for name, folder, rates in (("VGG16", "prune_vgg16", (50, 70)), ("ResNet110", "prune_resnet110", (40, 65))):
        for rate in rates:
            found = raw(f"{folder}/{rate}/evaluation.json")
            before, after = found["before"], found["after"]
            removed = [f"{100 * (after[cost] / before[cost] - 1):.1f} %" for cost in ("macs", "params")]
            rows.append((name, *removed, f"{pct(before['test'])} %", f"{pct(after['test'])} %"))
    return rows
