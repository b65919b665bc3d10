"""Analytic shapes that a search starts from."""

import numpy as np
import pytest

from aacp import trace
from aacp.bench.networks import resnet
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import macs
from aacp.cost.budget import Budget, Limit
from aacp.cost.reach import reachable
from aacp.search.rescaling import Rescaling
from aacp.search.seeds import largest, nearest, seeds
from aacp.zoo.models import build_model, example_input
from latency_bench import FakeBench, blocked, chain, table_of

NETWORK = resnet(20)
SPACE = SearchSpace.from_widths(NETWORK.widths)
BUDGET = Budget(Limit(NETWORK.macs(), pruning_rate=0.5), Limit(NETWORK.params(), pruning_rate=0.5))


def test_seven_different_shapes_within_the_budget() -> None:
    genes = seeds(Rescaling(SPACE, BUDGET), np.random.default_rng(0))
    assert genes.shape == (7, len(SPACE))
    assert len({tuple(row) for row in genes.tolist()}) == 7
    assert BUDGET.feasible(SPACE.counts(genes)).all()


def test_without_a_second_limit_there_are_six() -> None:
    budget = Budget(BUDGET.limits[0])
    assert len(seeds(Rescaling(SPACE, budget), np.random.default_rng(0))) == 6


def test_a_tilt_is_wide_at_one_end() -> None:
    genes = seeds(Rescaling(SPACE, Budget(BUDGET.limits[0])), np.random.default_rng(0))
    fractions = SPACE.counts(genes) / np.array(SPACE.full)
    first, last = fractions[:, :3].mean(axis=1), fractions[:, -3:].mean(axis=1)
    assert first[1] > last[1]  # tilt -0.6
    assert first[4] < last[4]  # tilt +0.6


def test_the_largest_of_a_shape_has_no_larger_one_that_fits() -> None:
    rescaling = Rescaling(SPACE, BUDGET)
    genes = largest(np.ones(len(SPACE)), rescaling)
    fits = [nearest(np.full(len(SPACE), scale), SPACE) for scale in np.linspace(0.01, 1, 400)]
    widest = max(row.sum() for row in fits if BUDGET.feasible(SPACE.counts(row)))
    assert genes.sum() == widest


def test_nearest_is_the_nearest_count() -> None:
    space = SearchSpace.from_widths([20, 7], pruning_step=8)  # 8, 16, 20 and 7
    for fraction in np.linspace(0, 1, 41):
        genes = nearest(np.array([fraction, fraction]), space)
        distances = [abs(count - 20 * fraction) for count in space.choices[0]]
        assert distances[genes[0]] == min(distances)
        assert genes[1] == 0


@pytest.mark.slow
def test_groups_that_several_layers_make_begin_wide() -> None:
    model = build_model("resnet20")
    graph = trace(model, example_input(model))
    counts = {group.name: count for group, count in zip(graph.free, graph.producer_counts, strict=True)}
    assert counts["conv1"] == 10
    space, budget = SearchSpace(graph), Budget(Limit(macs(graph), pruning_rate=0.5))
    genes = seeds(Rescaling(space, budget), np.random.default_rng(0))
    fractions = space.counts(genes) / np.array(space.full)
    stream = np.array(space.producer_counts) > 1
    assert budget.feasible(space.counts(genes)).all()
    assert (fractions[:-1, stream].mean(1) > fractions[:-1, ~stream].mean(1)).all()
    assert abs(fractions[-1, stream].mean() - fractions[-1, ~stream].mean()) < 0.1  # the last is flat
    # The first has uniform widths without the streams, widened by what the steps leave of the budget.
    assert (fractions[0, stream] == 1).all()
    assert np.ptp(fractions[0, ~stream]) <= 0.25


def test_a_shape_keeps_its_size_where_wider_structures_cost_less() -> None:
    """Kernels that are twice as slow for widths that 4 does not divide."""
    graph = chain(*[64] * 8)
    whole = SearchSpace(graph, 2)
    budget = Budget(Limit(table_of(FakeBench(graph, blocked), whole).cost(graph), pruning_rate=0.2))
    space = reachable(whole, budget)
    rescaling = Rescaling(space, budget)
    rows = rescaling(np.random.default_rng(0).integers(space.levels, size=(50, len(space))), np.random.default_rng(1))
    counts = space.counts(rows)
    kept = [space.counts(largest(row / 64, rescaling)).sum() for row in counts]
    assert (np.array(kept) >= counts.sum(axis=1)).all()
