"""Population: gene vectors with their scores and ages, as evolutionary methods keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aacp.search.rescaling import Genes


@dataclass(eq=False)
class Population:
    """X^t, N individuals (Eq. 7): rows of genes, scores (nan: not evaluated yet) and ages in generations."""

    genes: Genes
    scores: NDArray[np.float64]
    ages: NDArray[np.int64]

    @classmethod
    def of(cls, genes: Genes, scores: Sequence[float]) -> Population:
        return cls(genes.copy(), np.array(scores, dtype=np.float64), np.zeros(len(genes), dtype=np.int64))

    @classmethod
    def empty(cls, groups: int) -> Population:
        return cls.of(np.zeros((0, groups), dtype=np.int64), [])

    def __len__(self) -> int:
        return len(self.genes)

    @property
    def unscored(self) -> NDArray[np.bool_]:
        return np.isnan(self.scores)

    @property
    def best(self) -> int:
        """The index of the best individual; of equals, the lowest."""
        return int(np.nanargmax(self.scores)) if not self.unscored.all() else 0

    def replace(
        self,
        which: NDArray[np.int64] | NDArray[np.bool_] | int,
        genes: Genes,
        scores: NDArray[np.float64] | float = np.nan,
    ) -> None:
        """Put new individuals of age 0 in place of those that `which` selects."""
        self.genes[which] = genes
        self.scores[which] = scores
        self.ages[which] = 0

    def to_json(self) -> dict[str, Any]:
        scores = [None if np.isnan(score) else float(score) for score in self.scores]
        return {"genes": self.genes.tolist(), "scores": scores, "ages": self.ages.tolist()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], groups: int) -> Population:
        genes = np.array(data["genes"], dtype=np.int64).reshape(-1, groups)
        return cls(genes, np.array(data["scores"], dtype=np.float64), np.array(data["ages"], dtype=np.int64))
