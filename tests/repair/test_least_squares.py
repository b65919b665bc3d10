"""Fits, compared with numpy's solution of the same regression."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aacp.repairs import least_squares
from aacp.repairs.branches import Branch, Goal
from aacp.repairs.least_squares import RIDGES, Weights, _Problem, fitted


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def nothing_added() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(1.0), torch.tensor(0.0)


def fixed_ridge(monkeypatch: pytest.MonkeyPatch, ridge: float) -> None:
    monkeypatch.setattr(least_squares, "RIDGES", (ridge,))


def by_numpy(x: np.ndarray, y: np.ndarray, start: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression with a constant, around given weights: rows of a larger plain regression."""
    centred = x - x.mean(0)
    added = np.sqrt(ridge * (centred**2).sum(0).mean()) * np.eye(x.shape[1])
    rows = np.concatenate([centred, added])
    matrix, *_ = np.linalg.lstsq(rows, np.concatenate([y - y.mean(0), added @ start]), rcond=None)
    return matrix, y.mean(0) - x.mean(0) @ matrix


def held_out_errors(x: np.ndarray, y: np.ndarray, cut: int, has_constant: bool) -> list[float]:
    """The squared error on the rows from `cut` on, after a fit to the others with each ridge."""
    if not has_constant:  # rows with both signs have a mean of zero
        x, y = (np.concatenate([part[:cut], -part[:cut], part[cut:]]) for part in (x, y))
        cut *= 2
    errors = []
    for ridge in RIDGES:
        matrix, constant = by_numpy(x[:cut], y[:cut], np.zeros((x.shape[1], y.shape[1])), ridge)
        errors.append(float(((x[cut:] @ matrix + constant - y[cut:]) ** 2).sum()))
    return errors


@pytest.mark.parametrize("ridge", [1e-6, 0.1])
def test_a_fit_is_the_ridge_regression_around_the_start(ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_ridge(monkeypatch, ridge)
    x = drawn(2, 50, 6) + 1.0
    y = drawn(2, 50, 3, seed=1) + 2.0
    start = Weights(drawn(2, 6, 3, seed=2), torch.zeros(2, 1, 3))
    for steps in (1, 2):
        found = fitted(x, start, [lambda outputs: y - outputs] * steps, free_constant=True)
        for group in range(2):
            matrix, constant = by_numpy(x[group].numpy(), y[group].numpy(), start.matrix[group].numpy(), ridge)
            np.testing.assert_allclose(found.matrix[group], matrix, atol=1e-5)
            np.testing.assert_allclose(found.constant[group, 0], constant, atol=1e-5)


def test_without_a_free_constant_the_constant_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_ridge(monkeypatch, 1e-9)
    x = drawn(1, 50, 6) + 1.0
    y = drawn(1, 50, 3, seed=1)
    start = Weights(torch.zeros(1, 6, 3), torch.full((1, 1, 3), 0.5))
    found = fitted(x, start, [lambda outputs: y - outputs] * 2, free_constant=False)
    expected, *_ = np.linalg.lstsq(x[0].numpy(), y[0].numpy() - 0.5, rcond=None)
    np.testing.assert_allclose(found.matrix[0], expected, atol=1e-5)
    assert torch.equal(found.constant.float(), start.constant)


def test_the_ridge_is_small_if_the_columns_explain_all_and_large_if_they_explain_nothing() -> None:
    x = drawn(1, 400, 20)
    start = Weights(torch.zeros(1, 20, 4), torch.zeros(1, 1, 4))
    true = drawn(1, 20, 4, seed=1)
    exact = fitted(x, start, [lambda outputs: x @ true - outputs] * 2, free_constant=True)
    torch.testing.assert_close(exact.matrix.float(), true, atol=1e-4, rtol=1e-4)
    few = x[:, :30]
    noise = drawn(1, 30, 4, seed=2)
    shrunk = fitted(few, start, [lambda outputs: noise - outputs] * 2, free_constant=True)
    plain, _ = by_numpy(few[0].numpy(), noise[0].numpy(), np.zeros((20, 4)), 1e-9)
    assert float(shrunk.matrix.norm()) < 0.5 * float(np.linalg.norm(plain))


@pytest.mark.parametrize("has_constant", [True, False])
def test_the_ridge_is_the_one_whose_fit_to_the_first_rows_predicts_the_others_best(has_constant: bool) -> None:
    sizes = torch.logspace(0, -3, 12)  # a ridge loses the weights of the smallest columns first
    for noise in (0.0, 1e-4, 0.1, 3.0):
        for seed in range(5):
            x = drawn(1, 60, 12, seed=seed) * sizes + 1.0
            y = x @ drawn(1, 12, 3, seed=seed + 100) + noise * drawn(1, 60, 3, seed=seed + 200)
            found = RIDGES.index(_Problem(x, has_constant).best_ridge(y))
            errors = held_out_errors(x[0].double().numpy(), y[0].double().numpy(), 45, has_constant)
            assert errors[found] <= 1.0001 * min(errors[max(found - 1, 0) : found + 2])  # maybe a local minimum


def test_rounding_of_sums_over_many_rows_does_not_enlarge_the_ridge() -> None:
    """In single precision the sums would hide what only the smallest directions of the columns explain."""
    directions, _ = torch.linalg.qr(drawn(64, 64, seed=1))
    x = drawn(1, 10_000, 64) * torch.logspace(0, -4, 64) @ directions
    assert _Problem(x, is_centred=True).best_ridge(x @ drawn(1, 64, 8, seed=2)) == RIDGES[0]


def test_columns_that_hardly_vary_but_in_a_row_that_is_held_out_do_not_enlarge_the_ridge() -> None:
    """The Gram matrix of the other rows must not be a small difference of large sums."""
    x = drawn(64, 1, 9) + 1e-4 * drawn(64, 400, 9, seed=4)
    x[:, -1] += drawn(64, 9, seed=1)
    x[0] = drawn(400, 9, seed=2)
    true = drawn(64, 9, 2, seed=3)
    start = Weights(torch.zeros(64, 9, 2), torch.zeros(64, 1, 2))
    found = fitted(x, start, [lambda outputs: x @ true - outputs] * 2, free_constant=True)
    torch.testing.assert_close(found.matrix[0].float(), true[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close((x.double() @ found.matrix + found.constant).float(), x @ true, atol=1e-3, rtol=1e-3)


def test_rows_that_are_clipped_leave_the_fit_free_for_the_others() -> None:
    """Behind a relu only the positive values of the original matter: the weights behind them are found exactly."""
    x = drawn(1, 400, 1).abs()
    end = torch.where(x < 1.0, -5.0, x)  # what the original computes: not linear, but below 1 everything is clipped
    branch = Branch((), lower=0.0)
    goal = Goal.of(branch, end, nothing_added(), nothing_added())
    start = Weights(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))

    def clipped_error(steps: list[least_squares.Missing]) -> float:
        found = fitted(x, start, steps, free_constant=True)
        outputs = x @ found.matrix.float() + found.constant.float()
        return float((outputs.clamp(min=0) - end.clamp(min=0)).square().mean())

    plain = clipped_error([goal.missing_to_value] * 2)
    assert clipped_error([goal.missing_to_value] * 2 + [goal.missing] * 20) < 0.5 * plain


# -- goals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [2.0, -0.5])
def test_a_goal_is_reached_if_both_networks_clip_to_the_same(slope: float) -> None:
    end = torch.tensor([-3.0, 0.5, 4.0, 9.0]).reshape(1, 4, 1)
    pruned = (torch.tensor(slope), torch.tensor(1.0))
    goal = Goal.of(Branch((), 0.0, 6.0), end, nothing_added(), pruned)
    right = torch.tensor([-7.0, 0.5, 4.0, 6.5]).reshape(1, 4, 1)  # clipped like the original
    assert goal.missing((right - 1.0) / slope).abs().max() < 1e-6
    wrong = torch.tensor([1.0, -1.0, 5.0, 5.0]).reshape(1, 4, 1)
    missing = goal.missing((wrong - 1.0) / slope) * slope
    torch.testing.assert_close(missing.flatten(), torch.tensor([-1.0, 1.5, -1.0, 1.0]))


def test_channels_that_the_network_multiplies_by_zero_lack_nothing() -> None:
    end = drawn(1, 5, 2)
    slope = torch.tensor([1.0, 0.0]).reshape(1, 1, 2)
    goal = Goal.of(Branch(()), end, nothing_added(), (slope, torch.tensor(0.0)))
    for missing in (goal.missing, goal.missing_to_value):
        lacking = missing(torch.zeros(1, 5, 2))
        torch.testing.assert_close(lacking[..., 0], end[..., 0])
        assert not lacking[..., 1].any()
