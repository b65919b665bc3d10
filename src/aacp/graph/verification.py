"""Verification: a network cut at random must compute what the masked original computes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils import _pytree as pytree

from aacp.channels import ChannelGraph
from aacp.errors import UntraceableModel
from aacp.graph.assembly import Assembled
from aacp.graph.exported import cut_exported
from aacp.graph.masking import MaskedRun
from aacp.graph.program import first_line
from aacp.graph.propagation import Propagation
from aacp.graph.slicing import cut

# Of the output's scale. Rounding stays below, a wrong channel far above: weights are made lively first.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
UNCLEAR = 1e-2  # between the tolerance and this, single precision cannot tell rounding from a mistake; nor at infinity


@dataclass
class Bench:
    """A network set up for comparison: traced, with lively weights, on one example."""

    model: nn.Module
    propagation: Propagation
    assembled: Assembled
    arguments: tuple[Any, ...]
    dtype: torch.dtype
    in_double: Callable[[], Bench]  # the same in double precision, for when rounding and mistakes look alike

    def difference(self, graph: ChannelGraph, groups: Sequence[str], seed: int = 0) -> str | None:
        """Cut the named groups at random; says how the result differs from the masked original, None if it does not."""
        return self.difference_when(graph, random_units(graph, groups, np.random.default_rng(seed)))

    def difference_when(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> str | None:
        """How the network with only these units differs from the masked original."""
        found = self._difference(graph, units)
        if isinstance(found, str):
            return found
        if found <= TOLERANCE[self.dtype]:
            return None
        if self.dtype != torch.float64 and (found <= UNCLEAR or math.isinf(found)):
            try:
                return self.in_double().difference_when(graph, units)
            except UntraceableModel:  # code that insists on single precision: better freeze too much than too little
                return f"outputs differ by {found:.1e} of their scale, and it does not run in double precision"
        return f"outputs differ by {found:.1e} of their scale"

    def _cut(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> nn.Module:
        if graph.form == "exported":
            return cut_exported(self.model, self.propagation, self.assembled, graph, units)
        return cut(self.model, graph, units)

    def _difference(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> float | str:
        stays = np.append(units, True)[self.assembled.unit_of_id]
        inputs = [leaf for leaf in pytree.tree_leaves(self.arguments) if isinstance(leaf, torch.Tensor)]
        with torch.no_grad():
            try:
                smaller = self._cut(graph, units)
                found = outputs(smaller(*copy.deepcopy(self.arguments)))
                expected = MaskedRun(self.propagation, stays)(self.model, copy.deepcopy(inputs))
            except Exception as error:  # whatever the model's own code raises on sizes it does not expect
                return first_line(error)
        return _compare(expected, found)


def outputs(value: Any) -> list[torch.Tensor]:
    """The tensors a network returns, whatever they are wrapped in."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _compare(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float | str:
    """The largest difference relative to its tensor's scale, or in words what else is wrong."""
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in found]:
        return f"output shapes {[tuple(t.shape) for t in found]} instead of {[tuple(t.shape) for t in expected]}"
    largest = 0.0
    for one, other in zip(expected, found, strict=True):
        if one.numel():
            scale, error = one.abs().max().item(), (one - other).abs().max().item()
            largest = max(largest, error / max(scale, 1e-30) if math.isfinite(error) else math.inf)
    return largest


def random_units(graph: ChannelGraph, groups: Sequence[str], generator: np.random.Generator) -> NDArray[np.bool_]:
    """Units that stay when each named group loses a random part: counts differ, so that no accident hides a mistake."""
    named = set(groups)
    kept = {}
    for group in graph.free:
        if group.name in named and group.width > 1:
            count = int(generator.integers(max(1, group.width // 4), max(2, 3 * group.width // 4 + 1)))
            kept[group.name] = np.sort(generator.permutation(group.width)[: min(count, group.width - 1)])
    return graph.kept_units(kept)


def verified(bench: Bench, graph: ChannelGraph) -> ChannelGraph:
    """The graph with every group frozen whose cut the network does not survive."""
    while graph.free:
        free = [group.name for group in graph.free]
        if bench.difference(graph, free) is None:
            return graph
        culprit, trouble = _culprit(bench, graph, free)
        graph = graph.freeze({culprit: f"cutting it breaks the network ({trouble})"})
    return graph


def _culprit(bench: Bench, graph: ChannelGraph, free: list[str]) -> tuple[str, str]:
    """The last group of the shortest run of groups that fails together."""
    good, bad = 0, len(free)
    trouble = ""
    while bad - good > 1:
        middle = (good + bad) // 2
        found = bench.difference(graph, free[:middle])
        good, bad, trouble = (middle, bad, trouble) if found is None else (good, middle, found)
    return free[bad - 1], trouble or bench.difference(graph, free[:bad]) or ""


def enliven(model: nn.Module, generator: torch.Generator) -> None:
    """Give constant weights (zeros, ones, tiny layer scales) random values: what is constant would hide mistakes."""
    for module in model.modules():
        for key, value in [*module._parameters.items(), *module._buffers.items()]:
            if value is None or not value.is_floating_point() or value.numel() < 2:
                continue
            if bool((value == value.reshape(-1)[0]).all()):
                noise = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value)
                spread = noise + 0.5 if key != "bias" and key != "running_mean" else (noise - 0.5) / 5
                value.data.copy_(spread)
