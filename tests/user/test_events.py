"""Events: what a callback hears of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aacp
from aacp.user.events import emit
from pipeline.tiny_run import UNTRAINED, pruned


def heard(folder: Path, **others: object) -> list[aacp.Event]:
    events: list[aacp.Event] = []
    with aacp.listen(events.append):
        pruned(folder, **others)
    return events


@pytest.mark.slow
def test_a_run_reports_its_stages_evaluations_and_epochs_in_order(tmp_path: Path) -> None:
    events = heard(tmp_path)
    stages = [event.name for event in events if event.kind == "stage"]
    assert stages == ["trace", "search", "train", "evaluate", "done"]
    scores = [event.values["score"] for event in events if event.kind == "evaluation"]
    recorded = [json.loads(line)["score"] for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert scores == recorded
    best = [event.values["best"] for event in events if event.kind == "evaluation"]
    assert best == [max(scores[: place + 1]) for place in range(len(scores))]
    epochs = [event for event in events if event.kind == "epoch"]
    assert [epoch.step for epoch in epochs] == [1, 2]
    assert {"loss", "lr", "holdout"} <= epochs[0].values.keys()
    assert epochs[0].folder.startswith(str(tmp_path))
    assert events[-1].values["after/macs"] <= 0.6 * events[-1].values["before/macs"]


@pytest.mark.slow
def test_a_run_that_is_finished_reports_its_result_alone(tmp_path: Path) -> None:
    pruned(tmp_path, plan=UNTRAINED)
    assert [event.name for event in heard(tmp_path, plan=UNTRAINED)] == ["done"]


def test_nobody_hears_what_happens_after_the_block_or_after_an_error() -> None:
    events: list[aacp.Event] = []

    def fail() -> None:
        with aacp.listen(events.append):
            emit(aacp.Event("stage", "first"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    emit(aacp.Event("stage", "second"))
    assert [event.name for event in events] == ["first"]


def test_several_listeners_hear_the_same() -> None:
    outer: list[aacp.Event] = []
    inner: list[aacp.Event] = []
    with aacp.listen(outer.append):
        with aacp.listen(inner.append):
            emit(aacp.Event("stage", "both"))
        emit(aacp.Event("stage", "one"))
    assert [event.name for event in outer] == ["both", "one"]
    assert [event.name for event in inner] == ["both"]


@pytest.mark.slow
def test_an_error_of_a_callback_ends_the_run_and_the_same_call_resumes(tmp_path: Path) -> None:
    def fail(event: aacp.Event) -> None:
        if event.step == 3:
            raise ConnectionError("the server is away")

    with pytest.raises(ConnectionError, match="the server is away"), aacp.listen(fail):
        pruned(tmp_path, plan=UNTRAINED)
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 3
    resumed = pruned(tmp_path, plan=UNTRAINED)
    whole = pruned(tmp_path / "whole", plan=UNTRAINED)
    assert resumed.choice == whole.choice
