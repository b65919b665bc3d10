"""Numbers for readers: with a unit, few digits, and a real minus sign."""

from __future__ import annotations

from collections.abc import Sequence

from aacp.cost.quantities import rounded
from aacp.user.values import NEAR_ZERO, score_text

NBSP = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"


def plain(value: float, digits: int) -> str:
    """A number with `digits` decimals, a real minus sign, and no sign on zero."""
    text = f"{value:,.{digits}f}"
    return text.lstrip("-") if not float(text.replace(",", "")) else text.replace("-", MINUS)


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, without trailing zeros: 0.5 is "50 %"."""
    text = plain(100 * share, digits)
    return f"{text.removesuffix('.' + '0' * digits)}{NBSP}%"


def signed(text: str) -> str:
    return text if text.startswith(MINUS) or not text.strip(f"0. %{NBSP}") else f"+{text}"


def count(value: float) -> str:
    """A number with four digits and a suffix: 126,561,536 is "126.6 M"."""
    return f"{value:,.0f}" if abs(value) < 1e4 else _scaled(value, [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")])


def size(value: float) -> str:
    return _scaled(value, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")])


def duration(seconds: float) -> str:
    """Seconds in the unit that gives a number above 1."""
    return _scaled(seconds, [(60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")], 3)


def change(before: float, after: float) -> str:
    """The relative change of a cost."""
    if before == after:
        return "unchanged"
    return f"{signed(plain(100 * (after / before - 1), 1))}{NBSP}%" if before else "from nothing"


def score(value: float, metric: str, digits: int = 2) -> str:
    """A score as text: an accuracy in percent, any other metric as a plain number."""
    return f"{plain(100 * value, digits)}{NBSP}%" if metric == "accuracy" else _few_digits(value, digits + 2)


def gain(before: float, after: float, metric: str) -> str:
    """The signed difference of two scores, in points if they are accuracies."""
    if metric == "accuracy":
        return f"{signed(plain(100 * (after - before), 2))}{NBSP}points"
    return signed(_few_digits(round(after - before, 12), 4))


def _few_digits(value: float, digits: int) -> str:
    """A score with `digits` decimals, or with three significant digits if it is near zero."""
    return score_text(value).replace("-", MINUS) if abs(value) < NEAR_ZERO else plain(value, digits)


def difference(one: float, other: float, metric: str) -> str:
    """The absolute difference of two scores."""
    return gain(one, other, metric).lstrip(f"+{MINUS}")


def quantity(value: float, unit: str) -> str:
    """A cost in its own unit."""
    if unit in ("s", "seconds"):
        return duration(value)
    if unit == "bytes":
        return size(value)
    return count(value) if abs(value) >= 1e3 or value == int(value) else f"{value:.4g}{NBSP}{unit}".rstrip(NBSP)


def _scaled(value: float, units: Sequence[tuple[float, str]], digits: int = 4) -> str:
    """A value with `digits` significant digits, in the largest unit that is not larger than it."""
    unit, name = next(((unit, name) for unit, name in units if abs(value) >= unit), units[-1])
    return f"{rounded(value / unit, digits)}{NBSP}{name}"
