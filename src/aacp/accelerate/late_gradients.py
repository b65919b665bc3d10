"""LateGradients: gradients of weights on a CUDA stream of their own.

A convolution computes two gradients. The backward pass needs that of the inputs to continue with the layer before, and
nothing needs that of the weights before the optimiser. In small networks neither fills a GPU, so both run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor

from aacp.pytorch.gpus import new_stream

_collecting: ContextVar[LateGradients | None] = ContextVar("collecting", default=None)


class LateGradients:
    """The gradients of some weights, which a backward pass leaves here instead of in the weights."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = {id(weight): weight for weight in weights}
        self.stream = new_stream(weights[0].device) if weights and weights[0].is_cuda else None
        # Each weight, its gradient, and the tensors that the gradient is computed from. They are kept, because their
        # memory must not be used again before the gradient is computed.
        self._found: list[tuple[Tensor, Tensor, tuple[Tensor, ...]]] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the gradients for forward passes in this context; their backward passes may come later."""
        self._found.clear()  # gradients that an interrupted step left
        token = _collecting.set(self)
        try:
            yield
        finally:
            _collecting.reset(token)

    def has(self, weight: Tensor) -> bool:
        """Whether the gradient of a weight is collected."""
        return id(weight) in self._weights

    def compute(self, weight: Tensor, gradient: Callable[..., Tensor], *inputs: Tensor) -> None:
        """Begin to compute the gradient of a weight from tensors of the current stream."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self._found.append((weight, gradient(*inputs), inputs))

    def take(self) -> list[tuple[Tensor, Tensor]]:
        """Each weight with its gradient, which the current stream may use; a weight that was used twice has two."""
        if self.stream is not None and self._found:  # a capture fails if it waits for a stream that has no part in it
            torch.cuda.current_stream().wait_stream(self.stream)
        found = [(weight, gradient) for weight, gradient, _ in self._found]
        self._found.clear()
        return found


def late_gradients_of(weight: Tensor) -> LateGradients | None:
    """The collector of the gradient of a weight in this forward pass; None if the weight itself gets the gradient."""
    late = _collecting.get()
    return late if late is not None and late.has(weight) else None
