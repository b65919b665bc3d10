"""Recalibration: every batch norm gets the exact statistics of what reaches it over all calibration images.

All images reach a batch norm before any of them passes it: it takes the statistics of its input over all images and
then normalises by them. So a deep batch norm sees what was normalised by the exact statistics of those before it,
however the images are split into batches. On a GPU all images are one batch, on a CPU small batches go in step. Where
memory is too small for that, or the images are streamed, each batch norm gets a pass of its own; the result is the
same. On a CPU that is necessary only for the first batch norms of a network, where activations are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from aacp.data.batches import Batches
from aacp.data.examples import batch_size_of, bytes_of, call
from aacp.data.layouts import computing_layout
from aacp.data.memory import free_memory
from aacp.data.moments import Moments
from aacp.errors import InvalidData, failing_as
from aacp.estimate.synchronised_forward import SynchronisedForward
from aacp.pytorch.internals import BatchNorm, LiveMemory, pytree
from aacp.pytorch.layout import laid_out
from aacp.pytorch.modules import evaluating, require_network, submodules
from aacp.user.values import counted

Norms = dict[str, BatchNorm]  # batch norms with running statistics, by name
BATCH_SIZE = 128  # images per forward pass on a CPU; fewer if they are large
LIVE_ACTIVATIONS = 40  # upper bound on live activations, as a multiple of the input bytes (MobileNetV2: 20)
MEMORY_SHARE = 0.5  # of the free memory: what batches that wait for each other take at most


@dataclass(frozen=True)
class Recalibration:
    """How many batch norms were recalibrated, and on how many images.

    Batch norms that are operators of an exported graph, not modules, keep their statistics: `out_of_reach` counts them.
    """

    norms: int
    images: int
    out_of_reach: int = 0

    def __str__(self) -> str:
        done = f"{counted(self.norms, 'batch norm')} recalibrated on {counted(self.images, 'image')}."
        if self.out_of_reach:
            verb = "keeps its" if self.out_of_reach == 1 else "keep their"
            kept = f"{counted(self.out_of_reach, 'batch norm')} of an exported graph {verb} statistics."
            return f"{done} {kept}" if self.norms else f"Nothing was recalibrated: {kept}"
        if not self.norms:
            return "This network has no batch norm with running statistics: there was nothing to recalibrate."
        return done


def recalibrate(model: nn.Module, data: Any, *, images: int | None = None) -> Recalibration:
    """Set the running mean and variance of every batch norm to those of its inputs over all of `data`.

    These are population statistics and do not depend on how the data is split into batches. Nothing else changes, not
    even the training mode. If anything fails, the old statistics are restored.

    Args:
        model: the network, changed in place.
        data: a loader, a data set, tensors or Batches.
        images: use only the first N images; None uses all.
    """
    require_network(model)
    norms = running_norms(model)
    out_of_reach = _norm_operators(model)
    if not norms:
        return Recalibration(0, 0, out_of_reach)
    device = next(iter(norms.values())).running_mean.device  # type: ignore[union-attr]
    batches = Batches.of(data, batch_size=BATCH_SIZE, images=images, device=device)
    with laid_out(model, computing_layout(model, batches)):
        reached = set_statistics(model, norms, batches)
    return Recalibration(reached, batches.images, out_of_reach)


def running_norms(model: nn.Module) -> Norms:
    """The batch norms that keep running statistics, by name."""
    modules = model.named_modules()
    return {name: m for name, m in modules if isinstance(m, BatchNorm) and m.running_mean is not None}


def _norm_operators(model: nn.Module) -> int:
    """The number of batch norms that are operators of graph modules, which torch.export and our exported form make."""
    graphs = [module.graph for module in submodules(model) if isinstance(module, fx.GraphModule)]
    calls = [str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"]
    return sum("batch_norm" in call for call in calls)


def _has_untracked_norms(model: nn.Module) -> bool:
    """Whether a batch norm has no running statistics and always normalises by those of the batch at hand."""
    return any(isinstance(module, BatchNorm) and module.running_mean is None for module in submodules(model))


@contextmanager
def _restored_on_failure(norms: Norms) -> Iterator[None]:
    """Restore the running statistics if the block raises."""
    before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms.values()]  # type: ignore[union-attr]
    try:
        yield
    except BaseException:
        for norm, (mean, variance) in zip(norms.values(), before, strict=True):
            norm.running_mean.copy_(mean)  # type: ignore[union-attr]
            norm.running_var.copy_(variance)  # type: ignore[union-attr]
        raise


def set_statistics(model: nn.Module, norms: Norms, batches: Batches) -> int:
    """Set the statistics of batch norms, or restore the old ones if that fails; returns how many were reached."""
    if not norms:
        return 0
    with evaluating(model), _restored_on_failure(norms), torch.no_grad():
        return _set_statistics(model, norms, batches)


def _set_statistics(model: nn.Module, norms: Norms, batches: Batches) -> int:
    """Set the statistics of a network in evaluation mode; returns the number of batch norms that were reached."""
    is_cpu = batches.device.type == "cpu"
    if _fits(batches):
        one_batch = not is_cpu or _has_untracked_norms(model)
        size = batches.images if one_batch else batches.fitting_size(BATCH_SIZE)
        with suppress(torch.OutOfMemoryError):
            return _in_one_pass(model, norms, Batches.of(batches, batch_size=size, device=batches.device))
    torch.cuda.empty_cache()
    size = batches.fitting_size(BATCH_SIZE if batches.is_streamed else max(map(batch_size_of, batches)))
    while True:
        try:
            return _norm_by_norm(model, norms, Batches.of(batches, batch_size=size, device=batches.device))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size //= 2


def _fits(batches: Batches) -> bool:
    """Whether one pass is worth trying: too little memory is an error on a GPU, but the end of the process on a CPU."""
    if batches.is_streamed:
        return False
    return batches.device.type != "cpu" or batches.input_bytes * LIVE_ACTIVATIONS <= free_memory()


def _in_one_pass(model: nn.Module, norms: Norms, batches: Batches) -> int:
    """One pass: each batch norm takes the statistics of its input over all batches, then normalises by them.

    A batch norm that is called several times normalises by what it sees in each call, and ends with the statistics of
    all calls together.
    """
    seen: dict[str, Moments] = {}

    # Paper: "post-statistics" of some batches. These are exact over all calibration images.
    def meet(name: str, moments: Moments) -> None:
        _write(moments, name, norms[name])
        seen[name] = seen[name].plus(moments) if name in seen else moments

    if len(batches) == 1:
        with _at_inputs(norms, lambda name, x: meet(name, Moments.of(x))):
            run_on_copy(model, next(batches.inputs()))
    else:
        in_step = SynchronisedForward(partial(run_on_copy, model), meet, batches)
        with _at_inputs(norms, in_step.arrive):
            in_step.run()
    for name, moments in seen.items():
        _write(moments, name, norms[name])
    return len(seen)


@contextmanager
def _at_inputs(norms: Norms, function: Callable[[str, torch.Tensor], None]) -> Iterator[None]:
    """Call a function with the name and the input of each batch norm before the batch norm is applied."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        return lambda _, arguments, named: function(name, arguments[0] if arguments else named["input"])

    with ExitStack() as hooks:
        for name, norm in norms.items():
            hooks.enter_context(norm.register_forward_pre_hook(hook(name), with_kwargs=True))
        yield


def _write(moments: Moments, name: str, norm: BatchNorm) -> None:
    """Make moments the running statistics of a batch norm."""
    moments.require_spread(name)
    if not bool((torch.isfinite(moments.mean) & torch.isfinite(moments.variance)).all()):
        raise InvalidData(
            f"The input of batch norm {name or 'of the network'} is not finite. "
            "Look for NaN in the calibration images and in the weights."
        )
    norm.running_mean.copy_(moments.mean)  # type: ignore[union-attr]
    norm.running_var.copy_(moments.variance)  # type: ignore[union-attr]


def run_on_copy(model: nn.Module, inputs: Any) -> Any:
    """The outputs of a network for a copy of its inputs, because its code may write into them."""
    what = f"{type(model).__name__} does not run on the calibration images"
    with failing_as(InvalidData, what, "Give images of the shape that it was made for."):
        return call(model, pytree.tree_map_only(torch.Tensor, torch.clone, inputs))


# -- where memory is short --------------------------------------------------------------------------------------------


class _Reached(BaseException):
    """Ends a pass at a batch norm; not an Exception, so that the model's code does not catch it."""


def _norm_by_norm(model: nn.Module, norms: Norms, batches: Batches) -> int:
    """One pass for each batch norm, in the order in which they are reached, until the rest can be done in one pass."""
    order, live = _order(model, norms, next(batches.inputs()))
    for problem, is_there in (
        ("has a batch norm without running statistics", _has_untracked_norms(model) and len(batches) > 1),
        ("uses a batch norm several times", len(set(order)) < len(order)),
    ):
        if is_there:
            raise InvalidData(
                "There is too little memory for one pass over all calibration images, and this network "
                f"{problem}. Give fewer calibration images."
            )
    alone = _count_alone(live, batches)
    for name in order[:alone]:
        _write(_moments_at(model, name, norms, batches), name, norms[name])
    rest = {name: norms[name] for name in order[alone:]}
    return alone + (_in_one_pass(model, rest, batches) if rest else 0)


def _order(model: nn.Module, norms: Norms, inputs: Any) -> tuple[list[str], list[int]]:
    """The names of the batch norms in the order in which they are reached, and the bytes that are alive at each."""
    order: list[str] = []
    live: list[int] = []
    memory = LiveMemory((*model.parameters(), *model.buffers()))

    def reach(name: str, _: torch.Tensor) -> None:
        order.append(name)
        live.append(memory.bytes() + bytes_of(inputs))

    with memory, _at_inputs(norms, reach):
        run_on_copy(model, inputs)
    return order, live


def _count_alone(live: list[int], batches: Batches) -> int:
    """How many of the first batch norms need a pass of their own: behind them, all batches fit into memory.

    Args:
        live: the bytes that the first batch keeps at each batch norm.
        batches: all batches.
    """
    if batches.device.type != "cpu":  # the memory of a GPU is tried, and here it was too small
        return len(live)
    room = MEMORY_SHARE * free_memory()
    too_large = [number for number, size in enumerate(live, 1) if size * len(batches) > room]
    return max(too_large, default=0)


def _moments_at(model: nn.Module, name: str, norms: Mapping[str, BatchNorm], batches: Batches) -> Moments:
    """The moments of the input of one batch norm over all batches."""
    parts: list[Moments] = []

    def take(_: str, x: torch.Tensor) -> None:
        parts.append(Moments.of(x))
        raise _Reached

    with _at_inputs({name: norms[name]}, take):
        for inputs in batches.inputs():
            with suppress(_Reached):
                run_on_copy(model, inputs)
    if len(parts) < len(batches):
        raise InvalidData(
            f"Only {len(parts)} of {len(batches)} batches reach batch norm {name}: they take different ways through "
            "the network. Give fewer calibration images, so that they form one batch."
        )
    return Moments.joined(parts)
