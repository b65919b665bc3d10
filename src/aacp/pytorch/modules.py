"""Functions for any torch module: its tensors, device, mode, arguments and hooks, and copies of it."""

from __future__ import annotations

import copy
import copyreg
import inspect
import threading
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from aacp.errors import InvalidOption, UntraceableModel, failing_as
from aacp.pytorch.internals import (
    ONE_THREAD,
    Norm,
    compiled_from,
    forward_hooks,
    has_hooks,
    is_compiled,
    own_buffers,
    own_parameters,
)

# Decorates functions that make or train networks: their caller may have turned gradients off.
with_gradients = torch.inference_mode(mode=False)  # which turns on what torch.no_grad turns off, too
WRAPPERS = (nn.DataParallel, DistributedDataParallel, AveragedModel)  # each holds a network as `module`


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and tensor attributes, each object once, with its first name."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for key, value in [*own_parameters(module).items(), *own_buffers(module).items(), *plain.items()]:
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield (f"{path}.{key}" if path else key), value


def submodules(model: nn.Module) -> list[nn.Module]:
    """All modules of a network, itself first; also where an attribute of the network is called `modules`."""
    return [module for _, module in model.named_modules()]


def has_norms(model: nn.Module) -> bool:
    """Whether a network normalises values between its layers: whether it has a batch norm, a layer norm or the like.

    Norms of other packages are known by the names of their classes. That of the network itself does not count, such as
    NormFreeNet, and a LocalResponseNorm hardly changes the size of values.
    """
    layers = [module for module in submodules(model)[1:] if not isinstance(module, nn.LocalResponseNorm)]
    return any(isinstance(module, Norm) or "norm" in type(module).__name__.lower() for module in layers)


def require_network(model: object, what: str = "The model") -> None:
    """Reject what is not a network with data in its tensors.

    A lazy module is rejected and not initialised: the network is the user's, and is not changed.
    """
    if isinstance(model, type):
        raise InvalidOption(f"{what} is the class {model.__name__}. Give a network of this class: {model.__name__}().")
    if not isinstance(model, nn.Module):
        raise InvalidOption(f"{what} is a {type(model).__name__}, not a torch.nn.Module. Give the network itself.")
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            which = f"{path} in the model" if path else what
            raise UntraceableModel(f"{which} is a TorchScript module. Give the torch.nn.Module that it was made from.")
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if nn.parameter.is_lazy(value):
            raise UntraceableModel(
                f"{what} has a {type(value).__name__} {name}, which has no shape yet. Run the network once on an "
                "input, then give it."
            )
        if value.is_meta:
            raise UntraceableModel(f"{what} has {name} on the meta device, without data. Load weights, then give it.")
        if value.is_inference():
            raise UntraceableModel(
                f"{what} was made in torch.inference_mode, so that nothing can be computed from {name} with gradients. "
                "Make the network outside of it."
            )


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside of the wrappers of torch, which compile, parallelise or average it."""
    while True:
        compiled = compiled_from(model)
        if compiled is not None:
            model = compiled
        elif isinstance(model, WRAPPERS):
            model = model.module
        else:
            return model


def device_of_model(model: nn.Module) -> torch.device:
    """The device of a network's first parameter; the CPU for a network without parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode; afterwards each module has the mode that it had before."""
    modes = [(module, module.training) for module in submodules(model)]
    with suppress(NotImplementedError):  # a module of torch.export has one mode
        model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def positional(model: nn.Module, example: Any) -> tuple[Any, ...]:
    """An example as positional arguments of a model: it is a tuple of them, a dictionary by name, or the only one."""
    if isinstance(example, tuple):
        return example
    if isinstance(example, dict) and all(isinstance(key, str) for key in example):
        try:
            bound = inspect.signature(model.forward).bind(**example)
        except TypeError:  # its keys are not names of arguments: the dictionary itself is the argument
            return (example,)
        if bound.kwargs:
            bound.apply_defaults()  # fills the gaps between the given ones
        if bound.kwargs:
            raise InvalidOption(
                f"The forward of {type(model).__name__} takes {', '.join(bound.kwargs)} by keyword only. "
                "Trace a module around it whose forward takes them by position and passes them on by keyword."
            )
        return bound.args
    return (example,)


def in_order(model: nn.Module, example: Any) -> Any:
    """An example whose inputs by name are in the order of the model's arguments; any other example as it is."""
    names = inspect.signature(model.forward).parameters
    if isinstance(example, dict) and example.keys() <= names.keys():
        return {name: example[name] for name in names if name in example}
    return example


def has_external_references(module: nn.Module) -> bool:
    """Whether a module has hooks or was compiled, which a copy would lose."""
    return has_hooks(module) or is_compiled(module)


def copy_module(model: nn.Module, replaced: Mapping[int, torch.Tensor] | None = None) -> nn.Module:
    """A deep copy; tensors whose id is in `replaced` are replaced by the tensors there."""
    memo: dict[int, Any] = dict(replaced or {})
    for module in submodules(model):
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and id(value) not in memo:
                memo[id(value)] = value.detach().clone()  # old-style weight_norm keeps tensors that cannot be copied
            elif type(value) is OrderedDict and not value:
                memo[id(value)] = OrderedDict()  # every module has ten for hooks, and deepcopy takes long for each
    what = f"{type(model).__name__} cannot be copied"
    with failing_as(UntraceableModel, what, "Remove attributes that cannot be copied."), _shared_objects():
        twin = copy.deepcopy(model, memo)
    for module in submodules(twin):
        for functions in (vars(module), *forward_hooks(module)):
            _rebind_closures(functions, memo)
    return twin


# Types of objects that deepcopy rejects and that a copy of a network can share: they hold no weights. Configurations
# hold modules (`config.backend = numpy`), loggers and data pipelines hold locks.
SHARED_TYPES = (types.ModuleType, type(threading.Lock()), type(threading.RLock()))


@contextmanager
def _shared_objects() -> Iterator[None]:
    """Let deepcopy return objects of some types themselves, in place of an error."""
    with ONE_THREAD:
        before = {kind: copyreg.dispatch_table.get(kind) for kind in SHARED_TYPES}
        copyreg.dispatch_table.update(dict.fromkeys(SHARED_TYPES, repr))  # deepcopy keeps what a text stands for
        try:
            yield
        finally:
            for kind, reduction in before.items():
                copyreg.dispatch_table.pop(kind)
                if reduction is not None:
                    copyreg.dispatch_table[kind] = reduction


def _rebind_closures(functions: MutableMapping[Any, Any], memo: Mapping[int, Any]) -> None:
    """Let the functions of a copy refer to what the copy holds: deepcopy does not copy functions."""
    for key, function in list(functions.items()):
        if isinstance(function, types.FunctionType):
            held = closure_of(function).items()
            parts = {name: item for name, item in held if isinstance(item, (nn.Module, torch.Tensor, dict, list, set))}
            copies = {name: memo[id(item)] for name, item in parts.items() if id(item) in memo}
            if copies:
                functions[key] = with_closure(function, copies)


def private_copy(model: nn.Module, device: torch.device | None = None) -> nn.Module:
    """A copy in evaluation mode, on a device if given, whose hooks no longer write to the caller's objects."""
    twin = copy_module(model).to(device).eval()
    _detach_hooks(twin)
    return twin


def _detach_hooks(model: nn.Module) -> None:
    """Let the hooks of a copy write to copies of the containers in their closures, not to the caller's."""
    for module in submodules(model):
        for hooks in forward_hooks(module):
            for key, function in list(hooks.items()):
                if isinstance(function, types.FunctionType):
                    held = closure_of(function).items()
                    own = {name: copy.copy(item) for name, item in held if isinstance(item, (dict, list, set))}
                    hooks[key] = with_closure(function, own) if own else function


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The variables in the closure of a function with their values (None for those without a value)."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: _contents(cell) for name, cell in cells}


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def with_closure(function: types.FunctionType, values: Mapping[str, Any]) -> types.FunctionType:
    """A copy of a function with other values for some variables in its closure."""
    cells = tuple(
        types.CellType(values[name]) if name in values else cell
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    return twin


def cuda_devices(model: nn.Module) -> list[int]:
    """The GPUs whose random state a run of the model could change."""
    return sorted({value.device.index or 0 for value in model.parameters() if value.device.type == "cuda"})


def seed_generators(model: nn.Module, seed: int) -> None:
    """Seed the generators that a run of the model could draw from; `torch.manual_seed` would seed every GPU."""
    torch.default_generator.manual_seed(seed)
    for index in cuda_devices(model):
        torch.cuda.default_generators[index].manual_seed(seed)
