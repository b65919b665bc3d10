"""Execution: how the network of a structure is run while it is scored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torch import nn

from aacp.estimate.inheritance import Inheritance
from aacp.pytorch.layout import guard


class Execution(Protocol):
    """Turns one structure after another into a network that can be scored."""

    def network(self, structure: Iterable[int]) -> nn.Module:
        """The network with this structure, in evaluation mode; valid until the next call."""


class Sliced:
    """The plain execution: a network that is really cut is made and scored."""

    def __init__(self, inheritance: Inheritance) -> None:
        self._inheritance = inheritance

    def network(self, structure: Iterable[int]) -> nn.Module:
        network = self._inheritance.scored_network(structure).requires_grad_(False)  # a score may forget torch.no_grad
        guard(network)
        return network
