"""The polynomial of a cost equals the cost; costs that are not of second degree have none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aacp.bench.networks import resnet, vgg16
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost
from aacp.cost.quadratic import QuadraticForm


@pytest.mark.parametrize("network", [vgg16(), resnet(20)])
@pytest.mark.parametrize("step", [1 / 8, 1 / 3, 48])
def test_macs_and_parameters_are_their_polynomial_exactly(network, step) -> None:
    space = SearchSpace.from_widths(network.widths, step)
    rows = space.counts(np.random.default_rng(1).integers(space.levels, size=(500, len(space))))
    for cost in (network.macs(), network.params()):
        form = QuadraticForm.fit(cost, space)
        assert form is not None
        np.testing.assert_allclose(form.values(rows.astype(float)), cost(rows), rtol=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_rises_are_what_the_cost_itself_grows_by(seed: int) -> None:
    network, generator = resnet(20), np.random.default_rng(seed)
    space = SearchSpace.from_widths(network.widths)
    cost = network.macs()
    form = QuadraticForm.fit(cost, space)
    assert form is not None
    counts = space.counts(generator.integers(space.levels, size=(1, len(space))))
    steps = generator.integers(1, 9, size=counts.shape)
    values, rises = form.rises(counts.astype(float), steps.astype(float))
    for group in range(len(space)):
        more = counts.copy()
        more[0, group] += steps[0, group]
        assert values[0] + rises[0, group] == pytest.approx(float(cost(more)[0]), rel=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda counts: counts.max(axis=1),
        lambda counts: (counts[:, 0] * counts[:, 1] * counts[:, 2]).astype(float),
        lambda counts: np.ceil(counts / 4).sum(axis=1),
    ],
)
def test_a_cost_of_another_kind_has_no_polynomial(function) -> None:
    space = SearchSpace.from_widths([16, 16, 16], pruning_step=1)
    assert QuadraticForm.fit(Cost("other", "", 1.0, function), space) is None


def test_groups_with_one_or_two_choices_are_no_obstacle() -> None:
    space = SearchSpace.from_widths([1, 2, 9], pruning_step=1)
    cost = Cost("product", "", 18.0, lambda counts: counts[:, 0] * counts[:, 1] * 3 + counts[:, 1] * counts[:, 2])
    form = QuadraticForm.fit(cost, space)
    assert form is not None
    rows = np.array([[1, 1, 4], [1, 2, 7], [1, 2, 9]])
    np.testing.assert_allclose(form.values(rows.astype(float)), cost(rows))


def test_a_cost_that_is_infinite_somewhere_has_no_polynomial() -> None:
    def memory(rows: np.ndarray) -> np.ndarray:
        used = (rows[:, :-1] * rows[:, 1:]).sum(axis=1)
        return np.where(used <= 230, np.minimum(used, 150), np.inf)

    space = SearchSpace.from_widths([8] * 10, pruning_step=1)
    assert QuadraticForm.fit(Cost("memory", "", 150.0, memory), space) is None
