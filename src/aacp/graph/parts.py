"""Parts: networks that torch.export cannot follow as a whole, such as detectors, traced part by part.

Each part is a submodule with its own channel graph. What enters and leaves a part keeps all its channels, so the code
between the parts runs as before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.elements import Activation, Layer, Member, Tensor
from aacp.channels.graph import ChannelGraph
from aacp.data.examples import tensors_in
from aacp.errors import InvalidExample, InvalidOption, NothingToPrune, UntraceableModel, failing_as
from aacp.graph.unverified import arguments_for, evaluation_copy, trace_unverified, units_of_weights
from aacp.pytorch.internals import Convolution, pytree
from aacp.pytorch.modules import named_tensors, submodules
from aacp.user.options import nearest

TracePart = Callable[[nn.Module, tuple[Any, ...]], ChannelGraph]  # a submodule and its arguments -> its graph


# -- what a run of the whole network shows ----------------------------------------------------------------------------


@dataclass
class Calls:
    """The calls of one submodule in a run of the whole network."""

    given: list[tuple[Any, ...]] = field(default_factory=list)  # the arguments of each call, in order
    callers: set[str] = field(default_factory=set)  # for each call, the innermost submodule that was running

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the first call."""
        return self.given[0]


def record_calls(model: nn.Module, example: Any) -> dict[str, Calls]:
    """The calls of every submodule while a copy of the network runs on the example."""
    twin = evaluation_copy(model)
    found: dict[str, Calls] = {}
    running: list[str] = []

    def before(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            calls = found.setdefault(name, Calls())
            calls.callers.add(running[-1] if running else "")
            calls.given.append(_positional(module, arguments, named))
            running.append(name)

        return hook

    def after(*_: Any) -> None:
        running.pop()

    for name, module in twin.named_modules():
        if name:
            module.register_forward_pre_hook(before(name), with_kwargs=True)
            module.register_forward_hook(after)
    what = f"{type(model).__name__} does not run on the example"
    remedy = (
        "Give an example that the network accepts; several inputs go in a tuple (on the command line, one --input for "
        "each)."
    )
    with torch.no_grad(), failing_as(InvalidExample, what, remedy):
        twin(*arguments_for(twin, example))
    return found


def _positional(module: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call by position; () if one of them can only be given by name."""
    if not named:
        return arguments
    bound = inspect.signature(module.forward).bind(*arguments, **named)
    bound.apply_defaults()
    return () if bound.kwargs else bound.args


# -- which parts ------------------------------------------------------------------------------------------------------


def trace_named(model: nn.Module, example: Any, parts: Sequence[str], trace_part: TracePart) -> ChannelGraph:
    """The graph of the parts that the user names."""
    calls = record_calls(model, example)
    known = dict(model.named_modules())
    first = {module: path for path, module in known.items()}
    aliases = {path: first[module] for path, module in model.named_modules(remove_duplicate=False)}
    for path in parts:
        if path not in known and path in aliases:
            raise InvalidOption(
                f"The part {path!r} of {type(model).__name__} is the same module as {aliases[path]!r}. Give that name."
            )
        if path not in known or not path:
            near = nearest(path, filter(None, known))
            children = ", ".join(name for name, _ in model.named_children())
            instead = (
                f"Give {near}, or another of its parts." if near else f"Its parts are {children}, or inside these."
            )
            raise InvalidOption(f"{type(model).__name__} has no part {path!r}. {instead}")
        others = [other for other in parts if other != path and f"{path}.".startswith(f"{other}.")]
        if others or parts.count(path) > 1:
            raise InvalidOption(f"The part {path!r} is given twice, or lies in another part. Give each part once.")
        if path not in calls or not calls[path].arguments:
            raise InvalidOption(
                f"{type(model).__name__} does not call its part {path!r} with positional arguments when it runs on the "
                "example. Give parts that it calls."
            )
    return _joined(model, calls, {path: trace_part(known[path], calls[path].arguments) for path in parts})


def trace_found(model: nn.Module, example: Any, trace_part: TracePart) -> ChannelGraph | None:
    """The graph of the largest parts that can be traced; None if there is none."""
    calls = record_calls(model, example)
    graphs = dict(_found(model, calls, trace_part))
    return _joined(model, calls, graphs) if graphs else None


def _found(
    module: nn.Module, calls: Mapping[str, Calls], trace_part: TracePart, path: str = ""
) -> Iterator[tuple[str, ChannelGraph]]:
    """Submodules with convolutions, from the outside to the inside; a part that can be traced is not divided."""
    for key, child in module.named_children():
        name = f"{path}.{key}" if path else key
        if not any(isinstance(inner, Convolution) for inner in submodules(child)):
            continue
        called = calls.get(name)
        if called is not None and tensors_in(called.arguments):
            try:
                yield name, trace_part(child, called.arguments)
                continue
            except NothingToPrune:
                continue
            except (UntraceableModel, InvalidExample):
                pass  # a smaller part may be traceable
        yield from _found(child, calls, trace_part, name)


# -- one graph of all parts -------------------------------------------------------------------------------------------


def part_units(graph: ChannelGraph, part: str) -> NDArray[np.bool_]:
    """A mask over the units of a graph: those that belong to a part."""
    inside = np.array([group.name.startswith(f"{part}.") for group in graph.groups], dtype=bool)
    mask: NDArray[np.bool_] = inside[graph.unit_groups]
    return mask


def _joined(model: nn.Module, calls: Mapping[str, Calls], graphs: Mapping[str, ChannelGraph]) -> ChannelGraph:
    """The graphs of the parts as one graph of the whole network, with its other tensors as constants."""
    whole = ChannelGraph(type(model).__name__, (), (), (), (), notes=(_note(model, graphs),))
    for path, graph in graphs.items():
        whole = _appended(whole, path, _with_later_calls(graph, model.get_submodule(path), calls[path]))
    traced = {tensor.name for tensor in whole.tensors}
    others = [
        Tensor(name, tuple(value.shape), (None,) * value.dim(), isinstance(value, nn.Parameter), value.element_size())
        for name, value in named_tensors(model)
        if name not in traced
    ]
    whole = replace(whole, tensors=(*whole.tensors, *others), parts=tuple(graphs))
    return _by_first_names(whole.freeze(dict(_used_elsewhere(model, calls, whole))), _owners(model))


def _by_first_names(graph: ChannelGraph, owners: Mapping[str, list[str]]) -> ChannelGraph:
    """The graph with each tensor once, by the first of its names in the network, which is not always in the part.

    Tensors with several names lie in frozen groups, or are one module with several names: their lanes are the same.
    """

    def first(name: str) -> str:
        return owners.get(name, [name])[0]

    tensors: dict[str, Tensor] = {}
    for tensor in graph.tensors:
        tensors.setdefault(first(tensor.name), replace(tensor, name=first(tensor.name)))
    groups = (
        replace(group, members=tuple(Member(first(member.tensor), member.dim) for member in group.members))
        for group in graph.groups
    )
    return replace(graph, groups=tuple(groups), tensors=tuple(tensors.values()))


def _appended(whole: ChannelGraph, path: str, graph: ChannelGraph) -> ChannelGraph:
    """A graph with the graph of one more part: its names get the path, its units and lanes the next numbers."""
    units = len(whole.unit_groups)
    first = len(whole.lanes)
    layers, activations = _after(whole, graph)

    def inside(name: str) -> str:
        return f"{path}.{name}" if name else path

    groups = [
        replace(
            group,
            name=f"{path}.{group.name}",
            members=tuple(Member(f"{path}.{member.tensor}", member.dim) for member in group.members),
        )
        for group in graph.groups
    ]
    tensors = [
        replace(
            tensor,
            name=f"{path}.{tensor.name}",
            lanes=tuple(None if lane is None else lane + first for lane in tensor.lanes),
        )
        for tensor in graph.tensors
    ]
    sizes = [replace(size, module=inside(size.module), lane=size.lane + first) for size in graph.sizes]
    return replace(
        whole,
        groups=(*whole.groups, *groups),
        lanes=(*whole.lanes, *(np.where(axis >= 0, axis + units, axis) for axis in graph.lanes)),
        layers=(*whole.layers, *(replace(layer, name=inside(layer.name)) for layer in layers)),
        tensors=(*whole.tensors, *tensors),
        sizes=(*whole.sizes, *sizes),
        activations=(*whole.activations, *activations),
        notes=(*whole.notes, *(f"{path}: {note}" for note in graph.notes)),
    )


def _after(first: ChannelGraph, second: ChannelGraph) -> tuple[list[Layer], list[Activation]]:
    """The layers and activations of a graph, numbered as if they came after those of another."""
    start = len(first.lanes)
    step = max((activation.dies for activation in first.activations), default=-1) + 1

    def lanes(numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(number + start for number in numbers)

    layers = [
        replace(
            layer,
            input=None if layer.input is None else layer.input + start,
            output=None if layer.output is None else layer.output + start,
            macs_lanes=lanes(layer.macs_lanes),
        )
        for layer in second.layers
    ]
    activations = [
        replace(item, lanes=lanes(item.lanes), born=item.born + step, dies=item.dies + step)
        for item in second.activations
    ]
    return layers, activations


def _with_later_calls(graph: ChannelGraph, part: nn.Module, calls: Calls) -> ChannelGraph:
    """The graph of a part with the layers and activations of its later calls, whose inputs may have other sizes."""
    known: dict[str, ChannelGraph | None] = {_shown(calls.arguments): graph}
    whole = graph
    uncounted = 0
    for arguments in calls.given[1:]:
        inputs = _shown(arguments)
        if inputs not in known:
            known[inputs] = _graph_of_call(part, arguments, graph)
        again = known[inputs]
        if again is None:
            uncounted += 1
            continue
        layers, activations = _after(whole, again)
        whole = replace(
            whole,
            lanes=(*whole.lanes, *again.lanes),
            layers=(*whole.layers, *layers),
            activations=(*whole.activations, *activations),
        )
    note = f"{uncounted} of its {len(calls.given)} calls cannot be traced, and their MACs are not counted"
    return replace(whole, notes=(*whole.notes, note)) if uncounted else whole


def _shown(arguments: tuple[Any, ...]) -> str:
    """The arguments of a call with shapes in place of tensors."""
    return str(pytree.tree_map_only(torch.Tensor, lambda tensor: tuple(tensor.shape), arguments))


def _graph_of_call(part: nn.Module, arguments: tuple[Any, ...], graph: ChannelGraph) -> ChannelGraph | None:
    """The graph of a part that is called with other arguments; None unless it has the units of the known graph."""
    try:
        found = trace_unverified(part, arguments)[1].graph
    except UntraceableModel:
        return None
    units = units_of_weights(graph)
    is_same = len(found.unit_groups) == len(graph.unit_groups) and all(
        place in units and np.array_equal(units[place], numbers) for place, numbers in units_of_weights(found).items()
    )
    return found if is_same else None


def _note(model: nn.Module, graphs: Mapping[str, ChannelGraph]) -> str:
    """What is pruned and counted, for people."""
    further = ". What passes between them keeps all channels: layers in one common submodule can be cut further"
    return (
        f"only these parts of {type(model).__name__} are pruned, and only their MACs and activations are counted: "
        f"{', '.join(graphs)}{further if len(graphs) > 1 else ''}"
    )


def _used_elsewhere(model: nn.Module, calls: Mapping[str, Calls], whole: ChannelGraph) -> Iterator[tuple[str, str]]:
    """Groups that must stay because code outside of their part uses their layers or tensors, with the reason."""
    owners = _owners(model)
    inside = {part: _prefixes(model, part, whole.parts) for part in whole.parts}
    for group in whole.groups:
        part = next(path for path in whole.parts if group.name.startswith(f"{path}."))
        entries = [name for name, called in calls.items() if _is_entered(name, part, called)]
        for member in group.members:
            outside = [name for name in owners.get(member.tensor, ()) if not name.startswith(inside[part])]
            entered = [name for name in entries if f"{member.module}.".startswith(f"{name}.")]
            if outside:
                yield group.name, f"{member.tensor} is also {outside[0]}, outside of the part {part}"
            elif entered:
                yield group.name, f"{entered[0]} is also called from outside of the part {part}"


def _prefixes(model: nn.Module, part: str, parts: Sequence[str]) -> tuple[str, ...]:
    """How the names of what is inside of a part begin, by each name of the part that lies in no other part."""
    module = model.get_submodule(part)
    paths = [path for path, other in model.named_modules(remove_duplicate=False) if other is module]
    others = tuple(f"{other}." for other in parts if other != part)
    return tuple(f"{path}." for path in paths if not f"{path}.".startswith(others))


def _is_entered(name: str, part: str, called: Calls) -> bool:
    """Whether a submodule inside a part is called by code that is not in the part."""
    is_inside = name.startswith(f"{part}.")
    return is_inside and any(not f"{caller}.".startswith(f"{part}.") for caller in called.callers)


def _owners(model: nn.Module) -> dict[str, list[str]]:
    """All names of each tensor that has several, by each of its names."""
    names: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for key, value in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            names.setdefault(id(value), []).append(f"{path}.{key}" if path else key)
    return {name: several for several in names.values() if len(several) > 1 for name in several}
