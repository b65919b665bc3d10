"""A small trained network and little data, for all tests of the pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import aacp
from aacp.graph import tracing
from aacp.graph.tracing import prepare
from aacp.graph.verification import Verifier
from aacp.pipeline import pruning
from aacp.train.recipe import DIGITS


@pytest.fixture(scope="session")
def data() -> aacp.Data:
    whole = aacp.load_data("digits")
    return replace(whole, train=whole.train.subset(range(300)), test=whole.test.subset(range(100)))


@pytest.fixture(scope="session")
def model(data: aacp.Data) -> torch.nn.Module:
    torch.manual_seed(0)
    network = aacp.build_model("digits_resnet")
    aacp.fit(network, data.train, DIGITS.scaled(3))
    return network


@pytest.fixture(scope="session")
def example(data: aacp.Data) -> torch.Tensor:
    return next(aacp.Batches.of(data.holdout, images=1).inputs())


@pytest.fixture(scope="session")
def graph(model: torch.nn.Module, example: torch.Tensor) -> aacp.ChannelGraph:
    return aacp.trace(model, example)


@pytest.fixture(scope="session")
def bench(model: torch.nn.Module, example: torch.Tensor) -> Verifier:
    return prepare(model, example)


@pytest.fixture
def traced_before(graph: aacp.ChannelGraph, bench: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run traces, and sets up to compare its structure on, is the same in every run: made once for all."""
    monkeypatch.setattr(pruning, "trace", lambda *_, **__: graph)
    monkeypatch.setattr(tracing, "prepare", lambda *_: bench)
