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
    parameters = inspect.signature(target).parameters

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        unknown = [name for name in named if name not in parameters]
        if unknown:
            raise InvalidOption(f"{target.__name__} has no option {unknown[0]}. {_advice(unknown[0], parameters)}")
        return function(*arguments, **named)

    if is_class:
        target.__init__ = called  # type: ignore[method-assign]
        return target
    return called  # type: ignore[return-value]


def _advice(name: str, parameters: Mapping[str, Parameter]) -> str:
    """What to give instead: the option of which this is a field, the nearest one, or one of all."""
    for option, parameter in parameters.items():
        if name in getattr(parameter.default, "__dataclass_fields__", ()):
            return f"Give it in {option}: {option}=aacp.{type(parameter.default).__name__}({name}=...)."
    near = get_close_matches(name, parameters, n=1)
    return f"Give {near[0]}." if near else f"Choose from {', '.join(parameters)}."
