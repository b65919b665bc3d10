"""Tracing without verification: from a network and an example to a channel graph that is not yet checked."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.data.examples import tensors_in
from aacp.errors import InvalidExample, NothingToPrune, UntraceableModel, first_line
from aacp.graph.assembly import Assembled, assemble
from aacp.graph.assigned import AssignedInForward, named_assignment
from aacp.graph.labels import Ids
from aacp.graph.program import Program, to_program
from aacp.graph.propagation import RECURRENT, UNCOUNTED, Propagation, TracedLayer
from aacp.graph.rules import RULES
from aacp.graph.sizes import TracedSize, resolve_sizes, with_widths_of_norms
from aacp.graph.tracked import TrackedRun, run_tracked
from aacp.pytorch.internals import convert, of_type, pytree
from aacp.pytorch.modules import device_of_model, positional, private_copy, submodules

FAST_PATH = "nn.MultiheadAttention is counted without its fast path, which torch's counter does not see"
MAX_PASSES = 3  # over the program, each with other choices for split dimensions


def trace_unverified(
    model: nn.Module, example: Any, form: str = "module", dtype: torch.dtype = torch.float32
) -> tuple[Propagation, Assembled, tuple[Any, ...]]:
    """What tracing finds before anything is verified.

    Args:
        model: the network; it is not changed.
        example: what to call it with.
        form: "module" or "exported", as for `trace`.
        dtype: the floating-point type in which the network and the example are analysed.

    Returns:
        The propagation, the assembled graph, and the example as positional arguments of this type.
    """
    if any(tensor.is_meta for tensor in tensors_in(example)):
        raise InvalidExample("The example is on the meta device and has no data. Give an input with data.")
    arguments = arguments_for(model, example)
    # One copy for each use: networks that keep caches are not the same after they have run.
    run = run_example(evaluation_copy(model), arguments)
    typed = converted(arguments, dtype)
    try:
        program = to_program(evaluation_copy(model, dtype), typed)
    except AssignedInForward as error:
        raise named_assignment(evaluation_copy(model), arguments) or error from error
    except UntraceableModel as error:
        _reject_several_types(model, dtype, error)
        raise
    propagation, assembled = analyse(program, run, model, form)
    return propagation, assembled, typed


def _reject_several_types(model: nn.Module, dtype: torch.dtype, error: UntraceableModel) -> None:
    """Name the types of the parameters if they are several: code that converts between them cannot be traced."""
    types = sorted({str(parameter.dtype) for parameter in model.parameters() if parameter.is_floating_point()})
    if len(types) > 1:
        raise UntraceableModel(
            f"{type(model).__name__} has parameters of the types {', '.join(types)}, but is traced in {dtype}, in "
            "which its code fails. Let it compute in one type before it is pruned."
        ) from error


def analyse(
    program: Program, run: TrackedRun | None, model: nn.Module, form: str, graph: ChannelGraph | None = None
) -> tuple[Propagation, Assembled]:
    """Propagate labels through a program and assemble the groups.

    Args:
        program: the network as operator calls.
        run: what a run of the network showed; without it, the costs and the sizes in the code are not looked at.
        model: the network itself.
        form: "module" or "exported", as for `trace`.
        graph: the graph of the network if it is known already, as for `propagate`.
    """
    propagation, sizes = propagate(program, run, form, graph)
    if run is not None:
        if form == "module":
            sizes = with_widths_of_norms(propagation, model, sizes)
        _compare_macs(propagation, run.macs)
        if any(isinstance(module, nn.MultiheadAttention) for module in submodules(model)):
            propagation.notes.append(FAST_PATH)
    if not any(layer.kind.startswith("conv") for layer in propagation.layers):
        raise NothingToPrune(
            f"{type(model).__name__} has no convolution between its inputs and its outputs. "
            "Channel pruning needs a convolutional network."
        )
    return propagation, assemble(propagation, model, sizes, form)


def propagate(
    program: Program, run: TrackedRun | None = None, form: str = "module", graph: ChannelGraph | None = None
) -> tuple[Propagation, list[TracedSize]]:
    """Propagate labels and find the numbers in modules that are sizes.

    If a later operator, or a size in the code, rejects how a dimension was split, start again with another split.

    Args:
        program: the network as operator calls.
        run: what a run of the network showed; without it, no sizes are found.
        form: "module" or "exported", as for `trace`; only a module has sizes.
        graph: the graph of the network if it is known already. Then channels of one unit are tied from the start, so
            that dimensions are split as in the graph.
    """
    excluded: dict[str, set[int]] = {}
    fused = run.fused if run is not None else ()
    known = {} if graph is None else units_of_weights(graph)
    for _ in range(MAX_PASSES):
        propagation = Propagation(program, fused, excluded_splits=excluded, known_units=known)
        propagation.run(RULES)
        sizes = resolve_sizes(propagation, run.calls) if run is not None and form == "module" else []
        if not propagation.rejected_splits:
            break
        for name, dim in propagation.rejected_splits.items():
            excluded.setdefault(name, set()).add(dim)
    return propagation, sizes


def units_of_weights(graph: ChannelGraph) -> dict[tuple[str, int], Ids]:
    """The unit of each index along the dimensions of weights that hold channels, by the weight's name and dimension."""
    lanes = [(tensor.name, dim, lane) for tensor in graph.tensors for dim, lane in enumerate(tensor.lanes)]
    return {(name, dim): graph.lanes[lane] for name, dim, lane in lanes if lane is not None}


def _compare_macs(p: Propagation, counted: int) -> None:
    """Compare our count with torch's, and account for the difference.

    Torch's counter ignores some fused attention kernels, and so do we. It counts inside operators that have no rule
    here: what enters those is frozen, so their cost is constant.
    """
    kinds = {UNCOUNTED}
    if sum(layer.macs for layer in p.layers if layer.kind not in (UNCOUNTED, "attention")) == counted:
        kinds.add("attention")  # inside torch's own attention module, which hides its calls from the recorder
    fused = sum(layer.macs for layer in p.layers if layer.kind in kinds)
    if fused:
        p.layers = [layer for layer in p.layers if layer.kind not in kinds]
        p.notes.append(f"{fused:,} MACs of fused attention are not counted, as by torch's counter on this device")
    ours = sum(layer.macs for layer in p.layers)
    products = sum(layer.macs for layer in p.layers if layer.kind == RECURRENT)
    if products and ours > counted:
        ours -= products
        p.layers = [layer for layer in p.layers if layer.kind != RECURRENT]
        p.notes.append("the MACs of recurrent layers are not counted, as by torch's counter on this device")
    if ours < counted:
        p.layers.append(TracedLayer("operators without a rule", "other", (), (), None, None, counted - ours, ()))
    elif ours > counted:
        p.notes.append(f"torch counts {counted:,} MACs, but aacp counts {ours:,}")


# -- the network and its example --------------------------------------------------------------------------------------


def evaluation_copy(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy in evaluation mode that shares nothing with the model, with all its numbers of one type if given."""
    twin = private_copy(model)
    if dtype is not None:
        convert(twin, dtype)
        for module in submodules(twin):
            for key, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    vars(module)[key] = of_type(value, dtype)
    return twin


def run_example(model: nn.Module, arguments: tuple[Any, ...]) -> TrackedRun:
    """Run a copy of the network once on the example, recording its torch calls; reject what does not run."""
    tensors = tensors_in(arguments)
    if not tensors or not all(tensor.numel() and torch.isfinite(tensor).all() for tensor in tensors):
        raise InvalidExample(
            "The example holds no tensor, or one that is empty or not finite. Give a batch of real inputs."
        )
    try:
        run = run_tracked(model, copy.deepcopy(arguments))
    except Exception as error:  # whatever the model's own code raises
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InvalidExample(
            f"{type(model).__name__} does not run on the example of shape {shapes}: {first_line(error)}. "
            "Give an example that the network accepts, with the batch as its first dimension; several inputs go in a "
            "tuple (on the command line, one --input for each)."
        ) from error
    outputs = tensors_in(run.output)
    if not outputs:
        raise InvalidExample(
            f"{type(model).__name__} returns no tensor on the example, alone or in a tuple, list or dictionary. Return "
            "tensors in one of these, or name the submodules to prune with parts= or --part."
        )
    if any(tensor.numel() and not torch.isfinite(tensor).any() for tensor in outputs):
        raise InvalidExample(
            f"{type(model).__name__} returns an output of which no value is finite on the example. Check the network's "
            "weights and the values of its inputs."
        )
    return run


def arguments_for(model: nn.Module, example: Any) -> tuple[Any, ...]:
    """An example as positional arguments of a model, on its device."""
    home = device_of_model(model)
    result: tuple[Any, ...] = pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(home), positional(model, example)
    )
    return result


def converted(arguments: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments with all floating-point tensors of one type."""

    def convert(leaf: Any) -> Any:
        return of_type(leaf.detach(), dtype) if isinstance(leaf, torch.Tensor) else leaf

    result: tuple[Any, ...] = pytree.tree_map(convert, arguments)
    return result
