"""Checks of plain data that were read from a file. Every failure is a ValueError with a reason for a message."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from aacp.user.values import shown

MAX_NUMBER = 1 << 53  # of any whole number: it is exact in floating point, and a few of them add up within 64 bits

Check = Callable[[Any], bool]


def is_list(value: Any) -> bool:
    """Whether a value is a list, or a tuple in data that were not written to a file yet."""
    return isinstance(value, (list, tuple))


def is_whole(low: int) -> Check:
    """A check for whole numbers of at least `low`."""
    return lambda value: type(value) is int and low <= value <= MAX_NUMBER


def is_text(value: Any) -> bool:
    """Whether a value is text."""
    return isinstance(value, str)


def is_truth(value: Any) -> bool:
    """Whether a value is true or false."""
    return isinstance(value, bool)


def is_list_of(check: Check, most: int = MAX_NUMBER) -> Check:
    """A check for lists of at most `most` values that all pass another check."""
    return lambda value: is_list(value) and len(value) <= most and all(map(check, value))


def is_or_none(check: Check) -> Check:
    """A check that also accepts None."""
    return lambda value: value is None or check(value)


def is_positive(value: Any) -> bool:
    """Whether a value is a number from 1e-12 to 1e12, such as a number of seconds."""
    return is_number(value) and 1e-12 <= value <= 1e12


def is_number(value: Any) -> bool:
    """Whether a value is a finite number of at least 0."""
    return type(value) in (int, float) and 0 <= value <= MAX_NUMBER and math.isfinite(value)


CHECKS: dict[Any, Check] = {str: is_text, bool: is_truth, int: is_whole(0), float: is_number}


def checks_of(kind: type[Any], most: int = MAX_NUMBER, **others: Check) -> dict[str, Check]:
    """A check for each field of a dataclass, by its type; numbers must not be negative.

    Args:
        kind: the dataclass.
        most: the greatest length of lists.
        others: the checks of fields for which that is not enough, or too much.
    """
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    return {name: others[name] if name in others else _check_of(hints[name], most) for name in names}


def _check_of(kind: Any, most: int) -> Check:
    """The check for values of a type: a tuple is a list in JSON, and other types with parts are `X | None`."""
    if kind in CHECKS:
        return CHECKS[kind]
    inner = _check_of(get_args(kind)[0], most)
    return is_list_of(inner, most) if get_origin(kind) is tuple else is_or_none(inner)


def require_fields(place: str, item: Any, checks: Mapping[str, Check], optional: Container[str] = ()) -> None:
    """Reject an object that lacks a field, has one that is not known, or one with a wrong value."""
    require(isinstance(item, Mapping), f"{place} is not an object")
    for name, check in checks.items():
        if name in item or name not in optional:
            require(name in item, f"{place} has no {name}")
            require(check(item[name]), f"{place}.{name} is {shown(item[name])}")
    unknown = [name for name in item if name not in checks]
    require(not unknown, f"{place} has an unknown field {shown(unknown[:1])}")


def require(condition: bool, reason: str) -> None:
    """Raise a ValueError with a reason unless a condition holds."""
    if not condition:
        raise ValueError(reason)
