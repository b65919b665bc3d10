"""A small trained network and little data, for all tests of the pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import aacp
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
