"""TrainedAs: which network is optimised, and how its state translates to that of the user's network.

An accelerated run may optimise another network in place of the user's, such as a wider one. The user's network has the
result in the end, and checkpoints always hold the user's shapes, so that a run may be resumed either way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from aacp.acceleration import accelerated
from aacp.train.device_batches import DeviceBatches
from aacp.train.loader_batches import LoaderBatches

if TYPE_CHECKING:
    from lightning_fabric import Fabric

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


def accelerated_network(
    model: nn.Module,
    source: DeviceBatches | LoaderBatches,
    fabric: Fabric,
    steps: int,
    is_replaceable: bool,
) -> AbstractContextManager[TrainedAs]:
    """The network to optimise for a model, in a form that suits the device while the context lasts.

    Args:
        model: the user's network, which has the trained weights after the context.
        source: the training data.
        fabric: the devices.
        steps: how many steps the run has; preparations take time that few steps do not repay.
        is_replaceable: whether another network may be optimised in place of the model.
    """
    found: AbstractContextManager[TrainedAs] | None = accelerated(
        "network_for", model, source, fabric, steps, is_replaceable
    )
    return nullcontext(TrainedDirectly(model)) if found is None else found
