"""Plans: fields that would be ignored, and files that do not exist, are rejected; valid plans are accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import aacp
from aacp.cost.budget import Budget
from aacp.data.scores import accuracy
from aacp.pipeline.plan import DEFAULT, Plan
from aacp.search.baselines import UniformShrinkage
from aacp.search.guided import GuidedEvolution
from aacp.train.recipe import BASE, FINETUNE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"evaluations": 0}, "evaluations is 0, below 1"),
        ({"calibration_images": 0}, "calibration_images is 0, below 1"),
        ({"method": "magic"}, "no search method 'magic'. Choose from"),
        ({"importance": "l7"}, "There is no importance 'l7'"),
        ({"shrink": "params"}, r"^Without max_drop, shrink='params' would be ignored\. Give"),
        ({"probe_epochs": 2}, r"^Without max_drop, probe_epochs=2 would be ignored\. Give"),
        ({"shrink": "params", "probe_epochs": 2}, "max_drop, shrink='params' and probe_epochs=2 would be ignored"),
        ({"recipe": None, "from_scratch": True}, "from_scratch says how to train, but there is no recipe"),
        ({"recipe": None, "train_on_holdout": True}, "train_on_holdout says how to train, but there is no recipe"),
        ({"finalists": 1}, "finalists is 1, below 2"),
        ({"finalists": 2.5}, "finalists is 2.5, which is not a whole number"),
        ({"rungs": (3, 10)}, r"rungs=\(3, 10\) says how long .* but there are none. Give"),
        ({"finalists": 4, "rungs": 3}, "rungs is 3, which is not a list. Give a list of epochs"),
        ({"finalists": 4, "rungs": (0, 3)}, "a rung is 0, below 1"),
        ({"finalists": 4, "rungs": (3, 3)}, r"rungs are \(3, 3\), which do not rise. Give"),
        ({"finalists": 4, "rungs": (10, 3)}, r"rungs are \(10, 3\), which do not rise. Give"),
        ({"finalists": 4, "rungs": (3, 101)}, "last rung has 101 epochs, but the recipe has 100. Give"),
        ({"finalists": 4, "recipe": None}, "finalists=4 are compared .* but there is no recipe. Give"),
        ({"finalists": 4, "max_drop": 0.1}, "finalists=4 are structures of one search, but max_drop .* Give"),
        ({"recipe": FINETUNE, "from_scratch": True}, "0.9 of the loss .* but a training from scratch has none"),
    ],
)
def test_what_is_not_there_or_would_be_ignored_is_rejected(change: dict, words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        replace(DEFAULT, **change)


def test_only_uniform_widths_leave_residual_streams_alone_by_default() -> None:
    assert Plan().traced_scope == "all"
    assert Plan(method=GuidedEvolution).traced_scope == "all"
    assert Plan(method="uniform").traced_scope == "inner"
    assert Plan(method=UniformShrinkage).traced_scope == "inner"
    assert Plan(method="uniform", scope="all").traced_scope == "all"
    assert Plan(scope="paper").traced_scope == "paper"


def test_the_summary_says_what_takes_time() -> None:
    assert Plan().summary == "200 evaluations, then 100 epochs of training"
    assert Plan(method="uniform").summary == "1 evaluation, then 100 epochs of training"
    assert Plan(recipe=BASE.scaled(1)).summary == "200 evaluations, then 1 epoch of training"
    assert Plan(recipe=None, reconstruction=None, max_drop=0.01).summary == (
        "200 evaluations in every search, then no training"
    )


def test_rungs_follow_from_the_recipe_if_none_are_given() -> None:
    assert Plan(finalists=4).chosen_rungs == (3, 10, 30)  # of 100 epochs
    assert Plan(finalists=4, recipe=BASE.scaled(20)).chosen_rungs == (1, 2, 6)
    assert Plan(finalists=4, recipe=BASE.scaled(2)).chosen_rungs == (1,)
    assert Plan(finalists=4, rungs=[5]).chosen_rungs == (5,)
    assert Plan().chosen_rungs == ()
    assert Plan(finalists=4).summary == (
        "200 evaluations, then 4 finalists in rungs of 3, 10, 30 epochs, then 100 epochs of training"
    )


def test_the_summary_does_not_call_a_repair_no_training() -> None:
    assert Plan(recipe=None).summary == "200 evaluations, then a repair of the weights, without labels"
    assert Plan(recipe=None, mimic=50).summary == (
        "200 evaluations, then a repair of the weights and 50 steps of mimicking the original, without labels"
    )


def test_the_length_of_a_search_follows_the_method_unless_it_is_given() -> None:
    assert Plan().search_length == 200
    assert replace(Plan(), method="released").search_length == 2000
    assert Plan(method="paper", evaluations=30).search_length == 30
    assert Plan(method="released", recipe=None, max_drop=0.01).summary.startswith("2,000 evaluations in every search")


def test_what_has_a_use_is_not() -> None:
    assert Plan(max_drop=0.0, shrink="params", probe_epochs=1).shrunk == ("params",)
    assert Plan(recipe=BASE, from_scratch=True, train_on_holdout=True).shrunk == ()


@pytest.mark.parametrize(
    ("plan", "budgets", "words"),
    [
        (Plan(), [{}], "without limits prunes nothing"),
        (Plan(), [{"macs": 0.5}, {}], "without limits prunes nothing"),
        (Plan(max_drop=0.01), [{"macs": 0.5}], "A limit on macs would be ignored"),
        (Plan(max_drop=0.01, shrink="latency"), [{"macs": 0.5, "latency": "3ms"}], "A limit on latency would be"),
        (Plan(latency_table="t.json"), [{"macs": 0.5}], "The latency table t.json would be ignored"),
        (Plan(latency_table="t.json", max_drop=0.01), [{}], "The latency table t.json would be ignored"),
    ],
)
def test_budgets_and_plans_that_pass_each_other_by_are_rejected(plan: Plan, budgets: list, words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        plan.check_budgets([Budget.of(budget) for budget in budgets])


@pytest.mark.parametrize(
    ("plan", "budgets"),
    [
        (Plan(), [{"macs": 0.5}]),
        (Plan(max_drop=0.01), [{}]),
        (Plan(max_drop=0.01, shrink="params"), [{"macs": 0.5}]),
        (Plan(max_drop=0.01, shrink="latency", latency_table="t.json"), [{}]),
        (Plan(latency_table="t.json"), [{"macs": 0.5}, {"latency": 0.3}]),
    ],
)
def test_others_are_not(plan: Plan, budgets: list) -> None:
    plan.check_budgets([Budget.of(budget) for budget in budgets])


def test_a_drop_of_all_there_is_is_rejected_for_accuracy_alone() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"may drop by 500 points leaves nothing to keep\. Give less"):
        Plan(max_drop=5.0).check_drop(accuracy)
    Plan(max_drop=0.99).check_drop(accuracy)
    Plan(max_drop=5.0).check_drop(lambda *_: 0.0)  # decibels, say


@pytest.mark.parametrize(
    ("given", "at_once"),
    [({}, None), ({"workers": 2}, 8), ({"proposals": 3}, 3), ({"workers": 2, "proposals": 3}, 3)],
)
def test_eight_structures_are_proposed_at_once_for_workers_unless_a_number_is_given(given, at_once) -> None:
    assert Plan(**given).proposed_at_once == at_once
