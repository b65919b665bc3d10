"""PSAE: the accuracy of a structure, estimated without training it.

Inherit the most important filters, recalibrate the batch norms, score on held-out images (the paper's "precise
structure accuracy estimation"). Calibration and held-out images come from the training data, never from test data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from aacp.channels import ChannelGraph
from aacp.data.batches import Batches
from aacp.data.scores import Score, accuracy
from aacp.errors import AACPError, InvalidOption, InvalidScore
from aacp.estimate.importance import Importance, unit_importance
from aacp.estimate.inheritance import Order
from aacp.estimate.masked import Masked
from aacp.estimate.sliced import Sliced
from aacp.graph.program import first_line

EXECUTIONS = ("auto", "sliced", "masked")
BATCH = {"cpu": 128, "cuda": 8192}


class PSAE:
    """structure -> estimated score, deterministic, each structure once.

    `score` is accuracy, or any function of (network, batches) of which more is better. The model is copied, so later
    changes to it do not show. `passes=1` normalises the held-out images by their own statistics instead of those of the
    calibration images, for half the time; `agreement` tells whether that ranks structures alike. `notes` says in words
    what was decided.
    """

    def __init__(
        self,
        model: nn.Module,
        graph: ChannelGraph,
        *,
        calibration: Any,
        holdout: Any,
        score: Score = accuracy,
        importance: Importance = "l1",
        execution: str = "auto",
        passes: int = 2,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        if execution not in EXECUTIONS:
            raise InvalidOption(f"execution is {execution!r}, but must be one of {EXECUTIONS}. Choose one.")
        if passes not in (1, 2):
            raise InvalidOption(f"passes is {passes!r}, but an estimate takes 1 or 2. Choose one of them.")
        self.device = torch.device(device) if device is not None else _device_of(model)
        self.graph, self.score, self.passes = graph, score, passes
        self.order = Order.of(graph, unit_importance(model, graph, importance, seed))
        self.scores: dict[tuple[int, ...], float] = {}
        self.notes: list[str] = []
        self._batch_size = batch_size or BATCH[self.device.type]
        self.calibration = Batches.of(calibration, batch_size=self._batch_size, device=self.device)
        self.holdout = Batches.of(holdout, batch_size=self._batch_size, device=self.device)
        if passes == 1:  # statistics are those of all held-out images
            self.holdout = Batches.of(self.holdout, batch_size=self.holdout.images, device=self.device)
        self.execution = self._choose(execution)
        kind = Masked if self.execution == "masked" else Sliced
        self._running = kind(model, self.order, self.holdout if passes == 1 else self.calibration, passes == 1)
        if not self._running.norms:
            self.notes.append("This network has no batch norm with running statistics: nothing is recalibrated.")

    def _choose(self, execution: str) -> str:
        if execution != "auto":
            return execution
        if self.graph.form == "exported":
            self.notes.append("Masked execution: the exported form is bound to the shape it was made for.")
            return "masked"
        return "masked" if self.device.type == "cuda" else "sliced"

    def __call__(self, structure: Sequence[int]) -> float:
        counts = tuple(structure)
        if counts not in self.scores:
            self.scores[counts] = self._scored(self._running.network(counts))
        return self.scores[counts]

    def _scored(self, network: nn.Module) -> float:
        """The score of a network on the held-out images; if they are too many at once, in halves."""
        while True:
            try:
                value = float(self.score(network, self.holdout))
            except (AACPError, torch.OutOfMemoryError) as error:
                if isinstance(error, AACPError) or self._batch_size == 1:
                    raise
                self._halve()
                continue
            except Exception as error:  # whatever the user's function raises
                raise InvalidScore(
                    f"The score function failed: {first_line(error)}. It is called with (network, batches)."
                ) from error
            if not math.isfinite(value):
                raise InvalidScore(f"The score is {value}, which ranks nothing. Return a finite number.")
            return value

    def _halve(self) -> None:
        self._batch_size = min(self._batch_size, self.holdout.images) // 2
        self.holdout = Batches.of(self.holdout, batch_size=self._batch_size, device=self.device)
        self.notes.append(f"Out of memory: held-out images now go in batches of {self._batch_size}.")


def _device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
