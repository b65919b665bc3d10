"""Average: a moving average of a network's weights, which often scores better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from aacp.pytorch.internals import interpolate_each


class Average:
    """The exponential moving average of every floating-point parameter and statistic of a network."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        state = model.state_dict(keep_vars=True)
        first = {id(tensor): name for name, tensor in reversed(state.items())}  # of tied weights, which have two names
        self.names = [name for name in first.values() if state[name].is_floating_point()]
        self.follow(model)
        self._kept = [tensor.clone() for tensor in self._live]

    def follow(self, model: nn.Module) -> None:
        """Average the present tensors of the network from now on, which may be new ones with the same values."""
        state = model.state_dict()
        self._live = [state[name] for name in self.names]

    def update(self) -> None:
        """Move the average towards the present weights."""
        with torch.no_grad():
            interpolate_each(self._kept, self._live, 1 - self.decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the network its averaged weights while the context lasts."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the network and their average."""
        for live, kept in zip(self._live, self._kept, strict=True):
            present = live.clone()
            live.copy_(kept)
            kept.copy_(present)

    def state(self) -> dict[str, Tensor]:
        """The averaged tensors by name."""
        return dict(zip(self.names, self._kept, strict=True))

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Replace the averaged tensors by saved ones."""
        for name, kept in zip(self.names, self._kept, strict=True):
            kept.copy_(state[name])
