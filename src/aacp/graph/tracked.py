"""Tracked: integers that remember which attributes of which modules they were computed from.

A network's code may hold sizes as numbers: `self.width`, `self.split_sizes`, a variable in the closure of a lambda.
Before a cut network can run, the numbers that depend on a cut dimension must change. To find them, the network is run
once with every integer in its modules replaced by a `Tracked` one, and every torch call is recorded with its integers.
"""

from __future__ import annotations

import copy
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from aacp.pytorch.modules import closure_of, with_closure


@dataclass(frozen=True)
class Source:
    """The place of a number: a module and a path inside it, as in `HardCodedSize`."""

    module: str
    path: tuple[str | int, ...]


SHAPE = Source("", ("shape",))  # the source of all numbers read off a tensor's shape: they need no adjustment


# Called with each tracked number that the code of a network turns into a plain one by `int(number)`.
_on_cast: ContextVar[Callable[[Tracked], None] | None] = ContextVar("on_cast", default=None)


class Tracked(int):
    """An integer, the sources that it was computed from, and the computation."""

    sources: Mapping[Source, int]  # each source with the value that it had
    compute: Callable[[Mapping[Source, int]], int]  # the integer that other values of the sources would give

    @classmethod
    def at(cls, value: int, source: Source) -> Tracked:
        """An integer that was read from a source."""
        return cls._make(value, {source: value}, lambda values: values.get(source, value))

    @classmethod
    def _make(
        cls, value: int, sources: Mapping[Source, int], compute: Callable[[Mapping[Source, int]], int]
    ) -> Tracked:
        self = cls(value)
        self.sources = sources
        self.compute = compute
        return self

    def __int__(self) -> int:
        """Return a plain integer, since Python allows nothing else, and report that its sources are lost."""
        report = _on_cast.get()
        if report is not None:
            report(self)
        return _untracked(self)  # type: ignore[no-any-return]


def _arithmetic(function: Callable[[int, int], int], reflected: bool) -> Callable[[Tracked, Any], Any]:
    """The method of `Tracked` for an operator such as +, or for its reflected form (`2 + tracked`)."""

    def method(self: Tracked, other: Any) -> Any:
        value = function(*map(_untracked, (other, self) if reflected else (self, other)))
        if type(value) is not int:
            return value  # a float or NotImplemented, which are not tracked
        sources = {**self.sources, **(other.sources if isinstance(other, Tracked) else {})}

        def compute(values: Mapping[Source, int]) -> int:
            mine = self.compute(values)
            theirs = other.compute(values) if isinstance(other, Tracked) else other
            return function(theirs, mine) if reflected else function(mine, theirs)

        return Tracked._make(value, sources, compute)

    return method


for _name, _function in {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}.items():
    setattr(Tracked, f"__{_name}__", _arithmetic(_function, reflected=False))
    setattr(Tracked, f"__r{_name}__", _arithmetic(_function, reflected=True))
Tracked.__neg__ = lambda self: 0 - self  # type: ignore[method-assign]


def _untracked(value: Any) -> Any:
    return int.__int__(value) if isinstance(value, Tracked) else value


@dataclass
class TorchCall:
    """One torch call: the module whose code made it, its function, and the integers among its arguments, in order."""

    module: str
    function: str
    numbers: list[int]


@dataclass
class CallRecorder(TorchFunctionMode):
    """Records every torch call with its integers, and tracks integers that are read off tensor shapes.

    A plain integer that equals a tracked one which the same module has cast by `int` is taken for that one.
    """

    counter: FlopCounterMode
    calls: list[TorchCall] = field(default_factory=list)
    fused: list[bool] = field(default_factory=list)  # for each attention: whether the counter ignored it
    stack: list[str] = field(default_factory=lambda: [""])  # the paths of the modules that are running
    casts: dict[tuple[str, int], Tracked] = field(default_factory=dict)  # by the module that cast it, and its value

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        numbers = [self._before_cast(number) for number in whole_numbers((args, kwargs))]
        if numbers:
            self.calls.append(TorchCall(self.stack[-1], getattr(func, "__name__", ""), numbers))
        is_attention = func is nn.functional.scaled_dot_product_attention
        before = self.counter.get_total_flops() if is_attention else 0
        result = func(*_plain(args), **_plain(kwargs))
        if is_attention:
            self.fused.append(self.counter.get_total_flops() == before)
        if isinstance(result, torch.Size):
            return torch.Size([Tracked.at(size, SHAPE) for size in result])
        if type(result) is int and func is torch.Tensor.size:
            return Tracked.at(result, SHAPE)
        return result

    def _before_cast(self, number: int) -> int:
        if isinstance(number, Tracked):
            return number
        return self.casts.get((self.stack[-1], number), number)

    @contextmanager
    def watching_casts(self) -> Iterator[None]:
        """Keep the tracked numbers that are cast by `int`."""

        def keep(number: Tracked) -> None:
            self.casts[self.stack[-1], _untracked(number)] = number

        token = _on_cast.set(keep)
        try:
            yield
        finally:
            _on_cast.reset(token)


def whole_numbers(value: Any) -> Iterator[int]:
    """All integers in nested arguments, in order."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from whole_numbers(item)
    elif isinstance(value, dict):
        yield from whole_numbers(list(value.values()))
    elif isinstance(value, slice):
        yield from whole_numbers([value.start, value.stop, value.step])


def _plain(value: Any) -> Any:
    """Nested arguments with plain integers in place of tracked ones."""
    if type(value) in (tuple, list):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, torch.Size):
        return torch.Size(_plain(list(value)))
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(_plain(value.start), _plain(value.stop), _plain(value.step))
    return _untracked(value)


@dataclass(frozen=True)
class TrackedRun:
    """The observations of one run of a network."""

    output: Any
    calls: list[TorchCall]
    fused: list[bool]  # for each attention in order: whether torch's counter ignored its kernel
    macs: int  # as torch counts them


def run_tracked(model: nn.Module, arguments: tuple[Any, ...]) -> TrackedRun:
    """Run the model once and record its torch calls; its attributes are restored afterwards."""
    counter = FlopCounterMode(display=False)
    recorder = CallRecorder(counter)
    watching = _tracked_numbers(model), _module_stack(model, recorder.stack), recorder.watching_casts()
    with ExitStack() as contexts:
        for context in (*watching, torch.no_grad(), counter, recorder):
            contexts.enter_context(context)
        output = model(*arguments)
    return TrackedRun(output, recorder.calls, recorder.fused, int(counter.get_total_flops()) // 2)


@contextmanager
def _tracked_numbers(model: nn.Module) -> Iterator[None]:
    """Replace every integer in the attributes of the modules by a tracked one, then restore them."""
    replaced: list[tuple[nn.Module, str, Any]] = []
    try:
        for path, module in model.named_modules():
            for key, value in list(vars(module).items()):
                tracked = None if key in _BOOKKEEPING else _track(value, Source(path, (key,)))
                if tracked is not None:
                    replaced.append((module, key, value))
                    vars(module)[key] = tracked
        yield
    finally:
        for module, key, value in replaced:
            vars(module)[key] = value


_BOOKKEEPING = frozenset(vars(nn.Module()))  # attributes that every module has: they hold no sizes


def _track(value: Any, source: Source, depth: int = 0) -> Any:
    """The same value with tracked integers; None if it holds no integers."""

    def inner(key: str | int, item: Any) -> Any:
        return _track(item, Source(source.module, (*source.path, key)), depth + 1)

    if type(value) is int:
        return Tracked.at(value, source)
    if type(value) in (tuple, list):
        return _replaced(dict(enumerate(value)), inner, lambda items: type(value)(items.values()))
    if type(value) is dict:
        return _replaced(value, inner, lambda items: items)
    if type(value) is types.FunctionType and value.__closure__:
        closed = {name: item for name, item in closure_of(value).items() if type(item) is int}
        path = Source(source.module, (*source.path, CLOSURE))
        numbers = {name: Tracked.at(item, Source(path.module, (*path.path, name))) for name, item in closed.items()}
        return with_closure(value, numbers) if numbers else None
    if depth == 0 and is_settings(value):
        return _replaced(vars(value), inner, lambda items: with_fields(value, items))
    return None


def _replaced(
    items: Mapping[Any, Any], track: Callable[[Any, Any], Any], build: Callable[[dict[Any, Any]], Any]
) -> Any:
    """A container rebuilt from its items with tracked integers; None if no item holds integers."""
    tracked = {key: track(key, item) for key, item in items.items() if isinstance(key, (str, int))}
    if all(item is None for item in tracked.values()):
        return None
    return build({key: item if tracked.get(key) is None else tracked[key] for key, item in items.items()})


def is_settings(value: Any) -> bool:
    """Whether an object only holds other values: a dataclass, a namespace, a configuration."""
    plain = hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module, torch.Tensor, types.ModuleType))
    return plain and not callable(value)


def with_fields(value: Any, fields: Mapping[str, Any]) -> Any:
    """A shallow copy of an object with some fields replaced; frozen dataclasses too.

    What is its own copy, such as a member of an enumeration or a logger, is returned as it is: other code shares it.
    """
    twin = copy.copy(value)
    if twin is not value:
        for name, item in fields.items():
            object.__setattr__(twin, name, item)
    return twin


CLOSURE = "<closure>"  # the step of a path from a function to a variable in its closure


@contextmanager
def _module_stack(model: nn.Module, stack: list[str]) -> Iterator[None]:
    """Keep the path of the running module at the end of `stack`."""

    def leave(_module: nn.Module, _args: Any, _result: Any) -> None:
        stack.pop()

    with ExitStack() as hooks:
        for path, module in model.named_modules():

            def enter(_module: nn.Module, _args: Any, path: str = path) -> None:
                stack.append(path)

            hooks.enter_context(module.register_forward_pre_hook(enter, prepend=True))
            hooks.enter_context(module.register_forward_hook(leave))
        yield
