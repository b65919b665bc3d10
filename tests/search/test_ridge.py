"""Ridge regression against the normal equations."""

import numpy as np

from aacp.search.ridge import STRENGTHS, RidgeRegression


def features_of(widths):
    return np.concatenate([widths, widths**2, np.log(widths), np.sqrt(widths)], axis=1)


def test_the_mean_solves_the_normal_equations_for_one_of_the_strengths() -> None:
    generator = np.random.default_rng(0)
    widths = generator.integers(1, 9, size=(60, 4)) / 8
    scores = widths @ [0.1, 0.3, 0.0, 0.2] + generator.normal(0, 0.01, 60)
    model = RidgeRegression(widths, scores)
    raw = features_of(widths)
    features = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    candidates = []
    for strength in STRENGTHS:
        gram = features.T @ features + strength * np.eye(features.shape[1])
        candidates.append(scores.mean() + features @ np.linalg.solve(gram, features.T @ (scores - scores.mean())))
    errors = [np.abs(candidate - model.predict(widths)[0]).max() for candidate in candidates]
    assert min(errors) < 1e-8
    np.testing.assert_allclose(model.fitted, model.predict(widths)[0])


def test_awaited_observations_reduce_the_deviations_and_leave_the_means() -> None:
    """Oracle: the posterior variance of linear regression, which is that of the noise times a form in the features."""
    generator = np.random.default_rng(3)
    widths, new, awaited = (generator.integers(1, 9, size=(count, 4)) / 8 for count in (60, 8, 3))
    scores = widths @ [0.1, 0.3, 0.0, 0.2] + generator.normal(0, 0.01, 60)
    model = RidgeRegression(widths, scores)
    raw = features_of(widths)
    known, rows, others = ((features_of(each) - raw.mean(axis=0)) / raw.std(axis=0) for each in (widths, new, awaited))
    before, after = model.predict(new)[1], model.predict(new, awaited)[1]
    errors = []
    for strength in STRENGTHS:
        gram = known.T @ known + strength * np.eye(known.shape[1])
        plain = np.einsum("ij,ji->i", rows, np.linalg.solve(gram, rows.T))
        reduced = np.einsum("ij,ji->i", rows, np.linalg.solve(gram + others.T @ others, rows.T))
        errors.append(np.abs((after / before) ** 2 - reduced / plain).max() + np.ptp(before**2 / plain) / before.max())
    assert min(errors) < 1e-6
    assert (after < 0.99 * before).any()
    np.testing.assert_array_equal(model.predict(new, awaited)[0], model.predict(new)[0])


def test_it_recovers_an_additive_score_and_knows_where_it_is_uncertain() -> None:
    generator = np.random.default_rng(1)
    widths = generator.integers(3, 9, size=(200, 6)) / 8

    def truth(rows):
        return (np.sqrt(rows) * [1, 2, 3, 1, 2, 3]).sum(axis=1)

    model = RidgeRegression(widths, truth(widths) + generator.normal(0, 0.05, 200))
    near, far = generator.integers(3, 9, size=(50, 6)) / 8, np.full((1, 6), 1 / 64)
    mean, deviation = model.predict(near)
    assert np.abs(mean - truth(near)).mean() < 0.05
    assert model.predict(far)[1][0] > 5 * deviation.mean()


def test_the_evidence_is_the_density_of_the_scores_under_the_best_strength_and_noise() -> None:
    generator = np.random.default_rng(2)
    widths = generator.integers(1, 9, size=(40, 3)) / 8
    scores = widths.sum(axis=1) + generator.normal(0, 0.1, 40)
    raw = features_of(widths)
    features, rest = (raw - raw.mean(axis=0)) / raw.std(axis=0), scores - scores.mean()
    densities = []
    for strength in STRENGTHS:
        shape = np.eye(40) + features @ features.T / strength
        for noise in np.geomspace(1e-3, 1e-1, 400):
            gram = noise * shape
            densities.append(-0.5 * (np.linalg.slogdet(2 * np.pi * gram)[1] + rest @ np.linalg.solve(gram, rest)))
    assert abs(RidgeRegression(widths, scores).evidence - max(densities)) < 0.01
