"""The small JSON files of a run folder as values.

Each class is a file or a part of one, field by field (docs/formats.md). Units are part of the names, rates mean
*removed*, and a higher score is better. Fields that a newer version added to a file are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from aacp.channels.structure import Structure
from aacp.cost.budget import Limit, is_within
from aacp.cost.kinds import COSTS
from aacp.cost.quantities import amount, cost_change
from aacp.runs.serialisation import Record, field_place, read_number

RUN = "run.json"
GRAPH = "graph.json"
STRUCTURE = "structure.json"
FINALISTS = "finalists.json"  # the finalists of a search, and their scores after short trainings
EVALUATION = "evaluation.json"
RECOVERY = "recovery.json"
EXPORT = "export.json"
ARTEFACT = "pruned.safetensors"  # the pruned network
TRAININGS = "trainings"  # the folder inside the run folder that holds a folder for each training
TRAINING_REQUEST = "training.json"  # the request of a training, inside its folder
TRAINING = "training"  # the log and the checkpoints of a training, inside its folder
LOG = "log.jsonl"  # the log of a training, inside that folder
STATE = "training.safetensors"  # the state of a training between two epochs, inside that folder
WEIGHTS = "weights.safetensors"  # the trained weights, inside that folder
HISTORY = "history.jsonl"  # every evaluation of a search
CHECKPOINT = "search.json"  # the state of a search
TABLE = "latency.json"  # the latency table that a search uses
STEPS = "steps.json"  # the pruning steps that were found by timing
CHECKS = "checks.jsonl"  # the candidates that were measured end to end
CHECK_FOLDER = "check"  # both networks and the program that times them on another device, inside a training's folder
DEVICE_CHECK = "device.json"  # what that program found
# What a limit on a latency is called that was predicted with the table of another device.
TO_BE_CHECKED = "to be checked on the device"
TOO_NOISY = "too noisy to tell"
# Two networks are called equally fast if the ratio of their times is certain to lie between 1 / 1.1 and 1.1: a smaller
# difference matters to few users, and takes many turns to measure.
SAME_SPEED = 1.1
# Fields of run.json that estimated scores depend on; the seed draws the hold-out and the calibration images.
ESTIMATE_FIELDS = (
    "weights", "data", "metric", "importance", "reconstruction", "calibration_images", "frozen", "scope", "parts",
    "holdout",
    "seed",
)  # fmt: skip


# -- run.json ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request(Record):
    """run.json: the request of a search, and the circumstances in which it began.

    A field of the plan that is None was not in the file: the plan's default applies. `reconstruction`, `max_drop`,
    `latency_table` and `finalists` may also be None in a plan, where None means that there is none.
    """

    command: str
    model: str
    data: str
    limits: tuple[Limit, ...]
    pruning_step: Any  # the argument of SearchSpace: a number, a list, or numbers by name
    method: str  # a name, or package.module:Class
    evaluations: int
    seed: int
    versions: dict[str, str]
    hardware: str
    started: str  # ISO 8601, with the offset from UTC
    metric: str = "accuracy"
    weights: str = ""  # fingerprint of the unpruned network's weights
    importance: str | None = None  # a name, or package.module:function
    reconstruction: str | None = None  # "repair", package.module:function, or None for inherited weights
    calibration_images: int | None = None
    frozen: tuple[str, ...] = ()
    scope: str | None = None
    tie: tuple[tuple[str, ...], ...] = ()  # the names of the groups of each tie
    parts: tuple[str, ...] = ()  # the submodules that are pruned, if they were named
    max_drop: float | None = None  # the largest allowed drop of the score; within it, the cost `shrink` is minimised
    shrink: str | None = None
    probe_epochs: int | None = None
    probe_recipe: dict[str, Any] | None = None  # the recipe that probes are trained with, if they are trained
    deployment: dict[str, Any] | None = None  # runtime, device, batch, threads, precision of measured latencies
    latency_table: str | None = None
    known_from: tuple[str, ...] = ()  # folders of runs whose evaluations are reused
    weights_file: str = ""
    holdout: Any = None  # a share or a number of examples, held out for the search; None is the default of load_data
    data_source: str = ""  # the data as named on the command line, with its path
    metric_source: str = ""  # package.module:function of the score
    loss: str = "cross_entropy"  # the loss of probes, and of later trainings unless they are given another
    loss_source: str = ""  # package.module:function of the loss
    threads: int = 0  # how many threads torch used; 0 in files of older versions
    proposals: int | None = None  # structures without a score that the search keeps proposed; None: the method's
    finalists: int | None = None  # how many structures of the search are compared by short trainings, if any are
    rungs: tuple[int, ...] = ()  # the epochs of these trainings in each rung
    # How finalists are trained: "recipe", of which a rung takes its number of epochs, "init" and "teacher" as in
    # training.json; None if there are no finalists.
    finalist_training: dict[str, Any] | None = None


# -- trainings/NAME/training.json -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingRequest(Record):
    """training.json: the request of one training of the chosen structure, and the circumstances in which it began."""

    command: str
    recipe: dict[str, Any] | None  # the result of Recipe.to_json, or None if the inherited weights are kept
    versions: dict[str, str]
    hardware: str
    started: str  # ISO 8601, with the offset from UTC
    from_scratch: bool = False  # trained from new weights instead of fine-tuned
    init: str = ""  # the first weights: "inherited", "network" or "he"; empty in files of older versions
    train_on_holdout: bool = False
    loss: str = "cross_entropy"
    loss_source: str = ""  # package.module:function of the loss
    teacher: str = ""  # fingerprint of the teacher's weights; empty if it is the unpruned network or there is none
    mimic: int = 0  # the steps of learning from the original without labels, if there is no recipe
    export: bool = True  # whether the latest call requested ONNX files
    resources: bool = False  # whether the latest call requested memory and energy
    failure: str = ""  # the error that ended the training, if one did
    threads: int = 0  # how many threads torch used; 0 in files of older versions

    @property
    def kind(self) -> str:
        """What was done with the structure, for people."""
        if self.recipe is None:
            return f"not trained, mimicked in {self.mimic} steps" if self.mimic else "not trained"
        drawn = {"he": ", He-normal weights", "network": ", weights as the network draws them"}.get(self.init, "")
        return f"from scratch{drawn}" if self.from_scratch else "fine-tuned"


# -- structure.json ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LimitResult(Record):
    """A limit and the cost of the chosen structure, in the unit of the cost."""

    cost: str
    unit: str
    pruning_rate: float | None
    at_most: float | None
    full: float  # the cost of the unpruned network
    bound: float  # the largest cost that meets the limit
    reached: float  # the cost of the chosen structure
    # Of a latency: whether both networks were measured end to end, or predicted by a table. None for other costs.
    measured: bool | None = None
    is_undecided: bool = False  # whether the measurement on another device was too noisy to tell

    @classmethod
    def of(cls, limit: Limit, structure: Structure) -> LimitResult:
        cost = limit.cost
        value = float(cost(np.asarray(structure)))
        return cls(cost.name, cost.unit, limit.pruning_rate, limit.at_most, float(cost.full), limit.bound, value)

    @property
    def holds(self) -> bool:
        """True if the structure costs no more than the bound."""
        return bool(is_within(self.reached, self.bound))

    @property
    def outcome(self) -> str:
        """What is known about the limit: it is met, missed, to be checked on the device, or too noisy to tell."""
        if self.measured is False:
            return TO_BE_CHECKED
        if self.is_undecided:
            return TOO_NOISY
        return "met" if self.holds else "missed"

    @property
    def slack(self) -> float:
        """The unused part of the bound, as a share of the unpruned cost (for an `at_most`, of the bound)."""
        whole = self.full if self.pruning_rate is not None else self.bound
        return (self.bound - self.reached) / whole if whole else 0.0

    def __str__(self) -> str:
        most = f"at most {amount(self.bound, self.unit)}"
        how = {True: ", measured end to end", False: f", predicted, {TO_BE_CHECKED}", None: ""}[self.measured]
        return f"{cost_change(self.cost, self.full, self.reached, self.unit)}, {most}{how}"


@dataclass(frozen=True)
class ChosenStructure(Record):
    """structure.json: the structure that the search chose."""

    counts: tuple[int, ...]  # one per free group, in the graph's order
    score: float  # the estimated score, before training
    limits: tuple[LimitResult, ...]
    unpruned: float | None = None  # the score of the unpruned network on the same held-out data

    @cached_property
    def structure(self) -> Structure:
        """The counts as a structure."""
        return Structure(self.counts)

    def __str__(self) -> str:
        unpruned = "" if self.unpruned is None else f", unpruned {self.unpruned:.4f}"
        score = f"estimated score: {self.score:.4f}{unpruned}"
        lines = [*map(str, self.limits), score, f"kept: {list(self.counts)}"]
        return "\n".join(lines)


# -- trainings/NAME/training/log.jsonl --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epoch(Record):
    """One epoch: a line of the log."""

    epoch: int  # counted from 1
    lr: float  # the learning rate of the last step
    loss: float  # the mean loss over all steps
    accuracy: float | None  # the accuracy on the augmented training batches
    holdout: float | None  # score on held-out data after the epoch, if there are any
    seconds: float  # the time of training, without scoring
    images_per_second: float
    limit: str = field(default="", compare=False)  # what limited the speed, if the device waited for data


# -- trainings/NAME/evaluation.json -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkMetrics(Record):
    """The scores and the costs of one network; each cost is also an attribute: `metrics.macs`.

    In the file, each cost is a field of its own, with the name of the cost.
    """

    test: float | None  # score on test data
    holdout: float | None  # score on held-out data
    # Built-in costs except latency, and user-defined costs, by name.
    costs: dict[str, float] = field(default_factory=dict)
    file_bytes: int | None = None  # the size of the weights as a safetensors file

    def __getattr__(self, name: str) -> float:
        costs = self.__dict__.get("costs", {})
        if name not in costs:
            raise AttributeError(f"These metrics have no {name!r}: {', '.join(costs)}.")
        value: float = costs[name]
        return value

    def to_json(self) -> dict[str, Any]:
        return {"test": self.test, "holdout": self.holdout, **self.costs, "file_bytes": self.file_bytes}

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any], place: str) -> Record:
        others = {name: value for name, value in data.items() if name not in cls.__dataclass_fields__}
        costs = {
            name: read_number(value, field_place(place, name))
            for name, value in others.items()
            if name in COSTS or isinstance(value, (int, float))
        }
        own = {name: value for name, value in data.items() if name not in others and name != "costs"}
        found = super()._from_fields(own, place)
        assert isinstance(found, cls)
        return replace(found, costs=costs)

    def __str__(self) -> str:
        found = [(name, value) for name, value in self.to_json().items() if value is not None]
        return "\n".join(f"{name}: {value:{',' if isinstance(value, int) else '.4f'}}" for name, value in found)


@dataclass(frozen=True)
class Evaluation(Record):
    """evaluation.json: the unpruned network and the pruned one side by side."""

    before: NetworkMetrics
    after: NetworkMetrics

    @property
    def values(self) -> dict[str, float]:
        """All scores and costs by name: "before/macs", "after/test"."""
        return {
            f"{name}/{key}": value
            for name, metrics in (("before", self.before), ("after", self.after))
            for key, value in metrics.to_json().items()
            if value is not None
        }


# -- trainings/NAME/recovery.json -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecoveryStep(Record):
    """The scores of the network after one step of recovering what pruning lost."""

    name: str  # "inherited", "recalibrated", "repaired", "reconstructed" or "mimicked"
    holdout: float | None = None  # score on held-out data
    test: float | None = None  # score on test data; no decision uses it


@dataclass(frozen=True)
class Recovery(Record):
    """recovery.json: what each step gave a network that is not trained, in the order in which they are applied."""

    steps: tuple[RecoveryStep, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be repaired, and what was decided

    def __str__(self) -> str:
        scored = [step for step in self.steps if step.holdout is not None]
        return ", ".join(f"{step.name} {step.holdout:.4f}" for step in scored)


# -- trainings/NAME/export.json ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latency(Record):
    """The time of one batch: median and quartiles."""

    seconds: float
    low_seconds: float
    high_seconds: float


@dataclass(frozen=True)
class BeforeAfter(Record):
    """Both networks timed in the same way, in alternation."""

    runtime: str  # the name with version and threads: "ONNX Runtime 1.20, 1 thread"
    device: str
    batch_size: int
    repeats: int
    before: Latency
    after: Latency
    low_speedup: float | None = None  # the interval of the time before pruning over that after it in the same turn
    high_speedup: float | None = None  # both are None in files of versions that did not record them
    median_speedup: float | None = None  # the median of these ratios; None in files of versions that did not record it

    @property
    def times(self) -> float:
        """How many times as fast the pruned network is."""
        return self.before.seconds / self.after.seconds if self.median_speedup is None else self.median_speedup

    @property
    def is_faster(self) -> bool:
        """True if the pruned network is faster beyond noise; without speedups, if no quartiles overlap."""
        if self.low_speedup is None:
            return self.after.high_seconds < self.before.low_seconds
        return self.low_speedup > 1

    @property
    def is_slower(self) -> bool:
        """True if the pruned network is slower beyond noise; without speedups, if no quartiles overlap."""
        if self.high_speedup is None:
            return self.after.low_seconds > self.before.high_seconds
        return self.high_speedup < 1

    @property
    def is_as_fast(self) -> bool:
        """True if the measurement is certain enough to say that pruning changed the time by a tenth at most."""
        if self.is_faster or self.is_slower:
            return False
        if self.low_speedup is None or self.high_speedup is None:
            gains_little = self.before.high_seconds <= SAME_SPEED * self.after.low_seconds
            loses_little = self.after.high_seconds <= SAME_SPEED * self.before.low_seconds
            return gains_little and loses_little
        return SAME_SPEED * self.low_speedup >= 1 and self.high_speedup <= SAME_SPEED

    @property
    def is_decided(self) -> bool:
        """True if the measurement says whether the pruned network is faster; if not, it was too noisy to tell."""
        return self.is_faster or self.is_slower or self.is_as_fast

    @property
    def verdict(self) -> str:
        """The comparison for people."""
        if self.is_faster:
            return "faster"
        if self.is_slower:
            return "SLOWER"
        return "NOT FASTER" if self.is_as_fast else "too noisy to tell"

    def __str__(self) -> str:
        return (
            f"{self.runtime}, batch {self.batch_size}: {1e3 * self.before.seconds:.3g} -> "
            f"{1e3 * self.after.seconds:.3g} ms (x{self.times:.2f}, {self.verdict})"
        )


@dataclass(frozen=True)
class QuantizedScores(Record):
    """The scores of both networks in int8, as their files compute them."""

    calibration_images: int  # the training images on which the ranges of activations were found
    before_test: float | None  # score of the unpruned network on test data
    after_test: float | None  # score of the pruned network on test data
    before_likeness: float | None  # of the outputs to those in float on calibration images, 1 is equal
    after_likeness: float | None
    note: str = ""  # why there are no scores, if the score function failed


@dataclass(frozen=True)
class RuntimeFiles(Record):
    """Both networks as files of the deployment's runtime, beside those of ONNX Runtime in float."""

    file: str  # the name of the pruned network's file
    format: str
    largest_difference: float  # the largest difference between any output and that of torch
    before_bytes: int
    after_bytes: int
    precision: str = "float32"  # "int8" for files of quantised networks
    quantized: QuantizedScores | None = None  # for files in int8


@dataclass(frozen=True)
class Resources(Record):
    """The memory and energy of both exported networks, each measured in a process of the runtime."""

    runtime: str  # the name with version: "onnxruntime 1.20"
    before_bytes: int  # how far the memory of the process grew at most with the unpruned network
    after_bytes: int
    before_joules: float | None = None  # the energy of one batch; None if nothing counts it
    after_joules: float | None = None
    energy_source: str = ""  # what counted the energy: "RAPL package-0"

    def __str__(self) -> str:
        before, after = (f"{value / 1e6:.1f} MB" for value in (self.before_bytes, self.after_bytes))
        change = f" ({self.after_bytes / self.before_bytes - 1:+.1%})" if self.before_bytes else ""
        memory = f"memory in {self.runtime}: {before} -> {after}{change}"
        if self.before_joules is None or self.after_joules is None:
            return f"{memory}; energy is not counted here"
        before, after = (f"{1e3 * value:.3g}" for value in (self.before_joules, self.after_joules))
        return f"{memory}; energy of a batch: {before} -> {after} mJ ({self.energy_source})"


@dataclass(frozen=True)
class ExportRecord(Record):
    """export.json: the exported files, their largest difference from torch, and timings."""

    opset: int
    largest_difference: float  # the largest difference between any output and that of torch
    before_bytes: int  # the size of original.onnx
    after_bytes: int  # the size of pruned.onnx
    timings: tuple[BeforeAfter, ...] = ()
    others: tuple[RuntimeFiles, ...] = ()  # the files of the deployment's runtime, if it needs its own
    resources: Resources | None = None  # memory and energy in the deployment's runtime, if they were requested

    @property
    def in_int8(self) -> RuntimeFiles | None:
        """The files of the quantised networks, if there are any."""
        return next((files for files in self.others if files.quantized is not None), None)


# -- trainings/NAME/device.json ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceCheck(Record):
    """device.json: whether the network meets its limit on latency on the device that the table is of."""

    manifest: str  # the SHA-256 of check/manifest.json
    counts: tuple[int, ...]  # the structure that was timed
    runtime: str
    version: str
    machine: str
    turns: int
    limit: LimitResult  # with the measured latencies
    low: float  # the interval of the measured latency as a share of the limit
    high: float

    @property
    def is_met(self) -> bool:
        """Whether the network meets the limit beyond the uncertainty of the measurement."""
        return self.limit.outcome == "met"

    def __str__(self) -> str:
        verdict = {"met": "within the limit", "missed": "over the limit"}.get(self.limit.outcome, self.limit.outcome)
        return f"{self.limit} on {self.machine} ({self.runtime} {self.version}, {self.turns} turns): {verdict}"
