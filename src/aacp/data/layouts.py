"""The memory layout in which a network computes fastest on data, and a network that is ready to be scored on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.data.examples import call, copied
from aacp.pytorch.layout import PLAIN, guarded, laid_out, usable_layout
from aacp.pytorch.modules import evaluating


def computing_layout(model: nn.Module, batches: Batches) -> torch.memory_format:
    """The memory layout in which a network without gradients computes fastest, as far as its code runs with it.

    On a GPU that is not the way to speed, but masked execution.
    """
    if batches.device.type != "cpu":
        return PLAIN
    return usable_layout(model, lambda network: call(network, copied(batches.example())))


@contextmanager
def ready_to_score(model: nn.Module, example: Batches) -> Iterator[None]:
    """A network in evaluation mode and in the layout in which it computes fastest, guarded: see `guard`.

    Args:
        model: the network, on the device of the data.
        example: data of which the first example is tried.
    """
    with evaluating(model), laid_out(model, computing_layout(model, example)), guarded(model):
        yield
