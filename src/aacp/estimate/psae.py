"""PSAE: the accuracy of a structure, estimated without training it.

The paper's Pruned Structure Accuracy Estimator: inherit the most important filters, recalibrate the batch norms, score
on held-out images. Calibration and held-out images come from the training data, never from the test data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

from aacp.acceleration import accelerated
from aacp.channels.structure import Structure
from aacp.data.batches import Batches
from aacp.data.scores import Score, accuracy, scored
from aacp.errors import InvalidOption, first_line
from aacp.estimate.execution import Execution, Sliced
from aacp.estimate.inheritance import Inheritance, require_finite
from aacp.estimate.recalibration import running_norms
from aacp.pytorch.gpus import current_gpu
from aacp.user.values import function

ExecutionName = Literal["auto", "sliced", "masked"]
EXECUTIONS = ("auto", "sliced", "masked")
BATCH_SIZE = {"cuda": 8192}  # held-out images that are scored at once; other devices have the default of Batches


class PSAE:
    """structure -> estimated score; deterministic, and computed once for each structure.

    Args:
        inheritance: how a structure becomes a network.
        holdout: images and targets that the network was not trained on: a loader, a data set, tensors or Batches. They
            are read once and kept if they fit into memory, and read for each structure otherwise.
        score: accuracy, or any function of (network, batches) that returns a number, larger is better.
        execution: "sliced" scores the network that would be delivered; "masked" gives the same scores up to rounding,
            faster on a GPU; "auto" chooses by the device.
        batch_size: held-out images that are scored at once; None chooses by the device and the size of an image.

    Attributes:
        execution: "sliced" or "masked", whichever is used.
        scores: the score of every structure estimated so far, by its counts.
        notes: sentences that say what was decided, for the user.
    """

    def __init__(
        self,
        inheritance: Inheritance,
        holdout: Any,
        *,
        score: Score = accuracy,
        execution: ExecutionName = "auto",
        batch_size: int | None = None,
    ) -> None:
        if execution not in EXECUTIONS:
            raise InvalidOption(f"execution is {execution!r}, but must be one of {EXECUTIONS}. Choose one.")
        self.inheritance = inheritance
        self.score: Score = function("score", score, "(network, batches)")
        self.scores: dict[tuple[int, ...], float] = {}
        self.notes: list[str] = []
        device = inheritance.device
        read = Batches.of(holdout, batch_size=batch_size, device=device)
        self._batch_size = batch_size or read.fitting_size(BATCH_SIZE.get(device.type))
        self.holdout = Batches.of(read, batch_size=self._batch_size, device=device)
        require_finite("held-out images", self.holdout)
        self._is_required = execution == "masked"
        self._running = self._execution(execution)
        self.execution: ExecutionName = "sliced" if isinstance(self._running, Sliced) else "masked"
        if not running_norms(inheritance.model):
            self.notes.append("This network has no batch norm with running statistics: nothing is recalibrated.")

    def __call__(self, structure: Iterable[int]) -> float:
        checked = structure if isinstance(structure, Structure) else Structure(structure)
        if checked.counts not in self.scores:
            with current_gpu(self.inheritance.device):
                self.scores[checked.counts] = self._estimate(checked)
        return self.scores[checked.counts]

    # -- choice of an execution ---------------------------------------------------------------------------------------

    def _execution(self, name: ExecutionName) -> Execution:
        """The execution with this name, or the best one for "auto"."""
        self._require_possible(name)
        if name == "sliced":
            return Sliced(self.inheritance)
        if callable(self.inheritance.reconstruction):
            self.notes.append("Sliced execution: a reconstruction function needs a network that is really cut.")
            return Sliced(self.inheritance)
        if self.inheritance.calibration.is_streamed and not self._is_exported:
            self.notes.append("Sliced execution: masked execution needs all calibration images in memory.")
            return Sliced(self.inheritance)
        faster: Execution | None = accelerated("execution_for", self.inheritance, name == "masked")
        if faster is None and (name == "masked" or self._is_exported):
            raise InvalidOption(
                "Masked execution is part of aacp.accelerate, which is not installed. "
                'Install all of aacp, or trace with form="module" and choose execution="sliced".'
            )
        if self._is_exported:
            self.notes.append("Masked execution: a network of the exported form keeps its statistics once it is cut.")
        return Sliced(self.inheritance) if faster is None else faster

    def _require_possible(self, name: ExecutionName) -> None:
        """Reject an execution that cannot score what is delivered."""
        reconstructed = callable(self.inheritance.reconstruction)
        if name == "sliced" and self._is_exported:
            raise InvalidOption(
                'This graph was traced with form="exported", because the network\'s own code cannot run sliced. '
                'Choose execution="masked".'
            )
        if reconstructed and (name == "masked" or self._is_exported):
            raise InvalidOption(
                "Masked execution cannot apply a reconstruction, so it would not score what is delivered. "
                'Choose execution="auto" and form="module", or give no reconstruction.'
            )

    @property
    def _is_exported(self) -> bool:
        return self.inheritance.graph.form == "exported"

    # -- estimates ----------------------------------------------------------------------------------------------------

    def _estimate(self, structure: Structure) -> float:
        try:
            return self._scored(self._running.network(structure))
        except RuntimeError as error:
            note = self._reason_to_slice(error)
            if not note:
                raise
        # Outside of the handler: the error holds the memory that the next attempt needs.
        self.notes.append(note)
        self.execution = "sliced"
        self._running = Sliced(self.inheritance)
        return self._scored(self._running.network(structure))

    def _reason_to_slice(self, error: RuntimeError) -> str:
        """A note on why sliced execution follows an error; "" if it does not."""
        if self.execution == "sliced" or self._is_exported:
            return ""
        if isinstance(error, torch.OutOfMemoryError):
            return "Out of memory: sliced execution from here on, which needs less of it."
        if self._is_required:
            return ""
        # Some networks cannot be captured as a CUDA graph, or have operators that do not take bfloat16.
        return f"Masked execution failed ({first_line(error)}): sliced execution from here on."

    def _scored(self, network: nn.Module) -> float:
        """The score of a network on the held-out images, in batches that are halved as often as memory requires."""
        while True:
            try:
                return scored(self.score, network, self.holdout, "held-out data")
            except torch.OutOfMemoryError:
                if self._batch_size == 1:
                    raise
            self._halve_batches()

    def _halve_batches(self) -> None:
        self._batch_size = max(1, min(self._batch_size, self.holdout.images) // 2)
        self.holdout = Batches.of(self.holdout, batch_size=self._batch_size, device=self.holdout.device)
        self.notes.append(f"Out of memory: held-out images are now scored in batches of {self._batch_size}.")
