"""Functions and classes by name: `package.module:name`, as the command line takes them and run.json records them."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from aacp.errors import InvalidOption, RunMismatch
from aacp.estimate.importance import CRITERIA
from aacp.estimate.inheritance import REPAIR
from aacp.search.methods import METHODS
from aacp.user.sources import is_importable, source_of
from aacp.zoo.imports import named_function

# Fields of a plan that may hold a function or a class, with what it is called with.
FUNCTIONS = {
    "method": "(space, budget, seed, settings, start, known)",
    "importance": "(model, graph, calibration)",
    "reconstruction": "(network, original, graph, kept, calibration)",
}
# Names in these fields that stand for built-in choices, such as "l1".
BUILT_IN: dict[str, Container[str]] = {"method": METHODS, "importance": CRITERIA, "reconstruction": (REPAIR,)}


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


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function or of the class of an object that is called, for people."""
    return getattr(function, "__name__", type(function).__name__)


def importable(source: str) -> str | None:
    """A recorded source if the function can be imported from there."""
    return source if source and is_importable(source) else None


def restored_field(what: str, name: str) -> Any:
    """What run.json names in a field of a plan, imported again unless it is built in."""
    return name if name in BUILT_IN[what] else restored(what, name, FUNCTIONS[what])


def restored(what: str, name: str, arguments: str) -> Any:
    """The function or class of a recorded name, imported again.

    Args:
        what: the field that holds it, for the message if it cannot be imported.
        name: the recorded name.
        arguments: what it is called with, for the same message.
    """
    if ":" not in name or not is_importable(name):
        raise RunMismatch(
            f"The {what} of this run is {name.partition('#')[0]}, which cannot be imported: it is a lambda, a local "
            "function, defined in a script, or recorded by an older version. Call aacp.prune again with it, or search "
            f"again with another {what}, one that a module defines."
        )
    return imported(name, arguments)
