"""Data to score on: the score is the same whether they are kept or streamed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from aacp.data import memory
from aacp.data.scores import accuracy
from aacp.train.scoring import scoring_batches
from train.small_data import network, small_images

CPU = torch.device("cpu")


def test_data_scores_the_same_whether_it_is_kept_or_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    images, model = small_images(60), network().eval()
    data = TensorDataset(images.normalised(images.pixels), images.labels)
    kept = scoring_batches(data, CPU)
    assert not kept.is_streamed
    monkeypatch.setitem(memory.BATCH_SIZE, "cpu", 25)
    streamed = scoring_batches(data, CPU, keep=False)
    assert streamed.is_streamed
    assert (len(streamed), streamed.images) == (3, 60)
    assert accuracy(model, streamed) == accuracy(model, streamed) == accuracy(model, kept)
