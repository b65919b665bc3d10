"""The parts of torch that are private or undocumented, all in this one module.

If a new version of torch breaks something here, only this file has to change. No other module may use a name of torch
that begins with an underscore, or depend on the text of one of torch's messages; a test checks that.
"""

from __future__ import annotations

import io
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

pytree = _pytree  # functions for nested tuples, lists and dictionaries of tensors

# -- layers: the classes that the layers of one, two and three dimensions have in common ------------------------------

BatchNorm = nn.modules.batchnorm._BatchNorm
Norm = nn.modules.batchnorm._NormBase  # batch norms and instance norms
Convolution = nn.modules.conv._ConvNd  # transposed ones too
TransposedConvolution = nn.modules.conv._ConvTransposeNd

# -- modules ----------------------------------------------------------------------------------------------------------


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The parameters of a module itself, without its children; writing to the dictionary changes the module."""
    return module._parameters


def own_buffers(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """The buffers of a module itself, without its children; writing to the dictionary changes the module."""
    return module._buffers


def convert(module: nn.Module, dtype: torch.dtype) -> None:
    """Give all numbers of a module a type, in place, and complex ones the complex type of that precision.

    `module.to(dtype)` makes complex numbers real. The weights of recurrent layers on GPUs must be converted by the
    method of those layers, which both use.
    """
    module._apply(lambda tensor: of_type(tensor, dtype))  # type: ignore[no-untyped-call]


def of_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with numbers of a type; whole numbers and truth values stay as they are."""
    if tensor.is_complex():
        return tensor.to(dtype.to_complex())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def forward_hooks(module: nn.Module) -> tuple[dict[int, Any], dict[int, Any]]:
    """The hooks that run after and before the forward of a module; writing to the dictionaries changes the module."""
    return module._forward_hooks, module._forward_pre_hooks


def has_hooks(module: nn.Module) -> bool:
    """Whether a hook is registered on a module or on one of its own parameters."""
    hooks: list[Mapping[int, Any] | None] = [*forward_hooks(module), module._backward_hooks, module._backward_pre_hooks]
    for parameter in module.parameters(recurse=False):
        hooks.append(parameter._backward_hooks)
        hooks.append(getattr(parameter, "_post_accumulate_grad_hooks", None))  # unset until the first is registered
    return any(hooks)


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile was applied to a module; a copy of it would have to be compiled again."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def compiled_from(module: nn.Module) -> nn.Module | None:
    """The module that torch.compile was called with, or None if the module is not the result of such a call."""
    found = vars(module).get("_modules", {}).get("_orig_mod")
    return found if isinstance(found, nn.Module) else None


# -- operators and exported programs ----------------------------------------------------------------------------------


def is_operator(target: Any) -> bool:
    """Whether the target of a node is an operator of torch, not a Python function."""
    return isinstance(target, torch._ops.OpOverload)


def operator_name(target: Any) -> str:
    """The name of an operator with its namespace but without its overload: "aten::relu_"."""
    return str(target._schema.name)


def operator_arguments(target: Any) -> list[tuple[str, Any]]:
    """The names of the arguments of an operator with their defaults (None where there is none), in order."""
    return [(argument.name, argument.default_value) for argument in target._schema.arguments]


def is_mutable(target: Any) -> bool:
    """Whether the target of a node is an operator that writes to one of its arguments."""
    return is_operator(target) and bool(target._schema.is_mutable)


def calling_module(node: fx.Node) -> str:
    """The path of the module whose code made a call of an exported program."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return re.sub(r"@\d+", "", stack[-1][0]) if stack else ""  # the exporter numbers repeated calls: "block@1"


def is_wrapped_block(node: fx.Node) -> bool:
    """Whether a node stands for a block of code under `with torch.autocast(...)` or `with torch.no_grad()`."""
    return node.op == "call_function" and "wrap_with" in str(node.target)


def assigns_data(node: fx.Node) -> bool:
    """Whether a node of an exported program is a trace of `tensor.data = ...`, which the program itself leaves out."""
    return is_operator(node.target) and operator_name(node.target) == "aten::_has_compatible_shallow_copy_type"


def change_count(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; views of one storage count together."""
    return tensor._version


def storage_number(value: torch.Tensor) -> int:
    """A number that two tensors without data share if and only if they share their memory."""
    return int(value.untyped_storage()._cdata)


@dataclass(frozen=True)
class Placeholder:
    """What a placeholder of an exported program stands for: exactly one of the three.

    It is a tensor of the caller (`is_input`), another argument of the caller (`is_setting`, with its `value`), or a
    tensor that the program owns (`target`: the name of a parameter, a buffer or a constant).
    """

    name: str
    is_input: bool = False
    is_setting: bool = False
    value: Any = None
    target: str = ""


def placeholders(program: ExportedProgram) -> Iterator[Placeholder]:
    """What each placeholder of an exported program stands for, in order."""
    for spec in program.graph_signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if isinstance(spec.arg, ConstantArgument):
            yield Placeholder(name, is_setting=True, value=spec.arg.value)
        elif spec.kind == InputKind.USER_INPUT:
            yield Placeholder(name, is_input=True)
        else:
            yield Placeholder(name, target=str(spec.target))


# -- many tensors at once ---------------------------------------------------------------------------------------------


def copy_each(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy each source to its target, in few kernels."""
    torch._foreach_copy_(targets, sources)


def interpolate_each(targets: list[torch.Tensor], ends: list[torch.Tensor], weight: float) -> None:
    """Move each target by the share `weight` of its way towards its end, in few kernels."""
    torch._foreach_lerp_(targets, ends, weight)


# -- the text of warnings and errors ----------------------------------------------------------------------------------

EXPORT_LOGGER = "torch.fx.experimental.symbolic_shapes"  # reports where an export failed, beside the exception
ONNX_LOGGER = "torch.onnx"
NATIVE_LOG_SWITCH = "_jit_set_onnx_log_enabled"
TracerWarning: type[Warning] = torch.jit.TracerWarning  # type: ignore[attr-defined]  # a trace fixes a value of a tensor


# Held while something that all threads share is changed: exporters replace functions of torch, and two at once fail.
ONE_THREAD = threading.RLock()


@contextmanager
def quiet_export() -> Iterator[None]:
    """Let one thread at a time export, and hide what exporters print besides exceptions.

    They print warnings, the program up to the call that failed, and the names of optional packages.
    """
    with (
        ONE_THREAD,
        _without_native_log(),
        _silent(EXPORT_LOGGER),
        _silent(ONNX_LOGGER),
        redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _without_native_log() -> Iterator[None]:
    """Leave the log of torch's older ONNX exporter as it is.

    The exporter turns it on and never off. It prints the whole program to the standard output from C++, where Python
    cannot redirect it, and so into what `--json` prints.
    """
    enable = getattr(torch._C, NATIVE_LOG_SWITCH, None)  # later versions of torch may not have the older exporter
    if enable is not None:
        setattr(torch._C, NATIVE_LOG_SWITCH, lambda _enabled: None)
    try:
        yield
    finally:
        if enable is not None:
            setattr(torch._C, NATIVE_LOG_SWITCH, enable)


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Hide the warnings of a logger."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def lean_export() -> Iterator[None]:
    """Let torch.export leave out what aacp does not read: the lines of code of each call, and compiled programs."""
    lines_of_code = vars(fx.config).get("do_not_emit_stack_traces")  # older versions of torch do not have it
    if lines_of_code is not None:
        fx.config.do_not_emit_stack_traces = True
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        if lines_of_code is not None:
            fx.config.do_not_emit_stack_traces = lines_of_code


STRIDES_WARNING = "Grad strides do not match bucket view strides"  # a warning of DistributedDataParallel


def is_synchronisation(warning: warnings.WarningMessage) -> bool:
    """Whether a warning reports that the host waited for the device (torch.cuda.set_sync_debug_mode)."""
    return "called a synchronizing CUDA operation" in str(warning.message)


def is_lost_connection(error: BaseException) -> bool:
    """Whether an error reports that a rank of a process group cannot be reached."""
    signs = ("gloo", "Gloo", "NCCL", "Connection closed", "Connection reset")
    return any(sign in str(error) for sign in signs)


WITHOUT_GRADIENT = re.compile(r"Parameter indices which did not receive grad for rank \d+:([\d ]+)")


def places_without_gradient(error: BaseException) -> list[int]:
    """The places of parameters for which DistributedDataParallel waited in vain, among those that need gradients."""
    found = WITHOUT_GRADIENT.search(str(error))
    return [] if found is None else [int(place) for place in found.group(1).split()]


def is_assigned_in_forward(error: BaseException) -> bool:
    """Whether an error of the exporter reports that the forward assigned a tensor to an attribute or to `.data`."""
    return "fake tensor in the exported program" in str(error)


RAISED_IN = re.compile(r'The following call raised this error:\s+File "(.+?)", line (\d+), in (\w+)')


def line_that_failed(error: BaseException) -> str | None:
    """Where in the code of a network an export failed: "forward, line 12 of network.py"; None if torch does not say."""
    found = RAISED_IN.search(str(error))
    return f"{found[3]}, line {found[2]} of {Path(found[1]).name}" if found else None


# -- watching operators -----------------------------------------------------------------------------------------------


class RecordedWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the context lasts, calls a function for every operator that writes to a tensor.

    Args:
        on_write: called after the operator, with its name ("normal_"), the tensor, and its numbers, such as mean and
            standard deviation.
    """

    def __init__(self, on_write: Callable[[str, torch.Tensor, list[float]], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.on_write = on_write

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_mutable(func) and args and isinstance(args[0], torch.Tensor):
            numbers = [float(value) for value in args[1:] if isinstance(value, (int, float))]
            self.on_write(operator_name(func).rpartition("::")[2], args[0], numbers)
        return result


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the context lasts, keeps account of the memory of what operators return.

    Args:
        ignored: tensors whose memory does not count even if operators return views of them, such as parameters.
    """

    def __init__(self, ignored: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ignored = {storage_number(tensor) for tensor in ignored}
        self._sizes: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            has_storage = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided  # a sparse one has none
            if has_storage and storage_number(tensor) not in self._ignored:
                storage = tensor.untyped_storage()
                self._sizes[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        return result

    def bytes(self) -> int:
        """The memory of all that is still alive."""
        self._sizes = {
            storage: size
            for storage, size in self._sizes.items()
            if not storage.expired()  # type: ignore[no-untyped-call]
        }
        return sum(self._sizes.values())
