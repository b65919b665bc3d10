"""The structure that a search chose, structure.json, with its limits and their check on a device, device.json."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aacp.channels.structure import Structure
from aacp.cost.budget import Limit, is_within
from aacp.cost.quantities import amount, cost_change
from aacp.disk.records import Record
from aacp.user.values import score_text

# What a limit on a latency is called that was predicted with the table of another device.
TO_BE_CHECKED = "to be checked on the device"
TOO_NOISY = "too noisy to tell"


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
    table_problem: str = ""  # why the table that predicted it cannot decide anything, if the user accepted such a table

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

    def described(self) -> dict[str, Any]:
        """The record as commands print it: with plain names of its values, and what is known about the limit."""
        return {**self.to_json(), "requested": self.bound, "original": self.full, "outcome": self.outcome}

    @property
    def phrase(self) -> str:
        """The bound, and how the cost is known if it is a latency."""
        most = f"at most {amount(self.bound, self.unit)}"
        by = f" by a table that cannot decide anything ({self.table_problem})" if self.table_problem else ""
        how = {True: ", measured end to end", False: f", predicted{by}, {TO_BE_CHECKED}", None: ""}[self.measured]
        return f"{most}{how}"

    def __str__(self) -> str:
        return f"{cost_change(self.cost, self.full, self.reached, self.unit)}, {self.phrase}"


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

    def described(self) -> dict[str, Any]:
        """The record as commands print it."""
        return {**self.to_json(), "limits": [limit.described() for limit in self.limits]}

    def __str__(self) -> str:
        unpruned = "" if self.unpruned is None else f", unpruned {score_text(self.unpruned)}"
        return "\n".join([*map(str, self.limits), f"estimated score: {score_text(self.score)}{unpruned}"])


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

    @property
    def next_step(self) -> str:
        """What to do after this result; "" if the limit is met."""
        if self.is_met:
            return ""
        if self.limit.outcome == TOO_NOISY:
            return "Run runner.py on the device again, with nothing else running there."
        return (
            "To search with what the device has shown, prune again into a new --run, with the latency.json of this run "
            "as --table and this run as --from."
        )

    def __str__(self) -> str:
        verdict = {"met": "within the limit", "missed": "over the limit"}.get(self.limit.outcome, self.limit.outcome)
        return f"{self.limit} on {self.machine} ({self.runtime} {self.version}, {self.turns} turns): {verdict}"
