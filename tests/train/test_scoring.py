"""Data to score on: the score is the same whether they are kept or streamed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from aacp.data.batches import Batches
from aacp.data.scores import accuracy
from aacp.train import scoring
from aacp.train.scoring import Streamed, scoring_batches
from train.small_data import network, pictures

CPU = torch.device("cpu")


def test_what_no_memory_holds_is_streamed_and_scores_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images, model = pictures(60), network().eval()
    data = TensorDataset(images.normalised(images.pixels), images.labels)
    kept = scoring_batches(data, CPU)
    assert type(kept) is Batches
    monkeypatch.setattr(scoring, "MAX_KEPT", 1000)
    monkeypatch.setattr(scoring, "BATCH", 25)
    streamed = scoring_batches(data, CPU)
    assert isinstance(streamed, Streamed)
    assert (len(streamed), streamed.images) == (3, 60)
    assert accuracy(model, streamed) == accuracy(model, streamed) == accuracy(model, kept)
    assert type(scoring_batches(images, CPU)) is Batches  # pictures as bytes are small
