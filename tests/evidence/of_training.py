"""docs/training.md: finalists, recipes (also those of docs/results.md), the time of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import mean, pct, points_above, raw, unsigned

PAGE = "docs/training.md"

not_measured(
    PAGE,
    Origin.SETTING,
    "in at least 5 % of all channels",
    "2.5 % is enough",
    "Without `--rungs` the rungs have 3 %, 10 % and 30 % of the epochs",
    "`FINETUNE` (100 epochs, 0.05) has a rate of 0.015 for 30 epochs and of 0.005 for 10 or fewer",
    "lr 0.1 cosine",
    "lr 0.05, 0.9 of the loss",
    "0.5 of the loss from the teacher",
    "the hold-out soon reaches 100 %",
)


@states(PAGE)
def the_best_structures_of_a_search_are_near_to_each_other() -> Iterator[Claim]:
    groups: set[int] = set()
    spreads = []
    for seed in range(3):
        found = [each for each in raw(f"finalists_70_30_epochs/{seed}.json")["finalists"] if not each["is_uniform"]]
        best, *others = (each["choice"]["counts"] for each in found)
        groups |= {sum(a != b for a, b in zip(best, counts, strict=True)) for counts in others}
        ends = [100 * each["holdout"][1] for each in found if len(each["holdout"]) == 2]
        spreads.append(max(ends) - min(ends))
        assert (len(others), len(ends)) == (6, 3)
    words = "the next six differed from the best one in {} to {} of {} groups"
    yield says(words, min(groups), max(groups), len(best))
    yield says("trained for 10 epochs ended within {:.2f} points of each other", max(spreads))


@states(PAGE, "docs/results.md")
def finalists_cost_and_gain() -> Iterator[Claim]:
    result = raw("search_pays_resnet56_70_10_epochs_finalists.json")
    searched = raw("search_pays_resnet56_70_10_epochs.json")["summary"]["search"]["test"]
    found = result["summary"]["finalists"]
    yield says("{} points above the choice of the search", unsigned(points_above(found["test"], searched)))
    yield says("for {} epochs more", found["epochs"] - result["epochs"])
    chosen = [each["finalists"]["finalists"] for each in result["rows"]]
    won = [max(range(len(each)), key=lambda number, each=each: each[number]["holdout"][1:]) for each in chosen]
    assert [number == 0 for number in won] == [False, True, False]  # the choice of the search won once
    for row, each, number in zip(result["rows"], chosen, won, strict=True):
        assert row["counts"] == each[number]["choice"]["counts"]
    repaired = raw("search_pays_resnet56_70_10_epochs.json")["summary"]["repaired"]["test"]
    assert fmean(repaired) >= fmean(found["test"])


@states(PAGE)
def finalists_gain_no_more_than_a_second_training() -> Iterator[Claim]:
    yield says("of one and the same of these structures ended {} points apart", pct(gain_of_a_second_training()))


@states("docs/results.md")
def finalists_of_one_seed_are_the_choice_of_the_search() -> Iterator[Claim]:
    yield says("its second training ended {} points higher than its first", pct(gain_of_a_second_training()))


def gain_of_a_second_training() -> float:
    """How far the choice of a search ended above itself, trained again in a run in which it won all rungs."""
    finalists, plain = (raw(f"search_pays_resnet56_70_10_epochs{kind}.json")["rows"] for kind in ("_finalists", ""))
    searched = [row for row in plain if row["arm"] == "search"]
    (pair,) = (pair for pair in zip(finalists, searched, strict=True) if pair[0]["counts"] == pair[1]["counts"])
    assert pair[0]["seed"] == pair[1]["seed"]
    return float(pair[0]["test"] - pair[1]["test"])


@states(PAGE)
def mixed_images_gain() -> Iterator[Claim]:
    means = {row["recipe"]: 100 * row["mean"] for row in raw("train_recipes.json")["rows"]}
    gain = means["ours, patched, half distilled"] - means["ours"]
    yield says("ends {:.1f} points higher with `FINETUNE_MIXED` than with `FINETUNE`", gain)


RECIPES = {
    "ours, patched, half distilled": (
        "`finetune-mixed` (aacp): patches of other images, half of the loss from the teacher"
    ),
    "ours": "`finetune` (aacp): no mixing, 0.9 of the loss from the teacher",
    "ours, mixed": "`finetune` with blends of images",
    "ours, patched": "`finetune` with patches",
    "ours, patched, wholly distilled": "`finetune` with patches, all of the loss from the teacher",
}


@table("docs/results.md", "recipe", "test accuracy")
def recipes() -> list[Row]:
    """All recipes of 30 epochs; that of the paper was made for more."""
    result = raw("train_recipes.json")
    assert {run["recipe"] for run in result["runs"]} == {*RECIPES, "paper"}
    rows = []
    for recipe, shown in RECIPES.items():
        tests = [run["test accuracy"] for run in result["runs"] if run["recipe"] == recipe]
        accuracy = mean(tests) if len(tests) > 1 else pct(*tests)
        rows.append((shown, f"{accuracy} %", str(len(tests))))
    return rows


@states(PAGE)
def an_epoch_takes() -> Iterator[Claim]:
    ours, *_ = raw("train_speed_streams.json")["rows"]
    (plain,) = (row for row in raw("train_speed.json")["rows"] if (row["network"], row["way"]) == ("resnet56", "plain"))
    assert ours["way"] == "captured"
    words = "takes {:.1f} s on an H200, and about {:.0f} s in a plain loop"
    yield says(words, median(ours["seconds"]), fmean(plain["seconds"]))
