"""Batch norms of a repaired network: running statistics of what arrives, and the same function as before."""

from __future__ import annotations

from collections.abc import MutableMapping

import torch

from aacp.data.moments import Moments
from aacp.graph.program import Call, Program


class SeenNorms:
    """What arrives at the batch norms of a run, all calls of a batch norm together."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._seen: dict[str, Moments] = {}
        self._calls: dict[str, Call] = {}

    def arrive(self, call: Call, value: torch.Tensor) -> None:
        """Take the statistics of the input of a batch norm."""
        name = self._program.tensors.get(call["running_mean"].name)
        if name is None:
            return
        moments = Moments.of(value)
        self._seen[name] = self._seen[name].plus(moments) if name in self._seen else moments
        self._calls[name] = call

    def restate(self, tensors: MutableMapping[str, torch.Tensor]) -> list[str]:
        """Make what arrived the running statistics, in place, and change weight and bias so that nothing else changes.

        Training normalises by the statistics of its batches: with these it continues from the network as it is.

        Returns:
            A note for each batch norm that cannot take them.
        """
        notes: list[str] = []
        for name, moments in self._seen.items():
            call = self._calls[name]
            names = {key: self._name(call, key) for key in ("running_mean", "running_var", "weight", "bias")}
            if any(known is None for known in names.values()):
                where = name.removesuffix("running_mean").removesuffix(".")
                notes.append(f"{where} keeps its running statistics: it has no weight and bias to compensate with.")
                continue
            _restate({key: tensors[known] for key, known in names.items() if known is not None}, moments, call["eps"])
        return notes

    def _name(self, call: Call, key: str) -> str | None:
        return None if call[key] is None else self._program.tensors.get(call[key].name)


def _restate(norm: dict[str, torch.Tensor], moments: Moments, eps: float) -> None:
    """Exchange the running statistics of one batch norm."""
    mean = norm["running_mean"].double().clone()  # double() copies nothing if the network is in double precision
    slope = norm["weight"].double() * (norm["running_var"].double() + eps).rsqrt()
    norm["running_mean"].copy_(moments.mean)
    norm["running_var"].copy_(moments.variance)
    norm["weight"].copy_(slope * (norm["running_var"].double() + eps).sqrt())
    norm["bias"].copy_(norm["bias"].double() + (norm["running_mean"].double() - mean) * slope)
