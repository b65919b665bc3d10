"""Scores and costs of networks: of every epoch (log.jsonl), of both networks (evaluation.json), and of each step of
recovering without training (recovery.json).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aacp.cost.kinds import COSTS
from aacp.disk.records import Record, field_place, read_value
from aacp.user.values import score_text


def is_within_drop(before: float, after: float, drop: float) -> bool:
    """Whether a score falls by at most a drop, up to rounding: 0.95 - 0.94 is more than 0.01 in floating point."""
    lost = before - after
    return lost <= drop or math.isclose(lost, drop, rel_tol=1e-9, abs_tol=1e-12 * max(abs(before), abs(after)))


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


@dataclass(frozen=True)
class NetworkMetrics(Record):
    """The scores and the costs of one network; each cost is also an attribute: `metrics.macs`.

    In the file, each cost is a field of its own, with the name of the cost.
    """

    test: float | None  # score on test data
    holdout: float | None  # score on held-out data
    # Built-in costs except latency and file_size, and user-defined costs, by name.
    costs: dict[str, float] = field(default_factory=dict)
    file_bytes: int | None = None  # the size as a safetensors file, with the header of a pruned network

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
            name: read_value(int | float, value, field_place(place, name))  # a whole one stays whole
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
        return ", ".join(f"{each.name} {score_text(each.holdout)}" for each in self.steps if each.holdout is not None)
