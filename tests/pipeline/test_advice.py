"""Advice before a search: given where it was measured to hold, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aacp
from aacp.pipeline.advice import advice_on_repair, advice_on_search
from aacp.user.progress import show_progress
from pipeline import tiny_run


@pytest.mark.parametrize(
    ("limits", "epochs", "method", "is_advised"),
    [
        ([aacp.Limit("macs", 0.5)], 100, "default", True),
        ([aacp.Limit("macs", 0.6)], 100, "default", False),
        ([aacp.Limit("macs", at_most=1e6)], 100, "default", False),
        ([aacp.Limit("params", 0.5)], 100, "default", False),
        ([aacp.Limit("macs", 0.5), aacp.Limit("params", 0.5)], 100, "default", False),
        ([aacp.Limit("macs", 0.5)], 99, "default", False),
        ([aacp.Limit("macs", 0.5)], None, "default", False),
        ([aacp.Limit("macs", 0.5)], 100, "uniform", False),
    ],
)
def test_uniform_widths_are_advised_where_a_search_was_measured_to_be_worth_nothing(
    limits: list[aacp.Limit], epochs: int | None, method: str, is_advised: bool
) -> None:
    recipe = None if epochs is None else aacp.Recipe(epochs=epochs, batch_size=4, lr=0.1)
    advice = advice_on_search(aacp.Budget(*limits), aacp.Plan(recipe=recipe, method=method))
    assert ("--method uniform" in advice) == is_advised


@pytest.mark.parametrize(
    ("options", "is_advised"),
    [
        ({}, True),
        ({"epochs": 11}, False),
        ({"reconstruction": "repair"}, False),
        ({"from_scratch": True}, False),
        ({"method": "uniform"}, False),
        ({"recipe": None}, False),
    ],
)
def test_repair_is_advised_where_it_was_measured_to_pay(options: dict[str, Any], is_advised: bool) -> None:
    recipe = aacp.Recipe(epochs=options.pop("epochs", 10), batch_size=4, lr=0.1)
    advice = advice_on_repair(aacp.Plan(**{"recipe": recipe, "reconstruction": None, **options}))
    assert ("--reconstruction repair --importance obs" in advice) == is_advised


def test_a_run_gives_this_advice_before_it_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aacp.pipeline.advice.LONG_TRAINING", tiny_run.PLAN.recipe.epochs)
    with show_progress():
        tiny_run.pruned(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    search = next(number for number, text in enumerate(lines) if "evaluations, generation" in text)
    for note in (
        "--method uniform needs no search",
        "1.8 times as long with it",
        "normalised as they were for its training.",
    ):
        (place,) = [number for number, text in enumerate(lines) if text.endswith(note)]
        assert place < search
