"""SensitivityThreshold: measure the loss of each group alone, then cut all to equal predicted loss (FastNAS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aacp.search.rescaling import Genes
from aacp.search.searcher import Searcher
from aacp.search.seeds import largest


@dataclass(frozen=True)
class SensitivitySettings:
    """The settings of SensitivityThreshold: assumed powers of the growth of a group's loss, w ^ -power."""

    powers: tuple[float, ...] = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0)


class SensitivityThreshold(Searcher[SensitivitySettings]):
    """First the uniform structure and each of its groups halved, then one structure per assumed power, then the end.

    FastNAS measures the groups of the unpruned network. Here every structure must meet the budget, so the groups are
    measured around the uniform structure that meets it.
    """

    settings_type = SensitivitySettings

    def begin(self) -> None:
        self._losses: list[float] = []
        self._done = False

    def propose(self) -> Genes:
        if self._done:
            return self.start[:0]
        if not self._losses:
            flat = largest(np.ones(len(self.space)), self.rescaling)
            halved = np.tile(flat, (len(self.space), 1))
            np.fill_diagonal(halved, flat // 2)
            # Rescaling changes these rows only if a cost is not monotone.
            return self.rescaling(np.concatenate([flat[None], halved]), self.generator, "shrink")
        shapes = [self._shape(np.array(self._losses), power) for power in self.settings.powers]
        return self.rescaling(np.array([largest(shape, self.rescaling) for shape in shapes]), self.generator)

    def _shape(self, losses: NDArray[np.float64], power: float) -> NDArray[np.float64]:
        """Widths with the same predicted loss in all groups: narrow where the measured loss is small."""
        floor = max(float(losses.max()), 1e-9) / 100  # a loss below the noise must not remove a whole group
        return np.asarray(np.maximum(losses, floor) ** (1 / power))

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        if self._losses:
            self._done = True
        else:
            self._losses = [scores[0] - score for score in scores[1:]]

    def memory(self) -> dict[str, Any]:
        return {"losses": self._losses, "done": self._done}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._losses = memory["losses"]
        self._done = memory["done"]
