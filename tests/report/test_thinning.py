"""Thinned figures: points that would be covered are left out, the best and the front are exact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aacp.report import page, thinning
from aacp.report.page import write_report
from aacp.report.thinning import DOT, PIXELS, limit_per_figure, visible
from aacp.runs.files import GRAPH, HISTORY
from aacp.runs.folder import RunFolder
from report.pages import Page
from report.runs import graph_of, made_up_score


@settings(max_examples=40)
@given(st.integers(1, 3000), st.integers(1, 300), st.integers(0, 10**6), st.sampled_from(["cloud", "line", "same"]))
def test_all_points_are_drawn_or_close_to_one_that_is_as_high(count: int, limit: int, seed: int, kind: str) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.random((2, count))
    if kind == "line":
        y = x.copy()
    if kind == "same":
        y[:] = 3.0
    drawn = visible(x, y, limit, [0])
    assert 0 in drawn
    assert len(drawn) <= max(limit + 1, 1)
    assert (np.diff(drawn) > 0).all()
    if count <= limit:
        assert len(drawn) == count
    assert y[drawn].max() == y.max()
    assert drawn[0] == 0


def test_points_that_can_be_distinguished_are_all_drawn() -> None:
    columns, rows = np.meshgrid(np.arange(40), np.arange(20))
    x, y = columns.ravel() / 39, rows.ravel() / 19  # 20 pixels apart
    twice = np.concatenate([x, x + DOT / PIXELS[0] / 100]), np.concatenate([y, y - DOT / PIXELS[1] / 100])
    assert len(visible(x, y, 800)) == 800
    assert len(visible(*twice, 1500)) <= 1500
    kept = visible(*twice, 1500)
    corners = {(round(a * 39), round(b * 19)) for a, b in zip(twice[0][kept], twice[1][kept], strict=True)}
    assert len(corners) == 800


@pytest.mark.parametrize("values", [[1e308, -1e308, 0.0, 5.0], [2.0, 2.0, 2.0, 2.0]])
def test_any_range_of_values_is_drawn(values: list[float]) -> None:
    assert len(visible(np.arange(4.0), np.array(values), 2)) <= 2


def test_a_page_is_thinned_only_if_it_has_too_many_points() -> None:
    assert limit_per_figure(thinning.POINTS_PER_PAGE, 5) == thinning.POINTS_PER_PAGE
    assert limit_per_figure(thinning.POINTS_PER_PAGE + 1, 5) == thinning.POINTS_PER_PAGE // 5
    assert limit_per_figure(10**6, 10**4) == thinning.FEWEST_POINTS


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with 3,000 candidates of resnet20."""
    folder = RunFolder(tmp_path_factory.mktemp("long") / "run")
    graph = graph_of()
    generator = np.random.default_rng(0)
    rows = np.unique(generator.integers(1, np.asarray(graph.full) + 1, size=(3000, len(graph.full))), axis=0)
    order = generator.permutation(len(rows))
    records = [
        {"number": number, "generation": number // 10, "counts": row, "score": made_up_score(graph, row)}
        for number, row in enumerate(rows[order].tolist())
    ]
    folder.write_json(GRAPH, graph.to_json())
    folder.write_log(HISTORY, records)
    return folder.path


@pytest.mark.slow
def test_a_thinned_page_is_small_and_has_the_exact_front_and_best(
    long_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(thinning, "POINTS_PER_PAGE", 10**6)
    whole = Page(write_report(long_run, tmp_path / "whole.html"))
    monkeypatch.setattr(thinning, "POINTS_PER_PAGE", 600)
    thin = Page(write_report(long_run, tmp_path / "thin.html"))
    assert thin.figures.keys() == whole.figures.keys()
    lines = [json.loads(line) for line in (long_run / HISTORY).read_text().splitlines()]
    best = 100 * max(line["score"] for line in lines)
    for name in ("run0-cost-macs", "run0-cost-params", "run0-search"):
        all_points, points = ({trace["name"]: trace for trace in each.figures[name]["data"]} for each in (whole, thin))
        assert len(all_points["tried"]["x"]) == 3000
        assert len(points["tried"]["x"]) < 250
        assert len(points["tried"]["hovertext"]) == len(points["tried"]["x"])
        assert best in points["tried"]["y"]
        drawn = set(zip(points["tried"]["x"], points["tried"]["y"], strict=True))
        assert drawn <= set(zip(all_points["tried"]["x"], all_points["tried"]["y"], strict=True))
        if name != "run0-search":
            assert points["Pareto front"] == all_points["Pareto front"]
            assert drawn >= set(zip(points["Pareto front"]["x"], points["Pareto front"]["y"], strict=True))
    assert "points, those that would be covered by others are left out" in thin.text
    assert "left out" not in whole.text
    steps = {trace["name"]: trace for trace in thin.figures["run0-search"]["data"]}["best so far"]
    every = {trace["name"]: trace for trace in whole.figures["run0-search"]["data"]}["best so far"]
    level = dict(zip(every["x"], every["y"], strict=True))
    assert [level[number] for number in steps["x"]] == steps["y"]
    assert set(steps["y"]) == set(every["y"])


@pytest.mark.slow
def test_the_runs_of_a_page_share_its_points(long_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The more runs a page shows, the fewer points has each of its figures, so that its size is bounded."""
    monkeypatch.setattr(thinning, "POINTS_PER_PAGE", 4000)
    one = page.read_run(long_run, "one")
    texts = [page.page_of([one]), page.page_of([one] * 8)]
    drawn = []
    for place, text in enumerate(texts):
        (tmp_path / f"{place}.html").write_text(text)
        figures = Page(tmp_path / f"{place}.html").figures
        tried = [trace for figure in figures.values() for trace in figure["data"] if trace["name"] == "tried"]
        drawn.append(sum(len(trace["x"]) for trace in tried))
    fronts = 50 * 60  # points on fronts, which every figure keeps
    assert max(drawn) < 4000 + fronts
    assert drawn[1] < 2 * drawn[0]
