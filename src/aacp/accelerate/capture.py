"""CapturedUpdate: a training step recorded once as a CUDA graph and then replayed."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from aacp.pytorch.gpus import new_stream, recording, run_apart
from aacp.pytorch.internals import is_synchronisation
from aacp.train.update import PlainUpdate

WARM_UP_STEPS = 3  # before a capture: libraries allocate memory and choose their algorithms in these


class CapturedUpdate:
    """An update that is recorded once and replayed: most of a small network's step is the launching of kernels.

    The first steps run without a graph, and so does any batch of another shape. A network that waits for the device, to
    look at a value it computed, cannot be recorded: all its steps run without a graph.
    """

    def __init__(self, update: PlainUpdate) -> None:
        self.update = update
        self.warm_up = WARM_UP_STEPS
        self.is_possible = True
        self.stream = new_stream(update.fabric.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Any, targets: Any, lr: float) -> Tensor:
        self.update.set_lr(lr)
        if not (self.is_possible and isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
            return self._run(inputs, targets)
        if self.warm_up:
            self.warm_up -= 1
            return self._run(inputs, targets) if self.warm_up else self._run_watched(inputs, targets)
        if self.graph is None:
            self._capture(inputs, targets)
        if self.graph is None or (inputs.shape, targets.shape) != (self.inputs.shape, self.targets.shape):
            return self._run(inputs, targets)
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.graph.replay()
        return self.outcome.clone()

    def _run(self, inputs: Any, targets: Any) -> Tensor:
        """A step without a graph, on the stream of the capture: what libraries prepare may belong to a stream."""
        return run_apart(lambda: self.update.step(inputs, targets), self.stream)

    def _run_watched(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """A step without a graph that finds out whether it waits for the device.

        Capturing such a step would fail, and a failed capture leaves torch in an undefined state.
        """
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                outcome = self._run(inputs, targets)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        if any(map(is_synchronisation, caught)):
            self._give_up("the network waits for the device")
        return outcome

    def _capture(self, inputs: Tensor, targets: Tensor) -> None:
        """Record the update without running it."""
        self.inputs = inputs.clone()
        self.targets = targets.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, self.stream):
                self.outcome = self.update.step(self.inputs, self.targets)
        except RuntimeError as error:
            self._give_up(str(error).splitlines()[0])
        else:
            self.graph = graph

    def _give_up(self, reason: str) -> None:
        sys.stderr.write(f"The training step runs without a CUDA graph, because it cannot be captured: {reason}.\n")
        self.is_possible = False
