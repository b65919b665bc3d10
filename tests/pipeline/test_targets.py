from __future__ import annotations

import pytest

import aacp
from aacp.pipeline.targets import in_words, quantity, targets
from aacp.runs.files import Target


@pytest.mark.parametrize(
    ("cost", "text", "value"),
    [
        ("macs", "60M", 60e6),
        ("macs", "1.5 G", 1.5e9),
        ("params", "500k", 5e5),
        ("params", "270000", 270000),
        ("weight_bytes", "2MB", 2e6),
        ("weight_bytes", "2 MiB", 2 * 1024 * 1024),
        ("activation_bytes", ".5kB", 500),
        ("macs", "6e7", 6e7),
    ],
)
def test_quantities_have_the_units_of_their_cost(cost: str, text: str, value: float) -> None:
    assert quantity(cost, text) == value


@pytest.mark.parametrize("text", ["", "M", "0M", "-3M", "3 MB", "3M4", "nan", "half"])
def test_what_is_no_quantity_is_refused_with_the_units_there_are(text: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"is no quantity. Write a positive number and one of k, M, G"):
        quantity("macs", text)


def test_numbers_are_shares_to_remove_and_text_is_the_most_to_keep() -> None:
    asked = targets({"macs": 0.5, "weight_bytes": "2MB"})
    assert asked == (Target("macs", pruning_rate=0.5), Target("weight_bytes", at_most=2e6))
    assert targets({"weight_bytes": "2MB", "macs": 0.5}) == asked  # in whatever order, it is the same question


@pytest.mark.parametrize(
    ("cost", "asked", "words"),
    [
        ("macs", 0.5, "50 % less"),
        ("params", 0.335, "33.5 % less"),
        ("macs", "60M", "at most 60M"),
        ("params", "270123", "at most 270123"),
        ("weight_bytes", "512KiB", "at most 512KiB"),
        ("activation_bytes", "1500 kB", "at most 1.5MB"),
        ("latency", "3ms", "at most 3ms"),
    ],
)
def test_limits_are_told_as_they_are_asked(cost: str, asked: float | str, words: str) -> None:
    assert in_words(*targets({cost: asked})) == words
