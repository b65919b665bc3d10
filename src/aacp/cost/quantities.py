"""Costs as text for people. `CostKind.write` writes quantities for programs: in the form that its `parse` reads."""

from __future__ import annotations


def rounded(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits; from 1,000 on all digits before the point: "1.83", "5,000"."""
    return f"{value:.{digits}g}" if abs(value) < 999.5 else f"{value:,.0f}"


def amount(value: float, unit: str = "") -> str:
    """A cost with its unit: "3,332,544 MACs". Seconds become milliseconds: "1.83 ms", "5,000 ms"."""
    number, unit = _number(value, unit)
    return f"{number} {unit}".rstrip()


def cost_change(name: str, before: float, after: float, unit: str = "") -> str:
    """A cost before and after pruning: "macs: 1,000 -> 500 MACs (-50.0%)"."""
    share = f" ({after / before - 1:+.1%})" if before else ""
    return f"{name}: {_number(before, unit)[0]} -> {amount(after, unit)}{share}"


def _number(value: float, unit: str) -> tuple[str, str]:
    """A cost and its unit as they are written."""
    if unit == "s":
        return rounded(1e3 * value), "ms"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.6g}", unit
