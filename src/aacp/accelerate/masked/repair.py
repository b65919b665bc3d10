"""Repair of masked weights: the full values of the weights become those that a structure needs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.accelerate.masked.weights import MaskedWeights
from aacp.pytorch.gpus import recorded
from aacp.repairs.parallel import ParallelRepair


class Repair:
    """Writes repaired weights in place: a captured pass reads the weights where they were when it was captured."""

    def __init__(self, repair: ParallelRepair, weights: MaskedWeights) -> None:
        self._repair = repair
        self._weights = weights

    def __call__(self, units: NDArray[np.bool_]) -> None:
        """Repair the weights for a set of kept units; they are not masked yet."""
        self._repair.apply(self._weights.known, units)
        self._weights.read()


class CapturedRepair(Repair):
    """The same as a CUDA graph: launching its hundreds of small kernels takes longer than running them.

    Units that are not kept in the order of their ranks are rare, and repaired without a graph.
    """

    def __init__(self, repair: ParallelRepair, weights: MaskedWeights) -> None:
        super().__init__(repair, weights)
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, units: NDArray[np.bool_]) -> None:
        if not self._repair.are_in_order(units):
            super().__call__(units)
            return
        self._weights.choose(units)
        if self._graph is None:
            self._graph, _ = recorded(self._write, self._weights.present.device)
        self._graph.replay()

    def _write(self) -> None:
        for name, repaired in self._repair.weights_where(self._weights.present, are_in_order=True).items():
            self._weights.known[name].copy_(repaired)
        self._weights.read()
