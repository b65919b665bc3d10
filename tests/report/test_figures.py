"""Figures contain the values of the run files, in a form that plotly accepts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from aacp.channels.elements import ChannelGroup
from aacp.channels.graph import ChannelGraph
from aacp.report.channels import channels_figure
from aacp.report.curves import training_figure
from aacp.report.page import write_report
from aacp.report.run import Run
from aacp.runs.chosen import ChosenStructure
from aacp.runs.scores import Epoch
from report.pages import Page
from report.runs import Made, copy_of, sweep_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures(made: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Page(write_report(made.path, tmp_path_factory.mktemp("page") / "page.html")).figures


def traces(figure: Any) -> dict[str, Any]:
    return {trace["name"]: trace for trace in figure["data"]}


def history(made: Made) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (made.path / "history.jsonl").read_text().splitlines()]


def test_plotly_knows_every_property_of_every_figure(made: Made, tmp_path: Path) -> None:
    several = Page(write_report([run.path for run in sweep_of(made, tmp_path / "sweep")])).figures
    assert len(several) == 5 + 4 * 9
    for figure in several.values():
        go.Figure(figure)  # rejects unknown properties


def test_bars_are_what_each_group_keeps_of_its_width(made: Made, figures: dict[str, Any]) -> None:
    shown = traces(figures["run0-channels"])
    groups = json.loads((made.path / "graph.json").read_text())["groups"]
    counts = json.loads((made.path / "structure.json").read_text())["counts"]
    free = [place for place, group in enumerate(groups) if group["frozen"] is None]
    assert shown["kept"]["x"] == free
    widths = [groups[place]["width"] for place in free]
    assert shown["kept"]["y"] == pytest.approx([100 * kept / width for kept, width in zip(counts, widths, strict=True)])
    assert shown["frozen"]["x"] == [len(groups) - 1]
    assert shown["frozen"]["marker"]["pattern"]["shape"]
    assert "frozen: network output" in shown["frozen"]["hovertext"][0]
    text = shown["kept"]["hovertext"][0].replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith(
        f"<b>conv1</b><br>{counts[0]} of 16 channels ({100 * counts[0] / 16:g} %)<br>layers: conv1, "
    )


def test_the_search_curve_has_every_candidate_and_the_best_so_far(made: Made, figures: dict[str, Any]) -> None:
    shown, lines = traces(figures["run0-search"]), history(made)
    assert shown["tried"]["y"] == pytest.approx([100 * line["score"] for line in lines])
    best = 0.0
    for value, line in zip(shown["best so far"]["y"], lines, strict=True):
        best = max(best, 100 * line["score"])
        assert value == pytest.approx(best)
    text = shown["tried"]["hovertext"][17]
    assert "number 17" in text
    assert f"generation {lines[17]['generation']}" in text
    assert "MACs" in text
    assert "parameters" in text
    chosen = next(line["number"] for line in lines if tuple(line["counts"]) == made.choice.counts)
    assert shown["chosen"]["x"] == [chosen]


@pytest.mark.parametrize("cost", ["macs", "params", "weight_bytes", "activation_bytes"])
def test_nothing_that_was_tried_is_above_the_front(figures: dict[str, Any], cost: str) -> None:
    shown = traces(figures[f"run0-cost-{cost}"])
    dots = list(zip(shown["tried"]["x"], shown["tried"]["y"], strict=True))
    front = list(zip(shown["Pareto front"]["x"], shown["Pareto front"]["y"], strict=True))
    unbeaten = {(x, y) for x, y in dots if not any((a <= x and b > y) or (a < x and b >= y) for a, b in dots)}
    assert set(front) == unbeaten
    assert front == sorted(front)


def test_the_training_curve_is_the_log(made: Made, figures: dict[str, Any]) -> None:
    shown = traces(figures["run0-training"])
    log = [json.loads(line) for line in (made.path / "training" / "log.jsonl").read_text().splitlines()]
    assert shown["loss"]["y"] == [line["loss"] for line in log]
    assert shown["learning rate"]["y"] == [line["lr"] for line in log]
    assert shown["held-out"]["y"] == pytest.approx([100 * line["holdout"] for line in log])


def test_training_without_held_out_data_has_no_such_line() -> None:
    figure = training_figure(Run("r", epochs=(Epoch(1, 0.1, 2.0, None, None, 1.0, 10.0),)))
    assert figure is not None
    assert [trace["name"] for trace in figure.traces] == ["loss", "learning rate"]


def many_groups(names: list[str]) -> ChannelGraph:
    return ChannelGraph("net", tuple(ChannelGroup(name, 8, 2, ()) for name in names), (), (), ())


def test_many_groups_are_named_by_the_stage_they_begin() -> None:
    names = ["conv1", *(f"layer{stage}.{block}.conv1" for stage in (1, 2, 3) for block in range(20))]
    graph = many_groups(names)
    figure = channels_figure(Run("r", graph=graph, choice=ChosenStructure((4,) * 61, 0.5, ())))
    assert figure is not None
    assert figure.layout["xaxis"]["ticktext"] == ["conv1", "layer1", "layer2", "layer3"]
    assert figure.layout["xaxis"]["tickvals"] == [0, 1, 21, 41]
    said = "488 of 976 channels, 50 %. Channels that several layers share are counted once."
    assert figure.caption.replace("\N{NO-BREAK SPACE}", " ").endswith(said)


def test_bars_of_frozen_groups_do_not_cover_their_neighbours() -> None:
    """plotly makes bars without a width as wide as the smallest distance within their trace."""
    groups = [ChannelGroup(f"g{place}", 8, 1, (), "by hand" if place in (2, 9) else None) for place in range(12)]
    graph = ChannelGraph("net", tuple(groups), (), (), ())
    figure = channels_figure(Run("r", graph=graph, choice=ChosenStructure((4,) * 10, 0.5, ())))
    assert figure is not None
    assert [trace["name"] for trace in figure.traces] == ["unpruned", "kept", "frozen"]
    assert all(0 < trace["width"] < 1 for trace in figure.traces)


def test_a_traced_network_shows_its_widths_in_channels() -> None:
    figure = channels_figure(Run("r", graph=many_groups(["a", "b"])))
    assert figure is not None
    assert figure.traces[0]["y"] == [16, 16]


def test_a_history_with_a_score_that_is_not_a_number_is_named_as_damaged(made: Made, tmp_path: Path) -> None:
    run = copy_of(replace(made), tmp_path / "odd").path
    with (run / "history.jsonl").open("a") as file:
        counts = list(made.graph.full)
        file.write(json.dumps({"number": 60, "generation": 59, "counts": counts, "score": float("-inf")}) + "\n")
    assert re.search(r"Line 61 of \S+history.jsonl is damaged: it holds -Infinity", Page(write_report(run)).text)
