"""Factors of covariances that are singular, or not positive through rounding."""

from __future__ import annotations

import torch

from aacp.repairs.factors import ridge_factor


def test_a_factor_is_that_of_the_covariance_plus_a_share_of_its_mean_diagonal() -> None:
    covariance = torch.tensor([[[4.0, 1.0], [1.0, 2.0]]], dtype=torch.float64)
    factor = ridge_factor(covariance, 0.5)
    assert torch.allclose(factor @ factor.mT, covariance + 1.5 * torch.eye(2, dtype=torch.float64))


def test_only_a_covariance_that_rounding_made_indefinite_gets_a_larger_ridge() -> None:
    sound = torch.eye(2, dtype=torch.float64)
    indefinite = torch.tensor([[1.0, 1.0 + 1e-4], [1.0 + 1e-4, 1.0]], dtype=torch.float64)
    factors = ridge_factor(torch.stack([sound, indefinite]), 1e-6)
    found = factors @ factors.mT
    assert torch.allclose(found[0], sound * (1 + 1e-6), rtol=0, atol=1e-12)
    added = found[1].diagonal() - 1
    assert torch.allclose(added, torch.full((2,), 1e-3, dtype=torch.float64))  # 1e-4 is not enough


def test_a_covariance_of_constants_has_a_factor() -> None:
    factor = ridge_factor(torch.zeros(1, 3, 3, dtype=torch.float64), 1e-6)
    assert bool((factor.diagonal(dim1=1, dim2=2) > 0).all())
