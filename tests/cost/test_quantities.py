"""Costs as text: with their unit, with all digits of a count, seconds as milliseconds."""

from __future__ import annotations

import pytest

from aacp.cost.quantities import amount, cost_change


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3_332_544, "MACs", "3,332,544 MACs"),
        (999.5, "J", "999.5 J"),
        (0.0018349, "s", "1.83 ms"),
        (0.9994, "s", "999 ms"),
        (0.9996, "s", "1,000 ms"),
        (5, "s", "5,000 ms"),
        (12, "", "12"),
    ],
)
def test_an_amount_has_its_unit(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def test_a_change_has_its_unit_once_and_no_share_of_nothing() -> None:
    assert cost_change("macs", 1000, 500, "MACs") == "macs: 1,000 -> 500 MACs (-50.0%)"
    assert cost_change("latency", 0.008, 0.003, "s") == "latency: 8 -> 3 ms (-62.5%)"
    assert cost_change("joules", 0, 0, "J") == "joules: 0 -> 0 J"
