"""Algorithm 1 and its corrections."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aacp.bench.networks import resnet, vgg16
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit, cost_of
from aacp.errors import InfeasibleBudget, InvalidOption
from aacp.search.rescaling import Rescaling, rescale

RESNET = resnet(20)
SPACE = SearchSpace.from_widths(RESNET.widths)


def steps_up(structure, space):
    """Every structure one step above in one group."""
    for position, (count, choices) in enumerate(zip(structure, space.choices, strict=True)):
        if count < choices[-1]:
            more = list(structure)
            more[position] = choices[choices.index(count) + 1]
            yield more


def peak(counts):
    """Not a polynomial: the largest of a few products, as activation memory is."""
    return np.maximum.reduce([counts[:, i] * counts[:, i + 1] for i in range(counts.shape[1] - 1)])


def jagged(counts):
    """Not monotone: a width that is a multiple of three steps is cheaper than the one below it."""
    return (counts + 5 * (counts % 3 > 0)).sum(axis=1).astype(float)


budgets = st.builds(
    lambda macs, params, with_peak: Budget(
        Limit(RESNET.macs(), pruning_rate=macs),
        Limit(RESNET.params(), pruning_rate=params),
        *([Limit(Cost("peak", "", float(peak(np.array([RESNET.widths]))[0]), peak), pruning_rate=0.6)] * with_peak),
    ),
    st.floats(0, 0.9),
    st.floats(0, 0.9),
    st.integers(0, 1),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(budgets, st.lists(st.floats(-50, 200), min_size=12, max_size=12), st.integers(0, 1000))
def test_two_sided_rescale_is_legal_within_every_limit_and_leaves_no_step(budget, widths, seed) -> None:
    structure = rescale(widths, SPACE, budget, np.random.default_rng(seed))
    assert structure in SPACE
    assert budget.feasible(structure)
    assert not any(budget.feasible(more) for more in steps_up(structure, SPACE))


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.8))
def test_costs_that_are_not_monotone_end_within_the_limit_and_leave_no_step(seed, rate) -> None:
    space = SearchSpace.from_widths([12] * 6, pruning_step=1)
    cost = Cost("jagged", "", float(jagged(np.full((1, 6), 12))[0]), jagged)
    budget = Budget(Limit(cost, at_most=max((1 - rate) * 72, 36)))
    generator = np.random.default_rng(seed)
    structure = rescale(generator.uniform(0, 14, 6), space, budget, generator)
    assert budget.feasible(structure)
    assert not any(budget.feasible(more) for more in steps_up(structure, space))


def test_a_cost_that_hides_from_every_probe_is_obeyed_all_the_same() -> None:
    space = SearchSpace.from_widths([64] * 8, pruning_step=1)
    plain = Budget(Limit(cost_of(lambda structure: sum(structure), space, "sum"), at_most=256))
    start = np.full((20, 8), 40)
    often = Rescaling(space, plain)(start, np.random.default_rng(0))
    trap = {row.tobytes() for row in space.counts(often)}  # linear, but for twenty structures it would arrive at
    hidden = Cost(
        "trap", "", 512.0, lambda rows: rows.sum(axis=1) + 9999.0 * np.array([r.tobytes() in trap for r in rows])
    )
    budget = Budget(Limit(hidden, at_most=256))
    rows = Rescaling(space, budget)(start, np.random.default_rng(0))
    assert budget.feasible(space.counts(rows)).all()


def test_shrinking_never_widens_and_stops_at_the_first_feasible_structure() -> None:
    budget = Budget(Limit(RESNET.macs(), pruning_rate=0.5))
    generator = np.random.default_rng(0)
    start = generator.integers(SPACE.levels, size=(100, len(SPACE)))
    shrunk = Rescaling(SPACE, budget)(start, generator, "shrink")
    assert (shrunk <= start).all()
    untouched = budget.feasible(SPACE.counts(start))
    assert (shrunk[untouched] == start[untouched]).all()
    # Where it shrank, the last step was needed: some step back up breaks the limit.
    for row in shrunk[~untouched]:
        ups = [row + step for step in np.eye(len(row), dtype=int) if (row + step < SPACE.levels).all()]
        assert not budget.feasible(SPACE.counts(ups)).all()


def test_the_printed_loop_stops_as_soon_as_one_limit_holds() -> None:
    """The paper's tables have R_p = 0: the printed "and" then enforces nothing at all."""
    budget = Budget(Limit(RESNET.macs(), pruning_rate=0.5), Limit(RESNET.params(), pruning_rate=0.0))
    full = SPACE.levels - 1
    printed = Rescaling(SPACE, budget)(full[None], np.random.default_rng(0), "printed")[0]
    corrected = Rescaling(SPACE, budget)(full[None], np.random.default_rng(0), "shrink")[0]
    assert (printed == full).all()
    assert not budget.feasible(SPACE.counts(printed))
    assert budget.feasible(SPACE.counts(corrected))


def test_with_one_limit_the_printed_loop_is_the_corrected_one() -> None:
    budget = Budget(Limit(RESNET.macs(), pruning_rate=0.7))
    start = np.random.default_rng(1).integers(SPACE.levels, size=(50, len(SPACE)))
    rows = [Rescaling(SPACE, budget)(start, np.random.default_rng(2), form) for form in ("printed", "shrink")]
    assert (rows[0] == rows[1]).all()


def test_shrinking_draws_every_gene_alike() -> None:
    """From four equal genes one must go: each goes a quarter of the time."""
    space = SearchSpace.from_widths([2] * 4, pruning_step=1)
    budget = Budget(Limit(cost_of(lambda structure: sum(structure), space, "sum"), at_most=7))
    rows = Rescaling(space, budget)(np.ones((8000, 4), dtype=int), np.random.default_rng(0), "shrink")
    shares = (rows == 0).mean(axis=0)
    assert (rows.sum(axis=1) == 3).all()
    np.testing.assert_allclose(shares, 0.25, atol=0.02)  # four standard deviations


def test_both_ways_of_pricing_reach_exactly_the_maximal_structures() -> None:
    """Oracle: all structures of a tiny space that fit and have no fitting step up, by enumeration."""
    space = SearchSpace.from_widths([3, 3, 3], pruning_step=1)
    cost = Cost("pairs", "", 18.0, lambda rows: rows[:, 0] * rows[:, 1] + rows[:, 1] * rows[:, 2])
    budget = Budget(Limit(cost, at_most=9))
    fitting = {s for s in product(*space.choices) if budget.feasible(s)}
    maximal = {s for s in fitting if not any(tuple(more) in fitting for more in steps_up(s, space))}
    start = np.zeros((400, 3), dtype=int)
    for uses_forms in (True, False):
        rescaling = Rescaling(space, budget, uses_forms=uses_forms)
        reached = {tuple(row) for row in space.counts(rescaling(start, np.random.default_rng(0))).tolist()}
        assert reached == maximal


def test_infeasible_budgets_are_rejected_before_anything_is_rescaled() -> None:
    with pytest.raises(InfeasibleBudget):
        Rescaling(SPACE, Budget(Limit(RESNET.macs(), pruning_rate=0.9999)))


def test_an_unknown_form_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="Choose from two-sided, shrink, printed"):
        rescale(RESNET.widths, SPACE, Budget(), np.random.default_rng(0), "sideways")  # type: ignore[arg-type]


@pytest.mark.parametrize("network", [vgg16(), resnet(56)])
def test_mean_slack_at_half_the_macs_is_below_three_tenths_of_a_point(network) -> None:
    space = SearchSpace.from_widths(network.widths)
    limit = Limit(network.macs(), pruning_rate=0.5)
    generator = np.random.default_rng(0)
    genes = Rescaling(space, Budget(limit))(generator.integers(space.levels, size=(300, len(space))), generator)
    assert 0 <= limit.slack(space.counts(genes)).mean() < 0.003
