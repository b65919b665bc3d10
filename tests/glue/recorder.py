"""Recorder: who reads which part of the data in a run, seen from outside of it.

Nothing of the library is replaced. A stage is known by the files that the run folder holds so far; a read, by the data
set that is read; a pass through a network, by torch's global hooks and by the watermarks of the images.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

import aacp
from glue.subjects import data, watermarks

# A stage ends when its file is written.
STAGES = {
    "preflight": "run.json",
    "tracing": "graph.json",
    "search": "structure.json",
    "delivery": "pruned.safetensors",  # inheritance, recalibration and training
    "evaluation": "evaluation.json",
}
LAST = "export"
EXAMPLE = "example"  # the first two images of the hold-out, which networks are traced, compared and timed with
Passes = dict[str, dict[str, set[str]]]


class Recorder:
    """The reads, passes and losses of one run in its folder."""

    def __init__(self, folder: Path, model: nn.Module) -> None:
        self.folder = folder
        self.data = data(self._on_read)
        self._full = _size(model)
        self._scores = threading.Event()
        self._reads: dict[str, set[str]] = defaultdict(set)
        self._passes: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
        self.losses: Counter[str] = Counter()  # how often the loss function was called, by stage
        self.scored: Counter[tuple[str, str]] = Counter()  # how often a network was scored on test data, by stage

    def stage(self) -> str:
        """The stage that the run is in."""
        return next((name for name, file in STAGES.items() if not self._holds(file)), LAST)

    def _holds(self, file: str) -> bool:
        return (self.folder / file).exists() or any(self.folder.glob(f"trainings/*/{file}"))

    @property
    def training(self) -> Path:
        """The folder of the only training."""
        (found,) = (self.folder / "trainings").iterdir()
        return found

    # -- what a run is given ------------------------------------------------------------------------------------------

    def score(self, network: nn.Module, batches: aacp.Batches) -> float:
        """Accuracy; passes within it are passes to score."""
        self._scores.set()
        if {part for part, _ in watermarks(next(batches.inputs()))} == {"test"}:
            self.scored[self.stage(), "test"] += 1
        try:
            return aacp.accuracy(network, batches)
        finally:
            self._scores.clear()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy."""
        self.losses[self.stage()] += 1
        return nn.functional.cross_entropy(outputs, targets)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note every pass through any network."""
        hook = register_module_forward_pre_hook(self._on_pass)
        try:
            yield
        finally:
            hook.remove()

    # -- what was seen ------------------------------------------------------------------------------------------------

    def reads(self) -> dict[str, set[str]]:
        """The parts of the data that each stage read."""
        return dict(self._reads)

    def passes(self) -> Passes:
        """For each stage, and for each kind of pass in it, the parts whose images went through a network.

        The example is left out: every stage may use it.
        """
        found: Passes = defaultdict(lambda: defaultdict(set))
        for (stage, kind), seen in self._passes.items():
            for part, _ in seen - _examples(kind):
                found[stage][kind].add(part)
        return {stage: dict(kinds) for stage, kinds in found.items()}

    def positions(self, stage: str, kind: str, part: str) -> set[int]:
        """Which images of a part went through a network in passes of one kind."""
        seen = self._passes.get((stage, kind), set()) - _examples(kind)
        return {position for name, position in seen if name == part}

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _on_read(self, part: str, position: int) -> None:
        self._reads[self.stage()].add(part)

    def _on_pass(self, module: nn.Module, arguments: Any) -> None:
        inputs = arguments[0] if arguments else None
        is_network = any(True for _ in module.children())
        if not is_network or type(inputs) is not Tensor or inputs.shape[1:] != (1, 8, 8):
            return
        width = "unpruned" if _size(module) == self._full else "pruned"
        self._passes[self.stage(), f"{self._purpose(module)} {width}"] |= watermarks(inputs.detach())

    def _purpose(self, module: nn.Module) -> str:
        if self._scores.is_set():
            return "score"
        is_step = module.training and torch.is_grad_enabled()
        return "train" if is_step else "run"  # to run: to recalibrate, to teach, to trace or to time


def _examples(kind: str) -> set[tuple[str, int]]:
    """The images of a pass that only serve as an example, not for scoring or training."""
    return {("holdout", 0), ("holdout", 1)} if kind.startswith("run") else set()


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
