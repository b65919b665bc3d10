"""Scores of networks are finite numbers, or an error that names the data and the function."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import aacp
from aacp.data import memory
from aacp.data.scores import WatchedBatches, accuracy, scored
from aacp.errors import AACPError, InvalidData, InvalidScore
from aacp.train.job import _test_accuracy
from aacp.train.loop import fit
from aacp.user.progress import show_progress

INPUTS = torch.arange(24.0).reshape(8, 3)
LABELS = torch.arange(8) % 3
RECIPE = aacp.Recipe(epochs=1, batch_size=4, lr=0.01)


def batches(inputs: torch.Tensor = INPUTS) -> WatchedBatches:
    return WatchedBatches(aacp.Batches.of((inputs, LABELS), batch_size=3))


def with_nan() -> torch.Tensor:
    broken = INPUTS.clone()
    broken[-1, 0] = math.nan
    return broken


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


def failing(network: nn.Module, batches: aacp.Batches) -> float:
    raise KeyError("no such thing")


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "0.9", torch.ones(2)])
def test_a_score_that_is_not_a_finite_number_is_rejected_where_it_is_computed(value: Any) -> None:
    with pytest.raises(InvalidScore, match="The score on the test data is "):
        scored(lambda *_: value, network(), batches(), "test data")


def test_a_score_function_that_raises_is_named_with_its_line() -> None:
    with pytest.raises(InvalidScore, match=r"failed on the test data: KeyError: .* \(in failing, test_scored.py, line"):
        scored(failing, network(), batches(), "test data")


def test_data_scores_the_same_whether_it_is_kept_or_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(INPUTS, LABELS)
    kept = WatchedBatches(aacp.Batches.of(data))
    monkeypatch.setitem(memory.BATCH_SIZE, "cpu", 3)
    streamed = WatchedBatches(aacp.Batches.of(data, keep=False))
    assert (kept.is_streamed, streamed.is_streamed) == (False, True)
    assert (len(streamed), streamed.images) == (3, 8)
    assert accuracy(network(), streamed) == accuracy(network(), streamed) == accuracy(network(), kept)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_data_with_nan_are_rejected_whatever_the_score_makes_of_them(broken: float) -> None:
    inputs = INPUTS.clone()
    inputs[2, 1] = broken
    for score in (accuracy, lambda model, read: float(len(list(read)))):
        with pytest.raises(InvalidData, match="Test data: the inputs hold NaN or infinity"):
            scored(score, network(), batches(inputs), "test data")


def test_watched_batches_are_the_same_batches() -> None:
    plain = aacp.Batches.of((INPUTS, LABELS), batch_size=3)
    pairs = zip(plain, WatchedBatches(plain), strict=True)
    assert all(torch.equal(one[0], other[0]) and torch.equal(one[1], other[1]) for one, other in pairs)
    assert scored(accuracy, network(), batches(), "test data") == accuracy(network(), plain)


def test_a_long_score_reports_its_progress_and_a_short_one_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = WatchedBatches(batches(), "test data")
    with show_progress():
        accuracy(network(), named)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("aacp.user.progress.MAX_SILENCE", 0.0)
        accuracy(network(), named)
        assert capsys.readouterr().err.splitlines() == [
            f"scoring on the test data, {done} batches done" for done in range(3)
        ]
        accuracy(network(), batches())  # without a name it is a step of something that reports itself
        assert capsys.readouterr().err == ""


def test_outputs_that_are_nan_are_wrong_whatever_the_label_is() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full((len(x), 3), math.nan)

    assert accuracy(Broken(), aacp.Batches.of((INPUTS, torch.zeros(8, dtype=torch.int64)))) == 0


def test_a_network_that_cannot_read_the_data_is_an_error_of_the_data() -> None:
    with pytest.raises(InvalidData, match="Held-out data: the network does not run on them: RuntimeError"):
        scored(accuracy, nn.Linear(4, 3), batches(), "held-out data")


@pytest.mark.parametrize(
    ("score", "holdout", "error"),
    [
        (failing, INPUTS, InvalidScore),
        (lambda *_: math.nan, INPUTS, InvalidScore),
        (accuracy, with_nan(), InvalidData),
    ],
)
def test_training_rejects_scores_and_held_out_data_that_mean_nothing(
    score: Any, holdout: torch.Tensor, error: type[AACPError]
) -> None:
    with pytest.raises(error, match=r"[Hh]eld-out data"):
        fit(network(), (INPUTS, LABELS), RECIPE, holdout=(holdout, LABELS), score=score, device="cpu")


def test_the_test_accuracy_of_a_training_rejects_nan() -> None:
    from lightning_fabric import Fabric

    with pytest.raises(InvalidData, match="Test data: the inputs hold NaN"):
        _test_accuracy(network(), (with_nan(), LABELS), Fabric(accelerator="cpu", devices=1))
