"""Functions and classes by name: `package.module:name`, as the command line takes them and run.json records them."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from aacp.errors import InvalidOption, RunMismatch
from aacp.user.sources import is_importable, source_of
from aacp.zoo.imports import named_function


def imported(name: str | None, arguments: str) -> Any:
    """What an option names: `package.module:name` is imported, any other name is returned as it is.

    Args:
        name: the value of the option.
        arguments: what the function is called with, for the message if there is no such function.
    """
    return named_function(name, arguments, InvalidOption) if name is not None and ":" in name else name


def recorded_name(value: str | Callable[..., Any] | None) -> str | None:
    """A name as it is; a function or class by where it is defined."""
    return value if value is None or isinstance(value, str) else source_of(value)


def restored(name: str, what: str, arguments: str, known: Container[str]) -> Any:
    """What run.json names, imported again.

    Args:
        name: the recorded name.
        what: the field of the plan, for the message if the function cannot be imported.
        arguments: what the function is called with, for the same message.
        known: names that stand for built-in choices, such as "l1".
    """
    if name in known:
        return name
    if ":" not in name or not is_importable(name):
        raise RunMismatch(
            f"The {what} of this run is {name.partition('#')[0]}, which cannot be imported: it is a lambda, a local "
            "function, defined in a script, or recorded by an older version. Call aacp.prune again with it, or search "
            f"again with another {what}, one that a module defines."
        )
    return imported(name, arguments)
