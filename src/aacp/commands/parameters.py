"""Types of option values: numbers, shapes, names, pruning steps, hold-outs, rungs and lists of seeds.

click takes a function as a type: its name is the name of the type, and a BadParameter says what is wrong with a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

import click

from aacp.user.options import advice
from aacp.user.values import MAX_COUNT, MAX_SEED, shown

MAX_NUMBERS = 2**31  # in one input; 8 GiB in single precision
SEED = click.IntRange(0, MAX_SEED)


class Number(click.ParamType):  # type: ignore[type-arg]  # it has no parameter in older versions of click
    """A finite number in a range."""

    name = "float"

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = _number(value)
        if not self.low <= number <= self.high:
            self.fail(f"{shown(value)} is not a number from {self.low:g} to {self.high:g}.", param, ctx)
        return number


class Name(click.Choice):  # type: ignore[type-arg]  # it has no parameter before click 8.2
    """One of several names; an unknown one is answered with the nearest.

    Args:
        names: the known names.
        others: what else may be given, such as "package.module:NAME": a value with a colon is then passed on.
    """

    def __init__(self, names: Iterable[str], others: str = "") -> None:
        super().__init__([*names])
        self.others = others

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices and not (self.others and ":" in value):
            also = f", or {self.others}" if self.others else ""
            self.fail(f"{shown(value)} is not known. {advice(value, self.choices, also)}", param, ctx)
        return value


def shape(value: str) -> tuple[int, ...]:
    """Sizes joined by x: 1x3x224x224."""
    sizes = _whole_numbers(value, "[xX]", "a shape. Write sizes joined by x, such as 1x3x224x224.")
    if math.prod(sizes) > MAX_NUMBERS:
        raise click.BadParameter(
            f"{shown(value)} is an input of more than {MAX_NUMBERS:,} numbers. Write a smaller one."
        )
    if min(sizes) < 1:
        raise click.BadParameter(f"{shown(value)} has a size below 1. Write sizes such as 1x3x224x224.")
    return sizes


def names(value: str) -> tuple[str, ...]:
    """Names joined by commas: conv1,conv2."""
    return tuple(name.strip() for name in value.split(","))


def seeds(value: str) -> tuple[int, ...]:
    """Different whole numbers joined by commas: 0,1,2."""
    found = _whole_numbers(value, ",", "a list of seeds. Write whole numbers joined by commas: 0,1,2.")
    if not all(0 <= seed <= MAX_SEED for seed in found):
        raise click.BadParameter(f"{shown(value)} contains a seed outside 0 to {MAX_SEED}. Give other seeds.")
    if len(set(found)) < len(found):
        raise click.BadParameter(f"{shown(value)} contains a seed more than once. Give each seed once.")
    return found


def rungs(value: str) -> tuple[int, ...]:
    """Numbers of epochs joined by commas: 3,10,30."""
    return _whole_numbers(value, ",", "a list of rungs. Write numbers of epochs joined by commas: 3,10,30.")


def step(value: str | float) -> float | Literal["auto"]:
    """A pruning step: a share of a width below 1, a number of channels, or auto."""
    if value == "auto":
        return "auto"
    found = _share_or_count(value)
    if not found > 0:
        raise click.BadParameter(
            f"{shown(value)} is not a step. Write a share such as 0.125, channels such as 8, or auto."
        )
    return found


def part(value: str) -> float:
    """A part of the data: a share below 1, or a whole number of examples."""
    found = _share_or_count(value)
    if not found >= 0:
        raise click.BadParameter(
            f"{shown(value)} is not a part of the data. Write a share such as 0.1, or a number such as 5000."
        )
    return found


def _whole_numbers(value: str, separator: str, wanted: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, re.split(separator, value)))
    except ValueError:
        raise click.BadParameter(f"{shown(value)} is not {wanted}") from None


def _share_or_count(value: str | float) -> float:
    """A share below 1, or a whole number; not-a-number if the value is neither."""
    number = _number(value)
    if not 0 <= number <= MAX_COUNT or (number >= 1 and not number.is_integer()):
        return math.nan
    return number if 0 < number < 1 else int(number)


def _number(value: str | float) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
