"""The Gaussian process against its formulas, written out plainly."""

import numpy as np
import pytest

from aacp.search.gaussian import GaussianProcess, Kernel, most_likely

KERNEL = Kernel(additive_length=0.25, joint_length=0.5, additive_share=0.5, signal=5.0, noise=0.06)


def plain_covariance(first, second, kernel: Kernel) -> np.ndarray:
    """The kernel of the docstring, entry by entry."""
    result = np.empty((len(first), len(second)))
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            additive = np.mean(np.exp(-((a - b) ** 2) / (2 * kernel.additive_length**2)))
            joint = np.exp(-np.sum((a - b) ** 2) / (2 * len(a) * kernel.joint_length**2))
            result[i, j] = kernel.signal * (kernel.additive_share * additive + (1 - kernel.additive_share) * joint)
    return result


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    widths = generator.integers(1, 9, size=(25, 7)) / 8
    return widths, 0.9 - 0.1 * ((1 - widths) ** 2).sum(axis=1) + generator.normal(0, 0.01, 25)


@pytest.mark.parametrize("length", [0.25, 0.7])
def test_the_posterior_is_the_textbook_one(data, length: float) -> None:
    widths, scores = data
    kernel = Kernel(length, 0.2, 0.9, 1.0, 0.01)
    new = np.random.default_rng(1).integers(1, 33, size=(10, 7)) / 32
    mean, deviation = GaussianProcess(widths, scores, kernel).predict(new)
    targets = (scores - scores.mean()) / scores.std()
    gram = plain_covariance(widths, widths, kernel) + 0.01 * np.eye(25)
    across = plain_covariance(new, widths, kernel)
    np.testing.assert_allclose(mean, scores.mean() + scores.std() * across @ np.linalg.solve(gram, targets), atol=1e-4)
    variance = 1.0 - np.einsum("ij,ji->i", across, np.linalg.solve(gram, across.T))
    np.testing.assert_allclose(deviation, scores.std() * np.sqrt(variance), atol=1e-4)


def test_awaited_observations_reduce_the_deviations_and_leave_the_means(data) -> None:
    """Oracle: the textbook variance given all places, whose scores do not enter it."""
    widths, scores = data
    generator = np.random.default_rng(2)
    new, awaited = generator.integers(1, 33, size=(10, 7)) / 32, generator.integers(1, 33, size=(3, 7)) / 32
    process = GaussianProcess(widths, scores, KERNEL)
    mean, deviation = process.predict(new, awaited)
    places = np.concatenate([widths, awaited])
    gram = plain_covariance(places, places, KERNEL) + KERNEL.noise * np.eye(28)
    across = plain_covariance(new, places, KERNEL)
    variance = KERNEL.signal - np.einsum("ij,ji->i", across, np.linalg.solve(gram, across.T))
    np.testing.assert_allclose(deviation, scores.std() * np.sqrt(variance), atol=1e-4)
    np.testing.assert_array_equal(mean, process.predict(new)[0])
    assert (deviation < process.predict(new)[1] - 1e-4).any()


def test_fitted_are_the_posterior_means_of_the_observations(data) -> None:
    process = GaussianProcess(*data, KERNEL)
    np.testing.assert_allclose(process.fitted, process.predict(data[0])[0], atol=1e-8)


@pytest.mark.slow
def test_the_kernel_chosen_is_the_most_likely_of_the_grid(data) -> None:
    """Oracle: the density of the targets under a normal distribution, by determinant and inverse."""
    widths, scores = data
    targets = (scores - scores.mean()) / scores.std()

    def likelihood(kernel: Kernel) -> float:
        gram = plain_covariance(widths, widths, kernel) + kernel.noise * np.eye(len(widths))
        return float(-0.5 * (np.linalg.slogdet(gram)[1] + targets @ np.linalg.solve(gram, targets)))

    chosen = most_likely(widths, targets)
    grid = [
        Kernel(la, lf, rho, signal, noise)
        for la in (0.25, 0.7)
        for lf in (0.2, 0.5)
        for rho in (0.9, 0.5, 0.1)
        for signal in (1.0, 5.0)
        for noise in (0.01, 0.06, 0.3)
    ]
    assert likelihood(chosen) == pytest.approx(max(map(likelihood, grid)), abs=1e-3)


def test_equal_scores_do_not_divide_by_nothing() -> None:
    mean, deviation = GaussianProcess(np.eye(3), np.full(3, 0.5)).predict(np.eye(3))
    np.testing.assert_allclose(mean, 0.5)
    assert np.isfinite(deviation).all()


def test_the_evidence_is_the_density_of_the_scores(data) -> None:
    widths, scores = data
    variance = scores.var()
    gram = variance * (plain_covariance(widths, widths, KERNEL) + KERNEL.noise * np.eye(25))
    rest = scores - scores.mean()
    density = -0.5 * (np.linalg.slogdet(2 * np.pi * gram)[1] + rest @ np.linalg.solve(gram, rest))
    assert GaussianProcess(widths, scores, KERNEL).evidence == pytest.approx(density, abs=0.01)
