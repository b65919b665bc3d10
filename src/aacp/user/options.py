"""Options that a user gives by name: an unknown one is answered with the option that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any, TypeVar

from aacp.errors import InvalidOption

Target = TypeVar("Target", bound=Callable[..., Any])


def known_options(target: Target) -> Target:
    """A function or class of the library that rejects unknown options in the words of the library."""
    is_class = isinstance(target, type)
    function: Callable[..., Any] = vars(target)["__init__"] if is_class else target
    found = inspect.signature(target).parameters
    parameters = {name: parameter for name, parameter in found.items() if name != "cls"}

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        unknown = [name for name in named if name not in parameters]
        if unknown:
            raise InvalidOption(f"{target.__qualname__} has no option {unknown[0]}. {_advice(unknown[0], parameters)}")
        return function(*arguments, **named)

    if is_class:
        target.__init__ = called  # type: ignore[method-assign]
        return target
    return called  # type: ignore[return-value]


def _advice(name: str, parameters: Mapping[str, Parameter]) -> str:
    """What to give instead: the option that has this one inside, the nearest one, or one of all."""
    around = _around(name, {option: parameter.default for option, parameter in parameters.items()})
    near = get_close_matches(name, parameters, n=1)
    return f"Give {around or near[0]}." if around or near else f"Choose from {', '.join(parameters)}."


def _around(name: str, defaults: Mapping[str, object]) -> str:
    """How to give an option that is a field of another one, such as `plan=aacp.Plan(seed=...)`; empty if none is."""
    for option, default in defaults.items():
        values = {field: getattr(default, field) for field in getattr(default, "__dataclass_fields__", ())}
        inner = f"{name}=..." if name in values else _around(name, values)
        if inner:
            return f"{option}=aacp.{type(default).__name__}({inner})"
    return ""
