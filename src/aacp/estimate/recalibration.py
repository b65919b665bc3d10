"""Recalibration: batch norms given the statistics of what reaches them, exactly, over all calibration images.

All images reach a batch norm before any of them passes it: what it sees has been normalised by the exact statistics of
the one before, so how a loader cut the images into batches does not matter. Where that is too much for the memory, the
same statistics are had from one pass for each batch norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from aacp.data.batches import Batches, batch_size_of, free_memory
from aacp.errors import InvalidData
from aacp.estimate.moments import Moments
from aacp.estimate.synchronised_forward import Lockstep, run
from aacp.modules import evaluating
from aacp.torch_internals import BatchNorm

LIVE_ACTIVATIONS = 40  # at most so many times the bytes of its inputs a network holds at once (MobileNetV2: 20)


@dataclass(frozen=True)
class Recalibration:
    """What was done: how many batch norms were set, from how many images; and how many could not be."""

    norms: int
    images: int
    out_of_reach: int = 0  # operators of an exported graph, not modules: what they normalise by stays as it is

    def __str__(self) -> str:
        done = f"{self.norms} batch norms recalibrated on {self.images:,} images."
        if self.out_of_reach:
            kept = f"{self.out_of_reach} batch norms are operators of an exported graph and keep their statistics."
            return f"{done} {kept}" if self.norms else f"Nothing was recalibrated: {kept}"
        if not self.norms:
            return "This network has no batch norm with running statistics: there was nothing to recalibrate."
        return done


def recalibrate(model: nn.Module, data: Any, *, images: int | None = None) -> Recalibration:
    """Set the running mean and variance of every batch norm to those of its inputs over all of `data`.

    Population statistics; everything else, training mode included, stays as it is. If anything fails on the way, the
    old statistics are put back. The result says, in words too, if there was nothing to set or nothing that could be.
    """
    norms, out_of_reach = running_norms(model), _norm_operators(model)
    if not norms:
        return Recalibration(0, 0, out_of_reach)
    device = next(iter(norms.values())).running_mean.device  # type: ignore[union-attr]
    batches = Batches.of(data, images=images, device=device)
    with evaluating(model), restored_on_failure(list(norms.values())), torch.no_grad():
        reached = settle_statistics(model, norms, batches)
    return Recalibration(reached, batches.images, out_of_reach)


def settle_statistics(model: nn.Module, norms: dict[str, BatchNorm], batches: Batches) -> int:
    """Statistics of a network in evaluation mode; returns how many batch norms were reached.

    All batches together if the memory holds what they hold, otherwise norm by norm, in batches that are halved as
    often as the memory asks for it.
    """
    with suppress(torch.OutOfMemoryError):
        if _fits(batches):
            size = batches.images if has_untracked_norms(model) else max(map(batch_size_of, batches))
            return _side_by_side(model, norms, Batches.of(batches, batch_size=size, device=batches.device))
    torch.cuda.empty_cache()
    size = max(map(batch_size_of, batches))
    while True:
        try:
            return _norm_by_norm(model, norms, Batches.of(batches, batch_size=size, device=batches.device))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size //= 2


def _fits(batches: Batches) -> bool:
    """Whether it is worth trying: on a CPU, too much memory is not an error but the end of the process."""
    return batches.device.type != "cpu" or batches.bytes * LIVE_ACTIVATIONS <= free_memory()


def running_norms(model: nn.Module) -> dict[str, BatchNorm]:
    """The batch norms that keep running statistics, by name."""
    modules = model.named_modules()
    return {name: m for name, m in modules if isinstance(m, BatchNorm) and m.running_mean is not None}


def _norm_operators(model: nn.Module) -> int:
    """How many batch norms are calls of functions, in networks that torch.export or our exported form has made."""
    graphs = [module.graph for module in model.modules() if isinstance(module, fx.GraphModule)]
    calls = [str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"]
    return sum("batch_norm" in call for call in calls)


def has_untracked_norms(model: nn.Module) -> bool:
    """Whether there is a batch norm that always normalises by the batch at hand."""
    return any(isinstance(module, BatchNorm) and module.running_mean is None for module in model.modules())


@contextmanager
def restored_on_failure(norms: list[BatchNorm]) -> Iterator[None]:
    """Put running statistics back if the block raises."""
    before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms]  # type: ignore[union-attr]
    try:
        yield
    except BaseException:
        for norm, (mean, variance) in zip(norms, before, strict=True):
            norm.running_mean.copy_(mean)  # type: ignore[union-attr]
            norm.running_var.copy_(variance)  # type: ignore[union-attr]
        raise


def write(moments: Moments, name: str, norm: BatchNorm) -> None:
    """Make moments the running statistics of a batch norm."""
    moments.require_spread(name)
    if not bool((torch.isfinite(moments.mean) & torch.isfinite(moments.variance)).all()):
        raise InvalidData(
            f"What reaches batch norm {name or 'of the network'} is not finite. "
            "Look for NaN in the calibration images and in the weights."
        )
    norm.running_mean.copy_(moments.mean)  # type: ignore[union-attr]
    norm.running_var.copy_(moments.variance)  # type: ignore[union-attr]


def _side_by_side(model: nn.Module, norms: dict[str, BatchNorm], batches: Batches) -> int:
    """One pass: each batch norm takes the statistics of all batches before it normalises any of them.

    One that is called several times normalises each time by what it sees, and ends with the statistics of all.
    """
    seen: dict[str, Moments] = {}
    for name, moments in Lockstep(model, dict(norms), batches).meetings():
        write(moments, name, norms[name])
        seen[name] = seen[name].plus(moments) if name in seen else moments
    for name, moments in seen.items():
        write(moments, name, norms[name])
    return len(seen)


# -- where memory is short --------------------------------------------------------------------------------------------


class _Reached(BaseException):
    """The batch norm in question has its input: the rest of the pass is not needed (nor caught by the model's code)."""


def _norm_by_norm(model: nn.Module, norms: dict[str, BatchNorm], batches: Batches) -> int:
    """A pass for each batch norm, in the order they are reached, as far as that one."""
    if has_untracked_norms(model) and len(batches) > 1:
        raise InvalidData(
            "The calibration images do not fit into the memory as one batch, and this network has a batch norm without "
            "running statistics, which sees only one batch at a time. Give fewer calibration images."
        )
    order = _order(model, norms, batches)
    if len(set(order)) < len(order):
        raise InvalidData(
            "The calibration images do not fit into the memory as one batch, and this network uses a batch norm "
            "several times. Give fewer calibration images."
        )
    for name in order:
        _sum_over_batches(model, name, norms[name], batches)
    return len(order)


def _order(model: nn.Module, norms: dict[str, BatchNorm], batches: Batches) -> list[str]:
    """The batch norms as they are reached."""
    order: list[str] = []

    def hook(name: str, norm: BatchNorm) -> Any:
        return norm.register_forward_pre_hook(lambda *_: order.append(name))

    handles = [hook(name, norm) for name, norm in norms.items()]
    try:
        run(model, next(batches.inputs()))
    finally:
        for handle in handles:
            handle.remove()
    return order


def _sum_over_batches(model: nn.Module, name: str, norm: BatchNorm, batches: Batches) -> None:
    parts: list[Moments] = []

    def take(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        parts.append(Moments.of(arguments[0]))
        raise _Reached

    handle = norm.register_forward_pre_hook(take)
    try:
        for inputs in batches.inputs():
            with suppress(_Reached):
                run(model, inputs)
    finally:
        handle.remove()
    write(Moments.joined(parts), name, norm)
