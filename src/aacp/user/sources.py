"""Sources: where a user's function or class is defined, in the form that run files record.

`package.module:name` can be imported again, so that another process can finish the run. Lambdas, local functions,
callable objects and whatever a script defines cannot: their source ends with `#` and a fingerprint of their code, their
defaults, the values that they close over and, of an object, its settings, by which a resumed run notices a different
function.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

FINGERPRINT_LENGTH = 8  # hexadecimal digits
SCRIPT = "__main__"  # the module that a script defines
SCRIPT_ELSEWHERE = "__mp_main__"  # what a process that it has started calls this module
DESCRIBED = (types.FunctionType, types.MethodType, partial)  # values that are described like functions
_FIRST_SOURCES: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the text of an object, such as <function accuracy at 0x7f3a20>


def source_of(function: Callable[..., Any]) -> str:
    """Where a function or class is defined: `package.module:name`, with a fingerprint if it cannot be imported.

    A function keeps the source that it had first: what it closes over may change while a run lasts.
    """
    if not isinstance(function, (types.FunctionType, partial)):
        return _source(function, ())
    if function not in _FIRST_SOURCES:
        _FIRST_SOURCES[function] = _source(function, ())
    return _FIRST_SOURCES[function]


def is_importable(source: str) -> bool:
    """Whether the function of a recorded source can be imported."""
    return "#" not in source


def are_comparable(before: str, now: str) -> bool:
    """Whether a recorded source and that of this call show if the functions are the same; both may be empty.

    Older versions recorded none of a function that cannot be imported, and a function of a script may be imported in
    another call.
    """
    return bool(before) and (not now or is_importable(before) == is_importable(now))


def short_name(source: str) -> str:
    """The bare name of a recorded function: `my.module:taylor` is `taylor`."""
    return source.partition("#")[0].rpartition(":")[2].rpartition(".")[2]


def in_script(source: str) -> str:
    """A source or module as the script itself names it, also if a process that it has started named it."""
    module, colon, name = source.partition(":")
    return f"{SCRIPT if module == SCRIPT_ELSEWHERE else module}{colon}{name}"


def _source(function: Callable[..., Any], within: tuple[Any, ...]) -> str:
    """The source of a function or class; `within` are the functions that close over it."""
    named = function if hasattr(function, "__qualname__") else type(function)
    module = in_script(str(named.__module__))
    name = str(named.__qualname__)
    found = getattr(sys.modules.get(module), name, None)
    if module != SCRIPT and found is function:
        return f"{module}:{name}"
    return f"{module}:{name}#{_fingerprint(function, within)}"


def _fingerprint(function: Callable[..., Any], within: tuple[Any, ...]) -> str:
    lines = _partial_lines(function, within) if isinstance(function, partial) else _lines(function, within)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:FINGERPRINT_LENGTH]


def _partial_lines(function: partial[Any], within: tuple[Any, ...]) -> list[str]:
    """The function of a partial, and what it is called with."""
    within = (*within, function)
    keywords = [f"{name}={_text(value, within)}" for name, value in sorted(function.keywords.items())]
    return [_source(function.func, within), _text(function.args, within), *keywords]


def _lines(function: Callable[..., Any], within: tuple[Any, ...]) -> list[str]:
    """The code, defaults and closed-over values of a function, or of all functions of a class."""
    holder = function if hasattr(function, "__code__") or isinstance(function, type) else type(function)
    members = vars(holder).values() if isinstance(holder, type) else (holder,)
    parts = [part for part in members if hasattr(part, "__code__")]
    text = [line for part in parts for line in _instructions(part.__code__)]
    text += [_text(getattr(part, "__defaults__", None)) for part in parts]
    for part in parts:  # a line is added only if there is something to say, since older versions wrote none of these
        keywords = getattr(part, "__kwdefaults__", None) or {}
        text += [f"{name}={_text(value)}" for name, value in sorted(keywords.items())]
        text += [f"{name}: {_text(value, (*within, part))}" for name, value in _closed_over(part)]
    owner = getattr(function, "__self__", function)  # of a method
    text += [f".{name}={_text(value, (*within, function))}" for name, value in _settings(owner)]
    if not parts and hasattr(function, "__wrapped__"):  # by a decorator that is not written in Python
        text.append(_source(function.__wrapped__, (*within, function)))
    return text


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object that hold arguments of its constructor, which have their names.

    Other attributes may change while a run lasts, such as what an object counts or keeps.
    """
    if isinstance(value, (type, types.FunctionType, types.ModuleType)):
        return
    try:
        arguments = inspect.signature(type(value)).parameters
    except (TypeError, ValueError):  # of a class that is not written in Python
        return
    for name in arguments:
        for attribute in (name, f"_{name}"):
            with suppress(Exception):  # an attribute may be a property that fails
                yield attribute, getattr(value, attribute)
                break


def _closed_over(function: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of variables of an enclosing function, except those that have no value yet.

    `__class__`, the class that `super` reads, is left out: its functions are described beside this one.
    """
    for name, cell in zip(function.__code__.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
        with suppress(ValueError):
            if name != "__class__":
                yield name, cell.cell_contents


def _instructions(code: types.CodeType) -> Iterator[str]:
    """The code of a function as text that is the same in every process of one Python version."""
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)
        else:
            yield _text(constant)


def _text(value: object, within: tuple[Any, ...] = ()) -> str:
    """The text of a value without what differs between processes and runs: addresses, the order of sets, and paths.

    Args:
        value: a constant, a default, an argument, a setting, or a value that a function closes over.
        within: in the last three cases what holds the value, from the outermost; functions and objects among the
            values are described then.
    """
    is_described = bool(within) and not any(value is each for each in within)
    inside = (*within, value) if is_described else ()
    if isinstance(value, os.PathLike):
        return "path"
    if type(value) is tuple:
        inner = ", ".join(_text(each, within) for each in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({sorted(_text(each, within) for each in value)})"
    if is_described and type(value) is list:
        return f"[{', '.join(_text(each, inside) for each in value)}]"
    if is_described and type(value) is dict:
        return f"{{{', '.join(f'{_text(key, inside)}: {_text(each, inside)}' for key, each in value.items())}}}"
    if is_described and isinstance(value, DESCRIBED):  # such as a function that was decorated
        return _source(value, within)
    try:
        written = repr(value)
    except Exception:  # of a class of the user
        written = type(value).__name__
    text = ADDRESS.sub("", written).replace(f"{SCRIPT_ELSEWHERE}.", f"{SCRIPT}.") + _left_out(value, written)
    if is_described and ADDRESS.search(written):  # its class writes no text of its own
        text += "".join(f".{name}={_text(each, inside)}" for name, each in _settings(value))
    return text


def _left_out(value: Any, written: str) -> str:
    """A fingerprint of the numbers of a tensor or an array if its text leaves out those in the middle."""
    if "..." not in written or not hasattr(value, "__array__"):
        return ""
    with suppress(Exception):  # of types of numbers that numpy does not have
        numbers = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        return hashlib.sha256(np.ascontiguousarray(numbers).data).hexdigest()
    return ""
