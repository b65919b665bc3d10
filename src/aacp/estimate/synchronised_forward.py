"""Lockstep: batches that go through a network side by side and meet at every batch norm.

Each batch has a thread of its own, only ever one of which runs: a forward pass that can be put down and taken up again
at a batch norm. So all batches reach a batch norm before any of them passes it, whatever the network's code is, and
what it holds at a time stays as small as a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from aacp.data.batches import Batches, call
from aacp.errors import AACPError, InvalidData, first_line
from aacp.estimate.moments import Moments
from aacp.torch_internals import pytree

Meeting = tuple[str, Moments]  # the batch norm that was reached, and what all batches bring there


class _Abandoned(BaseException):
    """Another batch has failed: this one need not go on. Nor may the model's code catch it."""


class Lockstep:
    """All batches on their way through one network."""

    def __init__(self, model: nn.Module, norms: dict[str, nn.Module], batches: Batches) -> None:
        self._model, self._norms = model, norms
        self._walkers = [_Walker(self._forward, inputs) for inputs in batches.inputs()]
        self._autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in KINDS]

    def meetings(self) -> Iterator[Meeting]:
        """Each batch norm as it is reached, with what all batches bring there; then they go on."""
        hooks = [self._norms[name].register_forward_pre_hook(self._meet(name)) for name in self._norms]
        try:
            while (places := {walker.advance() for walker in self._walkers}) != {None}:
                if len(places) > 1:
                    raise InvalidData(
                        f"Batches go different ways through the network: they are at {sorted(map(str, places))}. "
                        "Give the calibration images in one batch."
                    )
                # Paper: "post-statistics" of some batches. These are exact over all images, however they are split.
                yield str(places.pop()), Moments.joined(walker.brought for walker in self._walkers)
        finally:
            for walker in self._walkers:
                walker.abandon()
            for hook in hooks:
                hook.remove()

    def _meet(self, name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        def meet(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            walker = threading.current_thread()
            if isinstance(walker, _Walker):
                walker.wait_at(name, Moments.of(arguments[0]))

        return meet

    def _forward(self, inputs: Any) -> None:
        """One batch, in the modes of the thread that began: torch keeps them per thread."""
        with torch.no_grad():
            for kind, enabled, dtype in self._autocast:
                torch.set_autocast_enabled(kind, enabled)
                torch.set_autocast_dtype(kind, dtype)
            run(self._model, inputs)


KINDS = ("cpu", "cuda")


def run(model: nn.Module, inputs: Any) -> None:
    """The network on a copy of its inputs, since its code may write into them."""
    try:
        call(model, pytree.tree_map_only(torch.Tensor, torch.clone, inputs))
    except (AACPError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever the model's own code raises
        raise InvalidData(
            f"{type(model).__name__} does not run on the calibration images: {first_line(error)}. "
            "Give images of the shape that it was made for."
        ) from error


class _Walker(threading.Thread):
    """One batch on its way: it runs from one batch norm to the next when it is told to."""

    def __init__(self, forward: Callable[[Any], None], inputs: Any) -> None:
        super().__init__(daemon=True)
        self._forward, self._inputs = forward, inputs
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._place: str | None = None
        self._error: BaseException | None = None
        self._is_abandoned = False
        self.brought: Moments  # set before anyone asks

    def run(self) -> None:
        try:
            self._forward(self._inputs)
        except BaseException as error:  # for the thread that waits, whatever it is
            self._error = error
        self._place = None
        self._back.release()

    def advance(self) -> str | None:
        """Go on to the next batch norm, and say which; None at the end of the network."""
        if self.ident is None:
            self.start()
        else:
            self._turn.release()
        self._back.acquire()
        if self._error is None:
            return self._place
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # it holds the frames of a whole pass: nothing may hold it once it is handled

    def wait_at(self, name: str, brought: Moments) -> None:
        """Called on the way: tell where we are, and wait for the others."""
        self._place, self.brought = name, brought
        self._back.release()
        self._turn.acquire()
        if self._is_abandoned:
            raise _Abandoned

    def abandon(self) -> None:
        """End the way, wherever it is."""
        self._is_abandoned = True
        if self.ident is not None:
            self._turn.release()
            self.join()
