"""Records: the small JSON files of a run folder as values, for those who write them and those who read them.

Each class is a file or a part of one, field by field (docs/formats.md). Units live in names, rates mean *removed*, and
scores are higher where they are better. What a newer version adds to a file is passed over.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from aacp.cost.budget import TOLERANCE, Limit, amount
from aacp.runs.serialisation import Record
from aacp.structure import Structure

RUN, GRAPH, STRUCTURE, EVALUATION, EXPORT = (
    f"{name}.json" for name in ("run", "graph", "structure", "evaluation", "export")
)
TRAINING, LOG = "training", "log.jsonl"


# -- run.json ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target(Record):
    """A limit as it was asked for: one of the two numbers is given."""

    cost: str
    pruning_rate: float | None = None  # share to remove
    at_most: float | None = None  # in the unit of the cost
    unit: str = ""


@dataclass(frozen=True)
class Request(Record):
    """run.json: what was asked of a run, and where and with what it began."""

    command: str
    model: str
    data: str
    limits: tuple[Target, ...]
    pruning_step: Any  # of SearchSpace: a number, a list, or numbers by name
    method: str
    evaluations: int
    recipe: dict[str, Any] | None  # Recipe.to_json; None: nothing is trained
    seed: int
    versions: dict[str, str]
    hardware: str
    started: str  # ISO 8601, with the offset from UTC
    metric: str = "accuracy"
    weights: str = ""  # fingerprint of the unpruned network's weights
    from_scratch: bool = False  # trained anew instead of fine-tuned
    importance: str = "l1"
    calibration_images: int = 4096
    frozen: tuple[str, ...] = ()
    scope: str = "all"
    train_on_holdout: bool = False  # as well, once the structure was chosen
    export: bool = True  # whether ONNX files were asked for
    max_drop: float | None = None  # of the score; then `shrink` is cut as far as that allows
    shrink: str = "macs"
    probe_epochs: int = 0
    deployment: dict[str, Any] | None = None  # runtime, device, batch and threads of latencies
    latency_table: str | None = None
    known_from: tuple[str, ...] = ()  # folders of runs whose evaluations were taken over
    weights_file: str = ""
    data_source: str = ""  # as the command line took it, with its path
    metric_source: str = ""  # package.module:function, if it was named so
    loss: str = "cross_entropy"
    loss_source: str = ""


# -- structure.json ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LimitResult(Record):
    """A limit, and what the chosen structure makes of it; values are in the unit of the cost."""

    cost: str
    unit: str
    pruning_rate: float | None
    at_most: float | None
    full: float  # of the unpruned network
    bound: float  # the most it may be
    reached: float

    @classmethod
    def of(cls, limit: Limit, structure: Structure) -> LimitResult:
        value, cost = float(limit.cost(np.asarray(structure))), limit.cost
        return cls(cost.name, cost.unit, limit.pruning_rate, limit.at_most, float(cost.full), limit.bound, value)

    @property
    def holds(self) -> bool:
        return self.reached <= self.bound + TOLERANCE * abs(self.bound)

    @property
    def slack(self) -> float:
        """What is left of the bound, as a share of the unpruned cost (of the bound, for an `at_most`): Limit.slack."""
        whole = self.full if self.pruning_rate is not None else self.bound
        return (self.bound - self.reached) / whole if whole else 0.0


@dataclass(frozen=True)
class ChosenStructure(Record):
    """structure.json: the structure a search ended with."""

    counts: tuple[int, ...]  # one per free group, in the graph's order
    score: float  # estimated, before training
    limits: tuple[LimitResult, ...]

    def __str__(self) -> str:
        lines = [
            f"{limit.cost}: {amount(limit.full, limit.unit)} -> {amount(limit.reached, limit.unit)} "
            f"({limit.reached / limit.full - 1:+.1%}), at most {amount(limit.bound, limit.unit)}"
            for limit in self.limits
        ]
        return "\n".join([*lines, f"estimated score: {self.score:.4f}", f"kept: {list(self.counts)}"])


# -- training/log.jsonl -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epoch(Record):
    """What one epoch did: a line of the log."""

    epoch: int  # counted from 1
    lr: float  # of its last step
    loss: float  # mean over its steps
    accuracy: float | None  # on the batches as they were trained on
    holdout: float | None  # score on held-out data afterwards, if there is any
    seconds: float  # of training, without scoring
    images_per_second: float


# -- evaluation.json --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkMetrics(Record):
    """What one network scores and costs."""

    test: float | None  # score on test data
    holdout: float | None  # score on held-out data
    macs: int
    params: int
    activation_bytes: int
    file_bytes: int | None = None  # of its weights as safetensors

    def __str__(self) -> str:
        found = [(name, value) for name, value in asdict(self).items() if value is not None]
        return "\n".join(f"{name}: {value:{',' if isinstance(value, int) else '.4f'}}" for name, value in found)


@dataclass(frozen=True)
class Evaluation(Record):
    """evaluation.json: the unpruned network and the pruned one side by side."""

    before: NetworkMetrics
    after: NetworkMetrics


# -- export.json ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latency(Record):
    """How long one batch takes: the median, and the quartiles around it."""

    seconds: float
    low_seconds: float
    high_seconds: float


@dataclass(frozen=True)
class BeforeAfter(Record):
    """Both networks timed in the same way, in turn."""

    runtime: str  # with its version and threads: "ONNX Runtime 1.20, 1 thread"
    device: str
    batch_size: int
    repeats: int
    before: Latency
    after: Latency

    @property
    def is_faster(self) -> bool:
        """Whether the quartiles of the two do not meet."""
        return self.after.high_seconds < self.before.low_seconds

    @property
    def is_slower(self) -> bool:
        return self.after.low_seconds > self.before.high_seconds

    def __str__(self) -> str:
        times = self.before.seconds / self.after.seconds
        verdict = "faster" if self.is_faster else "SLOWER" if self.is_slower else "NOT FASTER beyond noise"
        return (
            f"{self.runtime}, batch {self.batch_size}: {1e3 * self.before.seconds:.3g} -> "
            f"{1e3 * self.after.seconds:.3g} ms (x{times:.2f}, {verdict})"
        )


@dataclass(frozen=True)
class RuntimeFiles(Record):
    """Both networks as files of a runtime other than ONNX Runtime."""

    file: str  # name of the pruned network's
    format: str
    largest_difference: float  # of any output from torch's
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True)
class OnnxRecord(Record):
    """export.json: the ONNX files, how far they are from torch, and how fast."""

    opset: int
    largest_difference: float  # of any output from torch's
    before_bytes: int  # original.onnx
    after_bytes: int  # pruned.onnx
    timings: tuple[BeforeAfter, ...] = ()
    others: tuple[RuntimeFiles, ...] = ()  # for the runtime of the deployment, if it has files of its own
