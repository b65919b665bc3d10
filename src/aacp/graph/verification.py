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

from aacp.channels import ChannelGraph
from aacp.errors import UntraceableModel, first_line
from aacp.graph.assembly import Assembled
from aacp.graph.exported import cut_exported
from aacp.graph.masking import MaskedRun
from aacp.graph.propagation import Propagation
from aacp.graph.slicing import cut
from aacp.torch_internals import BatchNorm, own_buffers, own_parameters, pytree

# Of how much the output varies. Rounding stays below, a wrong channel far above: weights are made lively first.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
# An output that varies by less than this share of its size is held against that share. Times the tolerance in double
# precision it is far above rounding, and far below what a mistake does to a single number.
LEAST = 1e-3
OUTLIERS = 0.25  # of the elements do not count as variation: fills such as -1e9, boxes beside probabilities


@dataclass
class Verifier:
    """A network set up for comparison: traced, with lively weights, on one example."""

    model: nn.Module
    propagation: Propagation
    assembled: Assembled
    arguments: tuple[Any, ...]
    dtype: torch.dtype
    in_double: Callable[[], Verifier]  # the same in double precision, for when rounding and mistakes look alike

    def difference(self, graph: ChannelGraph, trial: KeptByGroup, groups: Sequence[str]) -> str | None:
        """How the network differs from the masked original when the named groups are cut so, None if it does not."""
        named = {name: trial[name] for name in groups}
        return self.difference_when(graph, graph.kept_units(named))

    def difference_when(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> str | None:
        """How the network with only these units differs from the masked original."""
        found = self._difference(graph, units)
        if isinstance(found, str):
            return found
        if found <= TOLERANCE[self.dtype]:
            return None
        if self.dtype != torch.float64:
            try:  # single precision cannot always tell rounding from a mistake
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
        return compare(expected, found)


def outputs(value: Any) -> list[torch.Tensor]:
    """The tensors a network returns, whatever they are wrapped in."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def compare(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float | str:
    """The largest difference relative to how much its tensor varies, or in words what else is wrong.

    Elements that are equal, infinite ones too, say nothing of how much the others vary.
    """
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in found]:
        return f"output shapes {[tuple(t.shape) for t in found]} instead of {[tuple(t.shape) for t in expected]}"
    largest = 0.0
    for one, other in zip(map(_as_floats, expected), map(_as_floats, found), strict=True):
        apart = one != other
        if apart.any():
            values, error = one[apart], (one[apart] - other[apart]).abs()
            scale = (LEAST * values.abs()).clamp(min=max(_variation(values), 1e-300))
            worst = (error / scale).max().item()
            largest = max(largest, worst if math.isfinite(worst) else math.inf)
    return largest


def _variation(values: torch.Tensor) -> float:
    """How far values lie from their median, but for the outliers among them."""
    far = (values - values.median()).abs()
    far = far[far > 0]
    return far.kthvalue(math.ceil((1 - OUTLIERS) * len(far))).values.item() if len(far) else 0.0


def _as_floats(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if tensor.is_floating_point() else tensor.double()


# -- cuts -------------------------------------------------------------------------------------------------------------

KeptByGroup = dict[str, NDArray[np.int64]]  # what each group keeps


def random_cuts(graph: ChannelGraph, seed: int) -> list[KeptByGroup]:
    """Cuts that leave a mistake little room to hide.

    Between the first two every channel of every group is absent once, in the third many groups keep no more than an
    eighth, and in each of them some groups stay whole beside others that do not. In the last all groups keep the same
    number, which code that compares widths (`if x.shape == y.shape`) would take for something else.
    """
    generator = np.random.default_rng(seed)
    first, second, third, equal = KeptByGroup(), KeptByGroup(), KeptByGroup(), KeptByGroup()
    same = min((group.width for group in graph.free if group.width >= 8), default=2) // 2
    for group in graph.free:
        order = generator.permutation(group.width)
        count = int(np.clip(round(group.width * generator.uniform(0.25, 0.75)), 1, max(1, group.width - 1)))
        parts = [np.sort(order[:count]), np.sort(order[count:])]
        whole = np.arange(group.width)
        first[group.name], second[group.name] = (
            (parts[0], parts[1] if len(parts[1]) else whole) if generator.random() > 0.2 else (whole, parts[0])
        )
        few = np.sort(order[: max(1, group.width // 8)])
        third[group.name] = [few, parts[0], whole][generator.choice(3, p=[0.4, 0.4, 0.2])]
        equal[group.name] = np.sort(order[:same]) if group.width > same else whole
    return [first, second, third, equal]


def verified(bench: Verifier, graph: ChannelGraph, seed: int) -> ChannelGraph:
    """The graph with every group frozen whose cut the network does not survive."""
    for trial in random_cuts(graph, seed):
        while True:
            free = [group.name for group in graph.free]
            if not free or bench.difference(graph, trial, free) is None:
                break
            culprit, trouble = _culprit(bench, graph, trial, free)
            graph = graph.freeze({culprit: f"cutting it breaks the network ({trouble})"})
    return graph


def _culprit(bench: Verifier, graph: ChannelGraph, trial: KeptByGroup, free: list[str]) -> tuple[str, str]:
    """The last group of the shortest run of groups that fails together."""
    good, bad = 0, len(free)
    trouble = ""
    while bad - good > 1:
        middle = (good + bad) // 2
        found = bench.difference(graph, trial, free[:middle])
        good, bad, trouble = (middle, bad, trouble) if found is None else (good, middle, found)
    return free[bad - 1], trouble or bench.difference(graph, trial, free[:bad]) or ""


# -- weights ----------------------------------------------------------------------------------------------------------


def enliven(model: nn.Module, seed: int) -> None:
    """Give the network weights under which every channel shows in the output.

    Trained or fresh weights may hide mistakes: scales of zero, saturated units, signals that fade with depth.
    Structure is all that is verified, so weights are drawn anew, to keep signals at about unit size.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(value: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(value.shape, generator=generator)

    for module in model.modules():
        for key, value in [*own_parameters(module).items(), *own_buffers(module).items()]:
            if value is None or not value.is_floating_point() or not value.numel():
                continue
            if key in ("bias", "running_mean"):
                value.data.copy_(drawn(value, -0.1, 0.1))
            elif value.dim() < 2 and (key in own_parameters(module) or bool((value == value.reshape(-1)[0]).all())):
                value.data.copy_(drawn(value, 0.5, 1.5))
            elif key in own_parameters(module):
                fan_in = value.numel() / value.shape[0]
                value.data.copy_(drawn(value, -1.0, 1.0) * math.sqrt(6 / fan_in))


def settle(model: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Give every batch norm the statistics of what reaches it, so that signals neither grow nor fade with depth."""

    def take_statistics(norm: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        spread, mean = torch.var_mean(inputs[0], [d for d in range(inputs[0].dim()) if d != 1], correction=0)
        if isinstance(norm.running_mean, torch.Tensor) and isinstance(norm.running_var, torch.Tensor):
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(spread + 0.1)  # where nothing varies, nothing may be blown up

    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    handles = [norm.register_forward_pre_hook(take_statistics) for norm in norms]
    try:
        with torch.no_grad():
            model(*copy.deepcopy(arguments))
    except Exception:  # whatever the model's own code raises: verification will meet it again, and tell
        return
    finally:
        for handle in handles:
            handle.remove()
