"""Cholesky factors of covariances that may be singular."""

from __future__ import annotations

import torch

LARGEST_RIDGE = (
    1e3  # with such a ridge even a matrix that is far from positive definite through rounding can be factored
)


def ridge_factor(covariance: torch.Tensor, ridge: float) -> torch.Tensor:
    """The Cholesky factor of each covariance plus a share of the mean of its diagonal.

    Covariances that were summed in single precision may have negative eigenvalues: the share grows until the
    factorisation succeeds.

    Args:
        covariance: (groups, columns, columns).
        ridge: the share at first.
    """
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    size = diagonal.mean(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    share = torch.full_like(size, ridge)
    while True:
        added = (share * size)[..., None].expand_as(diagonal)
        factor: torch.Tensor
        factor, failed = torch.linalg.cholesky_ex(covariance + torch.diag_embed(added))
        is_retried = (failed > 0) & (share < LARGEST_RIDGE)
        if not bool(is_retried.any()):
            return factor
        share = torch.where(is_retried, 10 * share, share)
