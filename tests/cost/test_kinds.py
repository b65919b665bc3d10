"""The table of cost kinds: names, quantities, and user-defined costs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import aacp
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import COSTS, CostKind, computed_costs, cost_kind, cost_words
from aacp.runs.scores import NetworkMetrics


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    model = aacp.build_model("digits_resnet")
    return aacp.trace(model, aacp.example_input(model))


@pytest.mark.parametrize(
    ("cost", "text", "value"),
    [
        ("macs", "60M", 60e6),
        ("macs", "1.5 G", 1.5e9),
        ("params", "500k", 5e5),
        ("params", "270000", 270000),
        ("weight_bytes", "2MB", 2e6),
        ("weight_bytes", "2 MiB", 2 * 1024 * 1024),
        ("activation_bytes", ".5kB", 500),
        ("macs", "6e7", 6e7),
        ("params", "30K", 3e4),
        ("weight_bytes", "2KB", 2e3),
        ("latency", "3MS", 3e-3),
    ],
)
def test_quantities_have_the_suffixes_of_their_cost(cost: str, text: str, value: float) -> None:
    assert cost_kind(cost).parse(text) == value


def test_suffixes_that_differ_in_case_only_are_told_apart() -> None:
    kind = aacp.CostKind("energy", None, "J", "energy", {"": 1.0, "mJ": 1e-3, "MJ": 1e6})
    assert [kind.parse(text) for text in ("5mJ", "5MJ")] == [5e-3, 5e6]
    with pytest.raises(aacp.InvalidOption, match="is not a quantity"):
        kind.parse("5mj")


@pytest.mark.parametrize("text", ["", "M", "0M", "-3M", "3 MB", "3M4", "nan", "half"])
def test_text_that_is_not_a_quantity_is_rejected_with_the_suffixes(text: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"is not a quantity. Write a positive number and one of k, M, G"):
        cost_kind("macs").parse(text)


def test_usual_mistakes_are_answered_with_what_is_meant() -> None:
    with pytest.raises(aacp.InvalidOption, match=r'0\.5, not "50%"'):
        cost_kind("macs").parse("50%")
    with pytest.raises(aacp.InvalidOption, match="FLOPs are counted as MACs"):
        cost_kind("FLOPs")
    with pytest.raises(aacp.InvalidOption, match=r"no cost 'memory'\. Give activation_bytes, or"):
        cost_kind("memory")


def test_numbers_are_shares_to_remove_and_text_is_the_most_to_keep() -> None:
    budget = Budget.of({"macs": 0.5, "weight_bytes": "2MB"})
    assert budget == Budget(Limit("macs", pruning_rate=0.5), Limit("weight_bytes", at_most=2e6))
    assert Budget.of({"weight_bytes": "2MB", "macs": 0.5}) == budget  # the order does not matter
    assert Budget.of(Budget(*reversed(budget.limits))) == budget


@pytest.mark.parametrize(
    ("cost", "value", "words"),
    [
        ("macs", 0.5, "50 % less"),
        ("params", 0.335, "33.5 % less"),
        ("macs", "60M", "at most 60M"),
        ("params", "270123", "at most 270123"),
        ("weight_bytes", "512KiB", "at most 512KiB"),
        ("activation_bytes", "1500 kB", "at most 1.5MB"),
        ("latency", "3ms", "at most 3ms"),
    ],
)
def test_limits_are_shown_as_they_are_written(cost: str, value: float | str, words: str) -> None:
    assert Limit.of(cost, value).phrase == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"flops": 0.5}, "no cost 'flops'. Choose from macs, params"),
        ({"macs": 60_000_000}, r'60000000 is not a share to remove.* such as "60M"'),
        ({"macs": True}, "True is not a share"),
        ([("macs", 0.5)], "is not a budget. Give a Budget, or a mapping"),
        (Budget(Limit("macs", 0.5), Limit("macs", at_most=3.0)), "has 2 limits on macs"),
    ],
)
def test_budgets_that_make_no_sense_are_rejected(given, words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        Budget.of(given)


@pytest.mark.slow
def test_a_limit_by_name_needs_a_graph_before_structures_are_compared(graph: aacp.ChannelGraph) -> None:
    budget = Budget.of({"macs": 0.5})
    with pytest.raises(aacp.InvalidOption, match=r"not computed for a network yet. Use budget.on\(graph\)"):
        budget.feasible(graph.full)
    resolved = budget.on(graph)
    assert resolved.limits[0].bound == 0.5 * aacp.macs(graph).full
    assert not resolved.feasible(graph.full)
    assert resolved.feasible(np.ones(len(graph.free), dtype=int))


def test_every_computed_cost_is_the_function_of_its_name(graph: aacp.ChannelGraph) -> None:
    half = [max(1, group.width // 2) for group in graph.free]
    found = {cost.name: (cost.full, float(cost(half))) for cost in computed_costs(graph)}
    assert set(found) == set(COSTS) - {"latency", "file_size"}
    for name, values in found.items():
        cost = getattr(aacp, name)(graph)
        assert values == (cost.full, float(cost(half)))


def channels(graph: aacp.ChannelGraph) -> aacp.Cost:
    return aacp.cost_of(lambda structure: float(sum(structure)), graph, "channels", "channels")


def test_a_function_from_a_graph_to_a_cost_is_a_cost_of_its_own(graph: aacp.ChannelGraph) -> None:
    budget = Budget.of(Budget(Limit(channels, pruning_rate=0.5), Limit("macs", 0.1)))
    assert budget.costs == ("macs", "channels")
    limit = budget.on(graph).limits[1]
    assert limit.bound == 0.5 * sum(graph.full)
    assert limit.holds(limit.cost(graph.full)).tolist() is False
    assert Limit(aacp.macs, 0.5) == Limit("macs", 0.5)
    assert limit.to_json()["unit"] == "channels"


def test_a_kind_of_the_users_is_read_from_a_file_by_name() -> None:
    kind = CostKind("channels", channels, "channels", "channels of all groups")
    written = Limit(kind, at_most=100.0).to_json()
    assert written["source"].endswith("test_kinds:channels")
    again = Limit.from_json(written)
    assert again == Limit(kind, at_most=100.0)
    assert again.to_json() == written
    old = Limit.from_json({"cost": "macs", "pruning_rate": 0.5, "at_most": None, "unit": ""})
    assert old == Limit("macs", 0.5)


def test_a_function_that_builds_something_else_is_rejected(graph: aacp.ChannelGraph) -> None:
    with pytest.raises(aacp.InvalidOption, match="Return a cost of that name"):
        Limit(CostKind("energy", channels), 0.5).on(graph)
    with pytest.raises(aacp.InvalidOption, match="nothing to compute the cost 'energy' with"):
        Limit(CostKind("energy"), 0.5).on(graph)
    with pytest.raises(aacp.InvalidOption, match="is not a cost"):
        Limit(3, 0.5)  # type: ignore[arg-type]


def test_reports_have_words_for_every_cost() -> None:
    assert cost_words("weight_bytes") == "bytes of weights"
    assert cost_words("flash_bytes") == "flash bytes"


def macs(graph: aacp.ChannelGraph) -> aacp.Cost:
    """A function of the user's with the name of a built-in cost."""
    return aacp.cost_of(lambda structure: 1.0, graph, "macs")


@pytest.mark.parametrize("cost", [macs, CostKind("macs", macs), CostKind("latency", macs)])
def test_a_cost_of_the_users_cannot_have_the_name_of_a_built_in_one(cost: Any) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"is the name of a built-in cost\. Choose another name"):
        Limit(cost, pruning_rate=0.5)
    assert Limit(COSTS["macs"], 0.5).cost is Limit(aacp.macs, 0.5).cost is COSTS["macs"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", "two words", "1st", "<lambda>", "grün"])
def test_the_name_of_a_cost_is_fit_for_files_and_folders(name: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"A cost cannot be named .* Start with a letter"):
        CostKind(name)


@pytest.mark.parametrize("name", [field.name for field in fields(NetworkMetrics)])
def test_a_cost_cannot_have_the_name_of_another_field_of_the_evaluation(name: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"another field of evaluation\.json"):
        CostKind(name)
    with pytest.raises(aacp.InvalidOption, match=r"another field of evaluation\.json"):
        Limit(Cost(name, "", 1.0, lambda rows: rows.sum(axis=1)), pruning_rate=0.5)
