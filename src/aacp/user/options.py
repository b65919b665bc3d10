"""Names of options and choices that a user gives: an unknown one is answered with the one that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any, TypeVar

from aacp.errors import InvalidOption
from aacp.user.values import shown

Target = TypeVar("Target", bound=Callable[..., Any])


def known_options(target: Target) -> Target:
    """A function or class of the library that rejects unknown and missing options in the words of the library."""
    is_class = isinstance(target, type)
    function: Callable[..., Any] = vars(target)["__init__"] if is_class else target
    found = inspect.signature(target).parameters
    parameters = {name: parameter for name, parameter in found.items() if name != "cls"}
    required = [name for name, parameter in parameters.items() if parameter.default is Parameter.empty]
    owners = int(len(parameters) < len(inspect.signature(function).parameters))  # self or cls, given by position

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        unknown = [name for name in named if name not in parameters]
        if unknown:
            raise InvalidOption(f"{target.__qualname__} has no option {unknown[0]}. {_advice(unknown[0], parameters)}")
        missing = [name for name in required[max(0, len(arguments) - owners) :] if name not in named]
        if missing:
            call = ", ".join(f"{name}=..." for name in required)
            raise InvalidOption(
                f"{target.__qualname__} is called without {' and '.join(missing)}. Give {target.__qualname__}({call})."
            )
        return function(*arguments, **named)

    if is_class:
        target.__init__ = called  # type: ignore[method-assign]
        return target
    return called  # type: ignore[return-value]


def require_known(what: str, name: Any, known: Collection[str], also: str = "") -> None:
    """Reject a name that is not a known one.

    Args:
        what: what has the name, such as "runtime", for the message.
        name: the name that was given.
        known: all names.
        also: what may be given besides, as the end of a list, such as ", or give a function".
    """
    if not (isinstance(name, str) and name in known):
        raise InvalidOption(f"There is no {what} {shown(name)}. {advice(name, known, also)}")


def advice(name: Any, known: Iterable[str], also: str = "") -> str:
    """What to give instead of an unknown name: the nearest known one, if one is like it, or any other."""
    near = nearest(name, known)
    others = f"{', '.join(each for each in known if each != near)}{also}"
    return f"Give {near}, or choose from {others}." if near else f"Choose from {others}."


def advice_of_many(name: Any, known: Iterable[str], listing: str) -> str:
    """The same for names that are too many for a message; `listing` lists them."""
    near = nearest(name, known)
    return f"Give {near}, or another name that {listing} lists." if near else f"{listing} lists all names."


def nearest(name: Any, known: Iterable[str]) -> str:
    """The known name that was probably meant; empty if none is like it.

    Upper and lower case are the same, and of a form such as "cifar10:PATH" the part before the colon is the name.
    """
    forms = {form.partition(":")[0].lower(): form for form in known}
    near = get_close_matches(name.lower(), forms, n=1) if isinstance(name, str) else []
    return forms[near[0]] if near else ""


def _advice(name: str, parameters: Mapping[str, Parameter]) -> str:
    """What to give instead: the option that has this one inside, the nearest one, or one of all."""
    around = _around(name, {option: parameter.default for option, parameter in parameters.items()})
    meant = around or nearest(name, parameters)
    return f"Give {meant}." if meant else advice(name, parameters)


def _around(name: str, defaults: Mapping[str, object]) -> str:
    """How to give an option that is a field of another one, such as `plan=aacp.Plan(seed=...)`; empty if none is."""
    for option, default in defaults.items():
        values = {field: getattr(default, field) for field in getattr(default, "__dataclass_fields__", ())}
        inner = f"{name}=..." if name in values else _around(name, values)
        if inner:
            return f"{option}=aacp.{type(default).__name__}({inner})"
    return ""
