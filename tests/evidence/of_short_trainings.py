"""docs/results.md: MobileNetV2 on Imagenette, learning rates of short trainings, limits of gradients, other tools."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import fmean
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import in_words, mean, pct, points_above, raw, spread, unsigned
from evidence.search_pays import after_epochs, compared_with_uniform, left, runs_of, tests_of, unpruned

PAGE = "docs/results.md"
TOOLS = {
    "torch-pruning": "Torch-Pruning, one ratio for all layers",
    "torch-pruning-global": "Torch-Pruning, global ranking",
    "modelopt": "ModelOpt FastNAS",
    "uniform": "aacp, uniform",
    "search": "aacp, searched",
    "repaired": "aacp, searched, repaired",
}
STARTS = {"plain": "inherited", "repaired": "repaired"}
RECIPES = ("finetune", "finetune-mixed")
UNNORMALISED = {
    "lenet": "LeNet",
    "plain": "four convolutions",
    "deep": "eight convolutions",
    "vgg": "VGG with six convolutions",
    "residual": "three residual blocks",
}


# -- MobileNetV2 on Imagenette ----------------------------------------------------------------------------------------


@table(PAGE, "MobileNetV2 on Imagenette, MACs", "epochs")
def mobilenet_on_imagenette() -> list[Row]:
    found = after_epochs("imagenette_mobilenet_v2_30", 10)
    return [("-30 %", "10", *cells) for cells in compared_with_uniform(found, "macs", "params")]


@states(PAGE)
def mobilenet_loses_on_imagenette() -> Iterator[Claim]:
    result = after_epochs("imagenette_mobilenet_v2_30", 10)
    before = unpruned(result)
    yield says("has an accuracy of {} % on its 3,925 test pictures", pct(before))
    lost = [f"{100 * (before - fmean(tests_of(result, arm))):.1f}" for arm in ("uniform", "search", "repaired")]
    words = (
        "of the {} % before pruning, uniform, searched, and searched and repaired networks lose {}, {} and {} points"
    )
    yield says(words, pct(before), *lost)
    by_seed = {arm: {run["seed"]: run["test"] for run in runs_of(result, arm)} for arm in result["summary"]}
    assert {arm: sorted(tests) for arm, tests in by_seed.items()} == {
        "uniform": [0, 1, 2], "search": [0, 1, 2], "repaired": [0, 2],
    }  # fmt: skip
    plain = [by_seed["search"][seed] for seed in (0, 2)]
    ahead = unsigned(points_above(tests_of(result, "repaired"), plain))
    yield says("The repaired search is {} points above the plain search", ahead)


# -- learning rates ---------------------------------------------------------------------------------------------------


def short_trainings() -> dict[tuple[str, str, int, float], list[float]]:
    """The scores of short trainings by start, recipe, epochs and learning rate."""
    found: dict[tuple[str, str, int, float], list[float]] = {}
    for row in raw("short_trainings_resnet56_70.json")["rows"]:
        found.setdefault((row["start"], row["recipe"], row["epochs"], row["lr"]), []).append(row["holdout"])
    return found


@table(PAGE, "weights", "recipe")
def learning_rates_of_short_trainings() -> list[Row]:
    found = short_trainings()
    return [
        (
            STARTS[start],
            f"`{recipe}`",
            str(epochs),
            *(f"{mean(found[start, recipe, epochs, lr])} %" for lr in (0.05, 0.016, 0.005)),
        )
        for start, recipe, epochs in product(STARTS, RECIPES, (1, 3, 10))
    ]


def gains_of_low_rates(epochs: int) -> list[float]:
    """The points that a tenth of the full rate gains, by start and recipe."""
    found = short_trainings()
    return [
        100 * (fmean(found[start, recipe, epochs, 0.005]) - fmean(found[start, recipe, epochs, 0.05]))
        for start, recipe in product(STARTS, RECIPES)
    ]


@states(PAGE)
def low_rates_gain() -> Iterator[Claim]:
    few, more = (gains_of_low_rates(epochs) for epochs in (3, 10))
    words = "by {:.2f} to {:.2f} points after 3 epochs and by {:.2f} to {:.2f} after 10 epochs"
    yield says(words, min(few), max(few), min(more), max(more))
    found = short_trainings()
    low, medium, full = (
        [fmean(found[start, recipe, epochs, lr]) for start, recipe, epochs in product(STARTS, RECIPES, (1, 3, 10))]
        for lr in (0.005, 0.016, 0.05)
    )
    assert len(low) == 12
    assert all(one > other for one, other in zip(low, full, strict=True))
    assert sum(one > other for one, other in zip(low, medium, strict=True)) == 11
    rows = raw("untrained_resnet56_70.json")["rows"]
    (before,) = (row["holdout"] for row in rows if (row["arm"], row["seed"]) == ("uniform-repaired", 0))
    yield says("that of seed 0 begins with {} % of the hold-out", pct(before))


@states(PAGE)
def mixed_images_cost_short_trainings_a_little() -> Iterator[Claim]:
    found = {key: fmean(scores) for key, scores in short_trainings().items()}
    lost = [
        100 * (found[start, "finetune", epochs, 0.005] - found[start, "finetune-mixed", epochs, 0.005])
        for start, epochs in product(STARTS, (1, 3))
    ]
    assert min(lost) > -0.005  # which is rounded to 0.00
    assert found["repaired", "finetune", 10, 0.005] > found["repaired", "finetune-mixed", 10, 0.005]
    assert found["plain", "finetune", 10, 0.005] < found["plain", "finetune-mixed", 10, 0.005]
    yield says("{:.2f} to {:.2f} points better than `finetune-mixed`", abs(min(lost)), max(lost))


# -- networks without norms -------------------------------------------------------------------------------------------


@table(PAGE, "network without norms", "unpruned")
def limits_of_gradients() -> list[Row]:
    columns = ((0.03, 0), (0.03, 1), (0.03, 5), (0.003, 0))
    rows = raw("clipping.json")["rows"]
    found = []
    for network, name in UNNORMALISED.items():
        own = [row for row in rows if row["network"] == network]
        cells = [_ends([r for r in own if (round(r["lr"], 6), r["clip"]) == column]) for column in columns]
        starts = [f"{mean([r[key] for r in own if r['clip'] == 5])} %" for key in ("unpruned", "inherited")]
        found.append((name, *starts, *cells))
    return found


def _ends(rows: list[dict[str, Any]]) -> str:
    """The scores of seeds as the table shows them; one that diverged has none."""
    assert [row["seed"] for row in rows] == [0, 1, 2]
    scores = [row["holdout"] for row in rows if row["holdout"] is not None]
    if len(scores) == len(rows):
        return f"{mean(scores)} %"
    return ", ".join("diverged" if row["holdout"] is None else f"{pct(row['holdout'])} %" for row in rows)


# -- other tools ------------------------------------------------------------------------------------------------------


@table(PAGE, "-70 % MACs", "ResNet56, parameters left")
def other_tools() -> list[Row]:
    ours = raw("search_pays_resnet56_70_10_epochs.json")
    theirs = raw("search_pays_resnet56_70_10_epochs_peers.json")
    vgg16 = raw("search_pays_vgg16_70_100_epochs.json")
    rows = []
    for arm, name in TOOLS.items():
        cells = []
        for result in (theirs if arm in theirs["summary"] else ours, vgg16):
            is_there = arm in result["summary"]
            cells += [left(result, arm, "params"), spread(tests_of(result, arm))] if is_there else ["-", "-"]
        rows.append((name, *cells))
    return rows


@states(PAGE)
def other_tools_keep() -> Iterator[Claim]:
    results = [
        after_epochs("resnet56_70", 10),
        after_epochs("resnet56_70", 10, "_peers"),
        after_epochs("vgg16_70", 100),
    ]
    kept: dict[bool, list[float]] = {True: [], False: []}
    for run in (run for result in results for run in result["rows"] if run["arm"] in TOOLS):
        kept[run["arm"] in ("torch-pruning", "torch-pruning-global", "modelopt")].append(run["macs"])
    ends = [pct(end(kept[is_theirs]), 1) for is_theirs in (True, False) for end in (min, max)]
    yield says("({} to {} % are left, with aacp {} to {} %;", *ends)


@states(PAGE)
def other_tools_find_one_network() -> Iterator[Claim]:
    small, large = after_epochs("resnet56_70", 10, "_peers"), after_epochs("vgg16_70", 100)
    for result in (small, large):
        for arm in {"torch-pruning", "torch-pruning-global", "modelopt"} & set(result["summary"]):
            assert len({str(run["counts"]) for run in runs_of(result, arm)}) == 1
    one_ratio, ranking = (runs_of(small, arm)[0]["counts"] for arm in ("torch-pruning", "torch-pruning-global"))
    yield says("cuts the residual streams of ResNet56 too, from 16 to {} channels", one_ratio[0])
    yield says("leaves {} layers of ResNet56 one channel", in_words(ranking.count(1)))
    parameters = {
        arm: fmean(run["params"] for run in runs_of(large, arm)) for arm in ("search", "repaired", "modelopt")
    }
    assert parameters["search"] == max(parameters.values())


@states(PAGE)
def the_search_is_ahead_of_fastnas() -> Iterator[Claim]:
    ours = raw("search_pays_resnet56_70_10_epochs.json")
    fastnas = fmean(tests_of(raw("search_pays_resnet56_70_10_epochs_peers.json"), "modelopt"))
    ahead = [100 * (fmean(tests_of(ours, arm)) - fastnas) for arm in ("search", "repaired")]
    yield says("aacp's search is {:.1f} points above FastNAS, and {:.1f} with repair", *ahead)
