"""Numbers that a user gives: numpy's are accepted, everything that is not one number in the range is rejected."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import aacp
from aacp.cost.kinds import COSTS
from aacp.errors import InvalidOption, InvalidScore
from aacp.estimate.recalibration import Recalibration
from aacp.runs.repeats import SeedRun
from aacp.search.loop import Bounds
from aacp.user.values import (
    checked_holdout,
    counted,
    finite_score,
    names,
    real_number,
    score_text,
    shown,
    truth_value,
    whole_number,
)

RECIPE = aacp.Recipe(epochs=4, batch_size=8, lr=0.1)
HUGE = 10**400  # beyond the floats
ENDLESS = 10**5000  # Python refuses to write a number of this length
NOT_WHOLE: list[Any] = [2.5, 2.0, "2", None, True, math.nan, math.inf, [2], torch.ones(3), {}, b"2", HUGE, ENDLESS, -1]


@pytest.mark.parametrize("value", NOT_WHOLE, ids=lambda value: str(type(value).__name__))
def test_what_is_not_a_whole_number_in_the_range_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^count is .*\. Give a whole number from 1 to 9\.$"):
        whole_number("count", value, 1, 9)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3)])
def test_every_kind_of_whole_number_becomes_a_plain_one(value: Any) -> None:
    found = whole_number("count", value, 1, 9)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize("value", [0.125, np.float32(0.125), Decimal("0.125"), Fraction(1, 8), np.array(0.125)])
def test_every_kind_of_share_is_a_share_of_the_examples(value: Any) -> None:
    found = checked_holdout(value)
    assert (found, type(found)) == (0.125, float)


@pytest.mark.parametrize("value", [Decimal("2.5"), Fraction(5, 2), np.array(2.5), math.inf, math.nan, 1.0])
def test_a_hold_out_of_a_fraction_above_one_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^The hold-out is .*\. Give a share"):
        checked_holdout(value)


@pytest.mark.parametrize("value", [5, np.int64(5), np.array(5), torch.tensor(5), Decimal(5)])
def test_a_whole_hold_out_is_a_number_of_examples(value: Any) -> None:
    found = checked_holdout(value)
    assert (found, type(found)) == (5, int)


def test_one_thing_is_singular() -> None:
    texts = ["0 epochs", "1 epoch", "2 epochs", "2,000 epochs"]
    assert [counted(count, "epoch") for count in (0, 1, 2, 2000)] == texts


def test_texts_have_one_thing_in_the_singular() -> None:
    one = aacp.Candidate(0, 0, aacp.Structure([4]), 0.5)
    assert repr(aacp.History([one])).startswith("<History of 1 candidate,")
    assert str(Recalibration(1, 1)) == "1 batch norm recalibrated on 1 image."
    assert str(Recalibration(0, 4, 1)).endswith("1 batch norm of an exported graph keeps its statistics.")
    seed = SeedRun(0, "runs/seed-0", {"": {"test": 0.5}})
    assert str(aacp.Repetition("prune", (seed,), {})).startswith("1 of 1 seed finished")
    with pytest.raises(InvalidOption, match=r"ends after 1 epoch\."):
        replace(RECIPE, epochs=1, schedule="steps", milestones=(2,))
    image = aacp.Images(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), (0.0,), (1.0,))
    with pytest.raises(aacp.InvalidData, match="the data has only 1 example"):
        aacp.fit(torch.nn.Flatten(), image, RECIPE, device="cpu")


@pytest.mark.parametrize("value", ["0.5", None, True, math.nan, math.inf, -math.inf, 1.5, HUGE, -HUGE, [0.5], 1 + 2j])
def test_what_is_not_a_number_in_the_range_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^rate is .*\. Give a number from 0 to 1\.$"):
        real_number("rate", value, 0, 1)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int8(1), torch.tensor(1.0)])
def test_every_kind_of_number_becomes_a_plain_one(value: Any) -> None:
    found = real_number("rate", value, 0, 1)
    assert (found, type(found)) == (1.0, float)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -1e200, HUGE, None, "1", [1.0], torch.ones(2)])
def test_a_score_that_ranks_nothing_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidScore, match="The score on the test data is "):
        finite_score(value, "test data")


def test_values_in_messages_are_short_whatever_they_are() -> None:
    assert shown(ENDLESS) == "a very large int"
    assert len(shown("x" * 10**6)) <= 60


def test_text_does_not_count_as_true_nor_as_a_list() -> None:
    with pytest.raises(InvalidOption, match="nesterov is 'no'"):
        truth_value("nesterov", "no")
    with pytest.raises(InvalidOption, match="frozen is 'head'"):
        names("frozen", "head")
    assert names("frozen", ["head"]) == ("head",)


# -- where these checks are used --------------------------------------------------------------------------------------

PLANS: list[dict[str, Any]] = [
    {"evaluations": 2.5},
    {"evaluations": math.nan},
    {"evaluations": HUGE},
    {"evaluations": "20"},
    {"seed": -1},
    {"seed": 2**70},
    {"seed": 0.5},
    {"seed": None},
    {"calibration_images": 0.5},
    {"calibration_images": -3},
    {"pruning_step": math.inf},
    {"pruning_step": math.nan},
    {"pruning_step": 0},
    {"pruning_step": -0.5},
    {"pruning_step": "half"},
    {"pruning_step": [0.5, math.inf]},
    {"pruning_step": {"conv": "all"}},
    {"pruning_step": None},
    {"recipe": {"epochs": 3}},
    {"recipe": "finetune"},
    {"deployment": {"runtime": "torch"}},
    {"max_drop": math.nan},
    {"max_drop": math.inf},
    {"max_drop": -0.1},
    {"max_drop": "0.1"},
    {"mimic": 1.5, "recipe": None},
    {"mimic": -1, "recipe": None},
    {"probe_epochs": 0.5, "max_drop": 0.1},
    {"frozen": "head"},
    {"frozen": [1]},
    {"tie": "ab"},
    {"tie": ["ab"]},
    {"export": "no"},
    {"train_on_holdout": 1},
    {"latency_table": 7},
    {"latency_table": ""},
]


@pytest.mark.parametrize("fields", PLANS, ids=str)
def test_a_plan_rejects_what_it_cannot_carry_out(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        aacp.Plan(**fields)


def test_a_plan_of_numpy_numbers_is_the_same_plan() -> None:
    plain = aacp.Plan(evaluations=20, seed=3, pruning_step=(8, 0.5), calibration_images=64, max_drop=0.5)
    given = aacp.Plan(
        evaluations=np.int64(20),
        seed=np.uint8(3),
        pruning_step=[np.int32(8), np.float32(0.5)],
        calibration_images=np.int16(64),
        max_drop=np.float64(0.5),
    )
    assert given == plain
    assert [type(value) for value in (given.evaluations, given.seed, *given.pruning_step)] == [int, int, int, float]


RECIPES: list[dict[str, Any]] = [
    {"epochs": 2.5},
    {"epochs": "2"},
    {"epochs": HUGE},
    {"batch_size": 0},
    {"batch_size": math.nan},
    {"lr": math.nan},
    {"lr": math.inf},
    {"lr": -0.1},
    {"lr": "0.1"},
    {"lr": HUGE},
    {"seed": -1},
    {"seed": 1.5},
    {"nesterov": "no"},
    {"milestones": "12", "schedule": "steps"},
    {"milestones": 3, "schedule": "steps"},
    {"milestones": (1.5,), "schedule": "steps"},
    {"schedule": None},
    {"schedule": ["steps"]},
    {"precision": 16},
    {"weight_decay": None},
]


@pytest.mark.parametrize("fields", RECIPES, ids=str)
def test_a_recipe_rejects_what_it_cannot_carry_out(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        aacp.Recipe(**{"epochs": 4, "batch_size": 8, "lr": 0.1, **fields})


def test_a_recipe_of_numpy_numbers_is_the_same_recipe() -> None:
    given = aacp.Recipe(epochs=np.int64(4), batch_size=np.int32(8), lr=np.float64(0.1))
    assert (given, type(given.epochs), type(given.lr)) == (RECIPE, int, float)
    with pytest.raises(InvalidOption, match=r"epochs is 2\.5"):
        RECIPE.scaled(2.5)  # type: ignore[arg-type]


LIMITS: list[dict[str, Any]] = [
    {"at_most": HUGE},
    {"at_most": math.inf},
    {"at_most": math.nan},
    {"at_most": 0},
    {"at_most": "60M"},
    {"at_most": True},
    {"pruning_rate": math.nan},
    {"pruning_rate": -HUGE},
    {"pruning_rate": 1},
    {"pruning_rate": [0.5]},
    {"pruning_rate": torch.ones(2)},
]


@pytest.mark.parametrize("fields", LIMITS, ids=str)
def test_a_limit_rejects_what_is_not_a_bound(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=r"^macs: "):
        aacp.Limit("macs", **fields)


@pytest.mark.parametrize(
    "given", [None, [], 0.5, "macs", {"macs": None}, {"macs": math.nan}, {"macs": "1e400"}, {7: 1}]
)
def test_what_is_not_a_budget_is_rejected(given: Any) -> None:
    with pytest.raises(InvalidOption):
        aacp.Budget.of(given)


def test_a_share_may_be_a_number_of_numpy() -> None:
    assert aacp.Budget.of({"macs": np.float64(0.5)}) == aacp.Budget.of({"macs": 0.5})
    assert type(aacp.Limit("macs", at_most=np.int64(7)).at_most) is float


def test_a_very_long_quantity_is_rejected_at_once() -> None:
    begun = time.perf_counter()
    with pytest.raises(InvalidOption, match="is not a quantity"):
        COSTS["macs"].parse("1" * 200_000 + "?")
    assert time.perf_counter() - begun < 30  # it would take minutes if the time grew with the square of the length


@pytest.mark.parametrize(
    "bounds",
    [{"evaluations": 2.5}, {"evaluations": math.nan}, {"generations": "3"}, {"seconds": math.nan}, {"seconds": 0}, {}],
    ids=str,
)
def test_a_search_whose_end_is_not_a_number_is_rejected(bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Bounds(**bounds)


@pytest.mark.parametrize("fields", [{"batch": 0.5}, {"batch": math.nan}, {"threads": HUGE}, {"threads": "2"}], ids=str)
def test_a_deployment_rejects_what_cannot_be_run(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        aacp.Deployment(**fields)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.93, "0.9300"),
        (-1.5, "-1.5000"),
        (0.0, "0.0000"),
        (-0.0, "0.0000"),
        (-3e-05, "-3e-05"),
        (0.0012345, "0.00123"),
    ],
)
def test_scores_near_zero_are_shown_with_significant_digits(value: float, text: str) -> None:
    assert score_text(value) == text
