"""Costs as text for people. `CostKind.write` writes quantities for programs: in the form that its `parse` reads."""

from __future__ import annotations


def amount(value: float, unit: str = "") -> str:
    """A cost with its unit: "3,332,544 MACs". Seconds become milliseconds: "1.83 ms"."""
    number, unit = _number(value, unit)
    return f"{number} {unit}".rstrip()


def cost_change(name: str, before: float, after: float, unit: str = "") -> str:
    """A cost before and after pruning: "macs: 1,000 -> 500 MACs (-50.0%)"."""
    share = f" ({after / before - 1:+.1%})" if before else ""
    return f"{name}: {_number(before, unit)[0]} -> {amount(after, unit)}{share}"


def _number(value: float, unit: str) -> tuple[str, str]:
    """A cost and its unit as they are written."""
    if unit == "s":
        return f"{1e3 * value:.3g}", "ms"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.6g}", unit
