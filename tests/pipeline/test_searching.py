"""The search as a stage of a run: what it says when it ends."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aacp
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget
from aacp.latency.check import LatencyCheck
from aacp.latency.timing import MedianInterval
from aacp.pipeline import searching
from aacp.pipeline.searching import Search
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.search.history import Candidate, History
from aacp.user.progress import show_progress
from pipeline import tiny_run
from pipeline.tiny_run import PLAN, UNTRAINED, pruned


@pytest.mark.slow
def test_a_search_that_finds_no_other_structure_says_so_and_suggests_a_finer_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress():
        found = pruned(tmp_path, plan=replace(UNTRAINED, pruning_step=1 / 2, evaluations=40))
    evaluated = len((tmp_path / "history.jsonl").read_text().splitlines())
    assert evaluated < 40
    assert found.choice.limits[0].holds
    said = capsys.readouterr().err
    assert f"The search ended after {evaluated} of 40 evaluations" in said
    assert "A finer step (--step, Plan.pruning_step)" in said


@pytest.mark.slow
def test_no_finer_step_is_suggested_if_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress():
        pruned(tmp_path, plan=replace(UNTRAINED, pruning_step=1, evaluations=2000))
    said = capsys.readouterr().err
    assert "of 2000 evaluations" in said
    assert "A finer step" not in said


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, method="uniform")], ids=["complete", "one structure"])
def test_a_search_that_ends_as_planned_does_not(plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress():
        pruned(tmp_path, plan=replace(plan, recipe=None, evaluations=2))
    assert "The search ended" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1], ids=["higher is better", "lower is better"])
def test_a_score_that_grows_as_networks_get_worse_is_noticed(sign: int, caplog: pytest.LogCaptureFixture) -> None:
    """The score is the distance of a network's outputs from those of the unpruned one, or its negative."""
    torch.manual_seed(0)
    model = tiny_run.network().eval()
    inputs = torch.randn(24, 1, 8, 8)
    wanted = model(inputs).detach()

    def score(network: torch.nn.Module) -> float:
        return -sign * float((network(inputs) - wanted).square().mean())

    with caplog.at_level(logging.WARNING, logger="aacp"), torch.no_grad():
        aacp.find(model, inputs, {"macs": 0.4}, plan=replace(PLAN, evaluations=8), score=score, device="cpu")
    assert ("If a lower score is better, return its negative" in caplog.text) == (sign < 0)


@pytest.mark.slow
def test_doubts_about_the_network_and_the_hold_out_are_logged_without_progress_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of these runs has no trained weights, and the hold-out is said to be known by heart."""
    monkeypatch.setattr("aacp.pipeline.pruning.warning_about_holdout", lambda task, plan: "It knows the hold-out.")
    pruned(tmp_path, plan=replace(UNTRAINED, evaluations=2))
    said = [record.getMessage() for record in caplog.records if record.name == "aacp"]
    assert [message.partition(": ")[2].partition(" right")[0] for message in said] == [
        "It knows the hold-out.",
        "The unpruned network is",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("importance", "are_prepared"), [("obs", True), ("l1", False)])
def test_the_search_gets_the_error_curves_that_obs_has_prepared(
    importance: str, are_prepared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    made = searching.searcher

    def noted(*arguments: Any, curves: Any, **options: Any) -> Any:
        given.append(curves)
        return made(*arguments, curves=curves, **options)

    monkeypatch.setattr(searching, "searcher", noted)
    plan = replace(PLAN, method="random", evaluations=1, importance=importance)
    inputs = torch.randn(24, 1, 8, 8)
    found = aacp.find(tiny_run.network(), inputs, {"macs": 0.4}, plan=plan, score=lambda _: 0.5, device="cpu")
    groups = {group.name for group in found.graph.free}
    assert [curves and set(curves.errors) for curves in given] == [groups if are_prepared else None]


class Table:
    """A latency table by which a structure takes as many seconds as its first group has channels."""

    elsewhere = False
    problem = ""

    def cost(self, graph: aacp.ChannelGraph) -> Cost:
        return Cost("latency", "s", 8.0, lambda kept: np.asarray(kept, dtype=float)[:, 0])


class Stage:
    """Measurements by which every structure takes a second more than by the table."""

    def check(self, structures: list[Structure], limit: aacp.Limit) -> list[LatencyCheck]:
        return [
            LatencyCheck(each, *(MedianInterval(value, value, value) for value in (each.counts[0] + 1, 0.5, 8.0)))
            for each in structures
        ]

    def find_steps(self) -> float:
        return 1 / 8


@pytest.mark.parametrize(
    ("elsewhere", "kept"),
    [
        pytest.param(False, [(4, 8), (2, 8)], id="measured here"),  # 5 takes 6 seconds when measured, 6 misses by table
        pytest.param(True, [(4, 8), (2, 8), (5, 8)], id="predicted for another device"),
    ],
)
def test_candidates_can_be_delivered_if_they_meet_the_limit_on_latency(
    elsewhere: bool, kept: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "elsewhere", elsewhere)
    task = PruningTask.of(tiny_run.network(), tiny_run.data(), None, torch.device("cpu"))
    graph = aacp.trace(task.model, task.example())
    budget = Budget.of({"latency": "5s"})
    folder, shared = aacp.RunFolder(tmp_path), SharedEstimate(task, PLAN)
    search = Search(task, graph, budget, PLAN, folder, History(), Stage(), shared, Table())
    candidates = [Candidate(n, 0, Structure((width, 8)), 0.5) for n, width in enumerate((4, 6, 2, 5))]
    choices = search.choices(candidates)
    assert [choice.counts for choice in choices] == kept
    assert {choice.limits[0].measured for choice in choices} == {not elsewhere}
