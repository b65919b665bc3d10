"""TrainedAs: which network is optimised, and how its state translates to that of the user's network.

An accelerated run may optimise another network in place of the user's, such as a wider one. The user's network has the
result in the end, and checkpoints always hold the user's shapes, so that a run may be resumed either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

State = dict[str, Tensor]


class TrainedAs(Protocol):
    """The network that is optimised, and the translation of tensors that are named as in its state."""

    @property
    def network(self) -> nn.Module:
        """The network that is optimised."""

    def own(self, state: State) -> State:
        """Tensors of the optimised network in the shapes of the user's network."""

    def grown(self, state: State) -> State:
        """Tensors of the user's network in the shapes of the optimised network."""


@dataclass(frozen=True)
class TrainedDirectly:
    """The plain form: the user's network is optimised itself."""

    network: nn.Module

    def own(self, state: State) -> State:
        return state

    def grown(self, state: State) -> State:
        return state
