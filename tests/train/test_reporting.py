"""The progress of a run: nothing by default, a line for each epoch in a file, a bar on a terminal."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from aacp.errors import InvalidOption
from aacp.runs.scores import Epoch
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.reporting import summary_line
from aacp.user.progress import show_progress
from train.small_data import network, small_images

RECIPE = Recipe(epochs=2, batch_size=16, lr=0.1)


def test_nothing_is_printed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    fit(network(), small_images(), RECIPE, device="cpu")
    assert capsys.readouterr() == ("", "")


def test_each_epoch_is_a_line_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress():
        fit(network(), small_images(), RECIPE, device="cpu", holdout=small_images(20))
    out, err = capsys.readouterr()
    assert out == ""
    heading, first, second = err.splitlines()
    assert heading == "training: epochs=2, batch_size=16, lr=0.1"
    assert first.startswith("epoch 1/2: loss ")
    assert "hold-out 0." in second or "hold-out 1." in second


def test_epochs_that_an_earlier_call_has_finished_are_counted(tmp_path: Path, capsys) -> None:
    fit(network(), small_images(), RECIPE, folder=tmp_path, device="cpu", until=1)
    said = []
    for _ in range(2):
        with show_progress():
            fit(network(), small_images(), RECIPE, folder=tmp_path, device="cpu")
        said.append([line.partition(": loss")[0] for line in capsys.readouterr().err.splitlines()[1:]])
    assert said == [["1 epoch done before", "epoch 2/2"], ["2 epochs done before"]]


def test_the_batch_size_of_a_loader_wins_and_is_the_one_that_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for loader, size in (
        (DataLoader(small_images(), batch_size=24), 24),
        (DataLoader(small_images(), batch_sampler=[[0, 1, 2], [3, 4, 5]]), 16),  # it does not tell
    ):
        with show_progress():
            fit(network(), loader, replace(RECIPE, epochs=1), folder=tmp_path / str(size), device="cpu")
        heading, _ = capsys.readouterr().err.splitlines()
        assert heading == f"training: epochs=1, batch_size={size}, lr=0.1; batches as the loader gives them"
        assert json.loads((tmp_path / str(size) / "run.json").read_text())["recipe"]["batch_size"] == size


def test_a_terminal_sees_a_bar_with_the_last_accuracies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    with show_progress():
        trained = fit(network(), small_images(), RECIPE, device="cpu")
    _, err = capsys.readouterr()
    assert "2/2" in err
    assert f"training accuracy {trained.last.accuracy:.4f}" in err


def test_what_an_epoch_does_not_know_is_left_out() -> None:
    assert summary_line(Epoch(1, 0.1, 0.5, None, None, 1.0, 2000.0)) == "loss 0.5000, 2,000 examples/s"


def test_tensorboard_is_written_if_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, place: str) -> None:
            assert place == str(tmp_path / "tensorboard")

        def add_scalar(self, name: str, value: float, epoch: int) -> None:
            written.append((name, value, epoch))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    trained = fit(network(), small_images(), RECIPE, folder=tmp_path, device="cpu", tensorboard=True)
    assert ("loss", trained.last.loss, 2) in written
    assert written[-1][0] == "closed"
    with pytest.raises(InvalidOption, match="the run has no folder"):
        fit(network(), small_images(), RECIPE, device="cpu", tensorboard=True)
