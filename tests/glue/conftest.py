"""A trained tiny network for all tests of the glue."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.runtimes.torch import torch_threads
from glue.subjects import Tiny, data

RECIPE = aacp.Recipe(epochs=1, batch_size=16, lr=0.02, distillation=0.5)


@pytest.fixture(scope="session")
def recipe() -> aacp.Recipe:
    """One epoch, half of whose loss comes from a teacher."""
    return RECIPE


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks as small as these lose more by a second thread than they gain."""
    with torch_threads(1):
        yield


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A trained network whose criteria of importance disagree: scales of batch norms do not follow the filters."""
    return trained()


@functools.cache
def trained() -> nn.Module:
    torch.manual_seed(0)
    network = Tiny()
    aacp.fit(network, data().train, replace(RECIPE, epochs=6, lr=0.05, distillation=0.0), device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.mul_(0.5 + torch.rand(module.weight.shape, generator=generator))
    return network.eval()
