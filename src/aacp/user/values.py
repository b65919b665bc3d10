"""Values that a user gives: numbers and names, checked in one place before anything is computed with them."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Sequence, Set
from typing import Any, TypeVar

import numpy as np

from aacp.errors import InvalidOption, InvalidScore

Kind = TypeVar("Kind")

MAX_SEED = 2**63 - 1  # what torch and numpy both accept
MAX_COUNT = 2**53  # whole numbers up to this one are exact in floating point and in JSON
NEAR_ZERO = 0.01  # scores below it are shown with significant digits instead of decimals
MAX_SCORE = 1e100  # scores are squared and added up, which must stay finite
MAX_SHOWN = 60  # characters of a value in a message or a table


def shown(value: object) -> str:
    """A value for a message, of limited length; any value has one, however large it is."""
    try:
        text = repr(value)
    except Exception:  # a number of more than 4,300 digits, or a user's class
        return f"a very large {type(value).__name__}" if isinstance(value, int) else f"a {type(value).__name__}"
    return shortened(text)


def shortened(text: str) -> str:
    """A text for a message or a table, of limited length."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def counted(count: int, thing: str) -> str:
    """A number of things for people: "1 epoch", "2,000 epochs"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def score_text(value: float) -> str:
    """A score or a loss for people: four decimals, or three significant digits if it is near zero."""
    if value == 0:
        return "0.0000"  # without the sign of a negative zero
    return f"{value:.4f}" if abs(value) >= NEAR_ZERO else f"{value:.3g}"


def whole_number(name: str, value: Any, low: int, high: int = MAX_COUNT) -> int:
    """The value as an int; whole numbers of numpy are accepted, fractions and truth values are rejected."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except Exception:  # not a number, or a tensor of several
        found = None
    if found is None or not low <= found <= high:
        kind = "which is not a whole number" if found is None else _outside(found, low, high)
        most = "" if high in (MAX_COUNT, MAX_SEED) else f" to {high}"
        raise InvalidOption(f"{name} is {shown(value)}, {kind}. Give a whole number from {low}{most or ' up'}.")
    return found


def real_number(name: str, value: Any, low: float, high: float) -> float:
    """The value as a float; text, truth values, not-a-number and values outside the range are rejected."""
    found = as_float(value)
    if found is None or not low <= found <= high:
        kind = "which is not a number" if found is None or math.isnan(found) else _outside(found, low, high)
        raise InvalidOption(f"{name} is {shown(value)}, {kind}. Give a number from {low:g} to {high:g}.")
    return found


def seed_number(value: Any) -> int:
    """A seed as an int."""
    return whole_number("seed", value, 0, MAX_SEED)


def truth_value(name: str, value: Any) -> bool:
    """The value as a bool; text such as "no" would count as true, so it is rejected."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InvalidOption(f"{name} is {shown(value)}. Give True or False.")
    return bool(value)


def paths(name: str, value: Any) -> tuple[str, ...]:
    """Several paths as text; one path is rejected, since its characters would be taken for paths."""
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise InvalidOption(
            f"{name} is {shown(value)}, which is not a list of paths. Give one, such as ['runs/first']."
        )
    return tuple(path_text(name, each) for each in value)


def names(name: str, value: Any) -> tuple[str, ...]:
    """Several names as a tuple; one text is rejected, since its characters would be taken for names."""
    is_list = isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes))
    if not is_list or not all(isinstance(each, str) for each in value):
        raise InvalidOption(f"{name} is {shown(value)}, which is not a list of names. Give one, such as ['conv1'].")
    return tuple(value)


def checked_holdout(value: Any) -> float | None:
    """The size of a hold-out: a share below 1 as a float, a number of examples as an int, or None."""
    if value is None:
        return None
    found = as_float(value)
    # A Decimal, a Fraction or an array of 0.1 is a share too, though none of them is a float.
    is_share = isinstance(value, (float, np.floating)) or (found is not None and not found.is_integer())
    if found is None or not 0 <= found <= MAX_COUNT or (is_share and found >= 1):
        raise InvalidOption(
            f"The hold-out is {shown(value)}. Give a share of at least 0 and below 1, or a whole number of examples."
        )
    return found if is_share else int(found)


def path_text(name: str, value: Any) -> str:
    """A path as text; numbers and bytes are rejected."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if not isinstance(found, str) or not found:
        raise InvalidOption(f"{name} is {shown(value)}, which is not a path. Give the path of a file or folder.")
    return found


def instance(name: str, value: Any, kind: type[Kind], advice: str) -> Kind:
    """The value, which must be an object of a class; `advice` is a sentence that says what to give."""
    if isinstance(value, kind):
        return value
    raise InvalidOption(f"{name} is {described(value)}, not a {kind.__name__}. {advice}")


def described(value: object) -> str:
    """What a value is, for a message: a number or text itself, of any other object its class."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    is_plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
    return shown(value) if is_plain else f"a {type(value).__name__}"


def function(name: str, value: Any, arguments: str) -> Any:
    """The value, which must be a function; `arguments` is what it is called with, for the message."""
    if isinstance(value, type):  # called with the arguments, nn.CrossEntropyLoss takes them for its settings
        kind = value.__name__
        raise InvalidOption(f"{name} is the class {kind}, which is not called with {arguments}. Give {kind}().")
    if callable(value):
        return value
    raise InvalidOption(f"{name} is {shown(value)}, not a function. Give one that takes {arguments}.")


def finite_score(value: Any, where: str = "") -> float:
    """A score as a float; what is not a finite number ranks nothing and would poison every comparison with it."""
    found = as_float(value)
    place = f" on the {where}" if where else ""
    if found is None:
        raise InvalidScore(
            f"The score{place} is {shown(value)}, which is not a number. Return one number from the score function."
        )
    if not abs(found) <= MAX_SCORE:
        reason = "is too large to compute with" if math.isfinite(found) else "ranks nothing"
        raise InvalidScore(
            f"The score{place} is {found}, which {reason}. Let the score function return finite numbers up to "
            f"{MAX_SCORE:g}, also for a bad network, and check the data for NaN."
        )
    return found


def finite_metric(name: str, value: Any) -> float:
    """A metric of a run as a float; means and spreads of values that are not finite say nothing."""
    found = as_float(value)
    if found is None or not math.isfinite(found):
        raise InvalidScore(f"The metric {name!r} is {shown(value)}. Return finite numbers by name.")
    return found


def cost_number(name: str, value: Any) -> float:
    """The cost of a structure as a float; infinity and not-a-number are allowed and meet no limit."""
    found = as_float(value)
    if found is None:
        raise InvalidOption(
            f"The cost {name!r} of a structure is {shown(value)}, which is not a number. Return one number from the "
            "cost function."
        )
    return found


def as_float(value: Any) -> float | None:
    """The value as a float, or None if it is not a number."""
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the floats
        return math.inf if value > 0 else -math.inf
    except Exception:  # not a number, or a tensor of several
        return None


def _outside(found: float, low: float, high: float) -> str:
    return f"below {low:g}" if found < low else f"above {high:g}"
