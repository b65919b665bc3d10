"""Scores over pruning rates: the data of the charts (the paper's Fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aacp.cost.budget import Limit
from aacp.report.html import Figure
from aacp.report.rates import rate_figures
from aacp.report.run import Run
from aacp.report.sweep import comparison
from aacp.runs.chosen import ChosenStructure
from aacp.runs.requests import Request
from aacp.runs.scores import Evaluation, NetworkMetrics

UNPRUNED = 0.94


def run_of(macs: float, params: float, test: float | None, estimate: float = 0.5, unpruned: float | None = None) -> Run:
    limits = (Limit("macs", macs), Limit("params", params))
    request = Request("aacp sweep", "vgg16", "cifar10", limits, 0.125, "paper", 9, 0, {}, "", "")
    costs = {"macs": 10, "params": 10}
    before, after = (NetworkMetrics(value, value, costs) for value in (UNPRUNED, test))
    evaluation = None if test is None else Evaluation(before, after)
    choice = ChosenStructure((1,), estimate, (), unpruned)
    return Run(f"macs-{macs}_params-{params}", request, choice=choice, evaluation=evaluation)


def traces(figure: Figure) -> dict[str, Any]:
    return {trace["name"].replace("\N{NO-BREAK SPACE}", " "): trace for trace in figure.traces}


def named(figures: Sequence[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


RATES = [place / 10 for place in range(9)]  # 0 to 0.8, as in the paper


def test_one_limit_varies_while_the_other_is_fixed() -> None:
    runs = [run_of(0.5, rate, 0.93 - rate / 100) for rate in RATES]
    (figure,) = rate_figures(runs)
    assert figure.name == "rates"
    shown = traces(figure)
    assert shown["mean"]["x"] == pytest.approx([100 * rate for rate in RATES])
    assert shown["mean"]["y"] == pytest.approx([93 - rate for rate in RATES])
    assert shown["unpruned"]["y"] == [94, 94]
    assert "pruning rate of parameters, with MACs \N{MINUS SIGN}50\N{NO-BREAK SPACE}% in every run" in figure.caption


def test_two_sweeps_crossing_each_other_give_both_halves_of_the_figure() -> None:
    across = [run_of(0.5, rate, 0.93 - rate / 100) for rate in RATES]
    down = [run_of(rate, 0.5, 0.92 - rate / 50) for rate in RATES if rate != 0.5]
    figures = named(rate_figures([*across, *down]))
    assert set(figures) == {"rates", "rates-macs", "rates-params"}
    over_params = traces(figures["rates-params"])["MACs \N{MINUS SIGN}50 %"]
    assert over_params["x"] == pytest.approx([100 * rate for rate in RATES])
    assert over_params["y"] == pytest.approx([93 - rate for rate in RATES])
    over_macs = traces(figures["rates-macs"])["parameters \N{MINUS SIGN}50 %"]
    assert over_macs["x"] == pytest.approx([100 * rate for rate in RATES])
    expected = [92 - 2 * rate if rate != 0.5 else 93 - rate for rate in RATES]
    assert over_macs["y"] == pytest.approx(expected)
    assert traces(figures["rates-macs"])["unpruned"]["y"] == [94, 94]


def test_a_line_goes_through_the_mean_of_several_seeds() -> None:
    runs = [run_of(0.5, rate, 0.9 + seed / 100) for rate in (0.1, 0.2, 0.3) for seed in (0, 2)]
    shown = traces(rate_figures(runs)[0])
    assert shown["mean"]["y"] == pytest.approx([91, 91, 91])
    assert shown["runs"]["y"] == pytest.approx([90, 92] * 3)


def test_lines_need_three_points() -> None:
    runs = [run_of(macs, params, 0.9) for macs in (0.3, 0.6) for params in (0.0, 0.5)]
    assert [figure.name for figure in rate_figures(runs)] == ["rates"]


@pytest.mark.parametrize(("untrained", "shown"), [(1, [0.1, 0.3]), (2, [0.2, 0.4])])
def test_of_runs_that_are_partly_trained_those_with_the_same_kind_of_score_are_drawn(
    untrained: int, shown: list[float]
) -> None:
    runs = [run_of(0.5, rate, 0.9) for rate in (0.1, 0.3)[: 3 - untrained]]
    runs += [run_of(0.5, rate, None, estimate=0.8) for rate in (0.2, 0.4)[:untrained]]
    (figure,) = rate_figures(runs)
    assert traces(figure)["mean"]["x"] == pytest.approx([100 * rate for rate in shown])
    assert figure.caption.endswith(" Not shown, for lack of such a score: 1 of 3 runs.")
    assert ("(test)" in figure.caption) == (untrained == 1)


def test_a_sweep_without_training_shows_the_unpruned_score() -> None:
    runs = [run_of(0.5, rate, None, estimate=0.8 - rate, unpruned=0.95) for rate in (0.1, 0.2, 0.3)]
    shown = traces(rate_figures(runs)[0])
    assert shown["mean"]["y"] == pytest.approx([70, 60, 50])
    assert shown["unpruned"]["y"] == [95, 95]
    page = comparison(runs).replace("\N{NO-BREAK SPACE}", " ")
    assert "95.00 %" in page
    assert "70.00 % estimated" in page
    assert "\N{MINUS SIGN}25.00 points" in page
