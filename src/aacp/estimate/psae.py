"""PSAE: the accuracy of a structure, estimated without training it.

The paper's Pruned Structure Accuracy Estimator: inherit the most important filters, recalibrate the batch norms, score
on held-out images. Calibration and held-out images come from the training data, never from test data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp.accelerate.masked.execution import Masked
from aacp.channels import ChannelGraph
from aacp.correlation import spearman
from aacp.data.batches import Batches, targets_of
from aacp.data.scores import Score, accuracy
from aacp.errors import AACPError, InvalidData, InvalidOption, InvalidScore, first_line
from aacp.estimate.importance import Importance, unit_importance
from aacp.estimate.inheritance import Order
from aacp.estimate.racing import LOOKS, is_losing
from aacp.estimate.recalibration import recalibrate
from aacp.estimate.settings import Execution, Passes, Settings
from aacp.estimate.sliced import Sliced
from aacp.graph.surgery import shrink
from aacp.modules import copy_module, detach_hooks, device_of_model
from aacp.structure import Structure
from aacp.torch_internals import pytree

BATCH = {"cpu": 128, "cuda": 8192}
ALIKE = 0.98  # rank correlation at which one pass is as good as two


class PSAE:
    """structure -> estimated score, deterministic, each structure once.

    `score` is accuracy, or any function of (network, batches) of which more is better. `execution` is chosen by the
    device: sliced on a CPU, masked on a GPU. `passes=1` normalises the held-out images by their own statistics instead
    of those of the calibration images, which saves a pass on a GPU; "auto" does so if that ranks structures alike.
    `racing` is the probability that a search stops a trial that would have reached its incumbent (None: no racing).
    The model is copied, so later changes to it do not show. `notes` says in words what was decided.
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
        execution: Execution = "auto",
        passes: Passes = 2,
        racing: float | None = 0.01,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = Settings(score, importance, execution, passes, racing, seed)
        self.graph, self.score = graph, score
        self.device = torch.device(device) if device is not None else device_of_model(model)
        self.order = Order.of(graph, unit_importance(model, graph, importance, seed))
        self.scores: dict[tuple[int, ...], float] = {}
        self.notes: list[str] = []
        self._model = copy_module(model).eval()
        detach_hooks(self._model)
        self._batch_size = BATCH.get(self.device.type, BATCH["cpu"]) if batch_size is None else batch_size
        self.calibration = Batches.of(calibration, batch_size=self._batch_size, device=self.device)
        self.holdout = Batches.of(holdout, batch_size=self._batch_size, device=self.device)
        for name, batches in (("calibration", self.calibration), ("held-out", self.holdout)):
            _require_finite(name, batches)
        self._parts = self._prepare_racing()
        self.execution = self._chosen_execution()
        self.passes: int = 2
        self.passes = self._chosen_passes()
        self._running = self._execution(self.passes)
        if not self._running.norms:
            self.notes.append("This network has no batch norm with running statistics: nothing is recalibrated.")

    # -- choices ------------------------------------------------------------------------------------------------------

    def _chosen_execution(self) -> str:
        if self.settings.execution == "sliced" and self.graph.form == "exported":
            raise InvalidOption(
                'This graph was traced with form="exported", since the network\'s own code cannot run sliced. '
                'Choose execution="masked".'
            )
        if self.settings.execution != "auto":
            return self.settings.execution
        if self.graph.form == "exported":
            self.notes.append("Masked execution: the exported form has one shape; cut, it keeps its statistics.")
            return "masked"
        return "masked" if self.device.type == "cuda" else "sliced"

    def _chosen_passes(self) -> int:
        if self.settings.passes != "auto":
            return self.settings.passes
        if self.execution == "sliced":
            return 2  # a second pass is what tells them apart, and slices do not save it
        alike = self.agreement(_spread_out(self.graph, self.settings.seed))
        self.notes.append(f"One pass and two rank structures with a Spearman correlation of {alike:.4f}.")
        return 1 if alike >= ALIKE else 2

    def _execution(self, passes: int) -> Sliced | Masked:
        kind = Masked if self.execution == "masked" else Sliced
        if passes == 2:
            return kind(self._model, self.order, self.calibration)
        # Statistics are those of all held-out images, so they go in one batch.
        self.holdout = Batches.of(self.holdout, batch_size=self.holdout.images, device=self.device)
        return kind(self._model, self.order, self.holdout, one_pass=True)

    def _prepare_racing(self) -> list[Batches]:
        """The held-out images in random order, in the parts after which a trial may be stopped."""
        races = self.settings.racing is not None and self.score is accuracy and len(self.holdout) > 1
        targets = targets_of(next(iter(self.holdout)))
        if not races or not isinstance(targets, torch.Tensor) or targets.dim() != 1:  # pixels are no independent draws
            return [self.holdout]
        self.holdout = self.holdout.shuffled(self.settings.seed)
        return self.holdout.parts(LOOKS)

    def agreement(self, structures: Sequence[Iterable[int]]) -> float:
        """The rank correlation between the scores of one pass and of two."""
        by_passes, holdout = [], self.holdout
        for passes in (1, 2):
            running = self._execution(passes)
            by_passes.append([self._scored(running.network(structure)) for structure in structures])
            self.holdout = holdout
        return spearman(*by_passes)

    # -- estimates ----------------------------------------------------------------------------------------------------

    def __call__(self, structure: Iterable[int]) -> float:
        return self._estimate(structure, None)

    def raced(self, structure: Iterable[int], incumbent: float) -> float:
        """The same for a trial that only matters if it reaches an incumbent.

        One that clearly does not is stopped early, and its score is that of the images it has seen.
        """
        return self._estimate(structure, incumbent)

    def network(self, structure: Iterable[int]) -> nn.Module:
        """The network that is scored: cut, inherited, recalibrated (not so the exported form); independent of this."""
        example = next(self.calibration.inputs()) if self.graph.form == "exported" else None
        smaller = shrink(self._model, self.graph, self.order.kept(structure), example=example).to(self.device)
        recalibrate(smaller, self.calibration)
        return smaller

    def _estimate(self, structure: Iterable[int], incumbent: float | None) -> float:
        counts = Structure(structure).counts
        if counts not in self.scores:
            try:
                score = self._scored_until_lost(self._running.network(counts), incumbent)
            except torch.OutOfMemoryError:
                if self.execution == "sliced" or self.graph.form == "exported":
                    raise
                score = None
            self.scores[counts] = self._scored_in_slices(counts, incumbent) if score is None else score
        return self.scores[counts]

    def _scored_in_slices(self, counts: tuple[int, ...], incumbent: float | None) -> float:
        """The score, now that a pass of full width over all images has proved too much for the memory."""
        self.execution = "sliced"
        self.notes.append("Out of memory: sliced execution from here on, which can take fewer images at a time.")
        self._running = self._execution(self.passes)
        return self._scored_until_lost(self._running.network(counts), incumbent)

    def _scored_until_lost(self, network: nn.Module, incumbent: float | None) -> float:
        """The score, of as many images as it takes to see that the incumbent wins."""
        error = self.settings.racing
        if incumbent is None or error is None or len(self._parts) == 1 or self.passes == 1:
            return self._scored(network)
        right = seen = 0
        for part in self._parts:
            right += round(self._scored(network, part) * part.images)
            seen += part.images
            if is_losing(right, seen, self.holdout.images, incumbent, error):
                break
        return right / seen

    def _scored(self, network: nn.Module, batches: Batches | None = None) -> float:
        """The score of a network on held-out images; if they are too many at once, in halves."""
        while True:
            try:
                value = float(self.score(network, self.holdout if batches is None else self._split(batches)))
            except AACPError:
                raise
            except torch.OutOfMemoryError:
                if self._batch_size == 1 or (self.passes == 1 and self.execution == "masked"):
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
        self._batch_size = max(1, min(self._batch_size, self.holdout.images) // 2)
        self.holdout, self._parts = self._split(self.holdout), [self._split(part) for part in self._parts]
        self.notes.append(f"Out of memory: held-out images now go in batches of {self._batch_size}.")

    def _split(self, batches: Batches) -> Batches:
        return Batches.of(batches, batch_size=self._batch_size, device=self.device)


def _require_finite(name: str, batches: Batches) -> None:
    """Refuse images that make every score meaningless, once and for all."""
    for inputs in batches.inputs():
        tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
            raise InvalidData(f"The {name} images are not finite. Look for NaN and infinity in them.")


def _spread_out(graph: ChannelGraph, seed: int, count: int = 16) -> list[Structure]:
    """Random structures from narrow to wide, to see how two ways of scoring rank them."""
    generator = np.random.default_rng(seed)
    shares = generator.uniform(0.4, 1.0, (count, 1)) * generator.uniform(0.8, 1.0, (count, len(graph.free)))
    widths = np.array([group.width for group in graph.free])
    return [Structure(row) for row in np.maximum(1, np.round(shares * widths)).astype(int).tolist()]
