"""Types of option values: shapes, names, pruning steps, hold-outs, rungs and lists of seeds."""

from __future__ import annotations

import math
from typing import Any, Literal

import click

from aacp.user.values import MAX_COUNT, MAX_SEED, shown

MAX_NUMBERS = 2**31  # in one input; 8 GiB in single precision
SEED = click.IntRange(0, MAX_SEED)


class Number(click.ParamType[float]):
    """A finite number in a range."""

    name = "float"

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self.low <= number <= self.high:
            self.fail(f"{shown(value)} is not a number from {self.low:g} to {self.high:g}.", param, ctx)
        return number


class Shape(click.ParamType[tuple[int, ...]]):
    """Sizes joined by x: 1x3x224x224."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            sizes = tuple(int(size) for size in str(value).lower().split("x"))
        except ValueError:
            self.fail(f"{shown(value)} is not a shape. Write sizes joined by x, such as 1x3x224x224.", param, ctx)
        if math.prod(sizes) > MAX_NUMBERS:
            self.fail(
                f"{shown(value)} is an input of more than {MAX_NUMBERS:,} numbers. Write a smaller one.", param, ctx
            )
        if min(sizes) < 1:
            self.fail(f"{shown(value)} has a size below 1. Write sizes such as 1x3x224x224.", param, ctx)
        return sizes


class Names(click.ParamType[tuple[str, ...]]):
    """Names joined by commas: conv1,conv2."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return tuple(name.strip() for name in str(value).split(","))


class Step(click.ParamType[float | Literal["auto"]]):
    """A pruning step: a share of a width below 1, a number of channels, or auto."""

    name = "step"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int | Literal["auto"]:
        if value == "auto":
            return "auto"
        try:
            step = float(value)
        except ValueError:
            self.fail(
                f"{shown(value)} is not a step. Write a share such as 0.125, channels such as 8, or auto.", param, ctx
            )
        if not 0 < step <= MAX_COUNT or (step >= 1 and not step.is_integer()):
            self.fail(
                f"{shown(value)} is not a step. Write a share such as 0.125, channels such as 8, or auto.", param, ctx
            )
        return step if step < 1 else int(step)


class Seeds(click.ParamType[tuple[int, ...]]):
    """Different whole numbers joined by commas: 0,1,2."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            seeds = tuple(int(seed) for seed in str(value).split(","))
        except ValueError:
            self.fail(
                f"{shown(value)} is not a list of seeds. Write whole numbers joined by commas: 0,1,2.", param, ctx
            )
        if not all(0 <= seed <= MAX_SEED for seed in seeds):
            self.fail(f"{shown(value)} contains a seed outside 0 to {MAX_SEED}. Give other seeds.", param, ctx)
        if len(set(seeds)) < len(seeds):
            self.fail(f"{shown(value)} contains a seed more than once. Give each seed once.", param, ctx)
        return seeds


class Rungs(click.ParamType[tuple[int, ...]]):
    """Numbers of epochs joined by commas: 3,10,30."""

    name = "rungs"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            return tuple(int(epochs) for epochs in str(value).split(","))
        except ValueError:
            self.fail(
                f"{shown(value)} is not a list of rungs. Write numbers of epochs joined by commas: 3,10,30.", param, ctx
            )


class Part(click.ParamType[float]):
    """A part of the data: a share below 1, or a whole number of examples."""

    name = "part"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            part = float(value)
        except ValueError:
            part = -1.0
        if not 0 <= part <= MAX_COUNT or (part >= 1 and not part.is_integer()):
            self.fail(
                f"{shown(value)} is not a part of the data. Write a share such as 0.1, or a number such as 5000.",
                param,
                ctx,
            )
        return part if 0 < part < 1 else int(part)
