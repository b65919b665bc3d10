"""Repetition: one request run with several seeds, with the mean and the spread of every metric.

A metric is a number by name, such as "test accuracy after". The metrics of a run are in groups: one group for each
budget of a sweep, and a single group without a name for all other commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from aacp.cost.kinds import cost_words
from aacp.disk.records import Record
from aacp.runs.chosen import ChosenStructure
from aacp.runs.exports import ExportRecord
from aacp.runs.scores import Evaluation
from aacp.user.values import counted

Metrics = dict[str, float]
Groups = dict[str, Metrics]


@dataclass(frozen=True)
class Spread(Record):
    """The mean and the standard deviation of a metric over the seeds that have it.

    Args:
        mean: the arithmetic mean.
        deviation: the standard deviation of a sample, which divides by n - 1; None for a single value.
        values: one value per seed, in the order of the seeds.
    """

    mean: float
    deviation: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, tuple(values))


@dataclass(frozen=True)
class SeedRun(Record):
    """The run of one seed.

    Args:
        seed: the seed of the run.
        folder: its run folder.
        metrics: its metrics by group; empty if it failed.
        error: why it failed; empty if it finished.
    """

    seed: int
    folder: str
    metrics: dict[str, dict[str, float]]
    error: str = ""


@dataclass(frozen=True)
class Repetition(Record):
    """repeat-NAME.json: the runs of one request with several seeds.

    Args:
        name: the repeated command, or the name of the repeated training.
        runs: the run of each seed, in the order of the seeds.
        request: the options of the command, without those that each seed gets; empty for a function.
    """

    name: str
    runs: tuple[SeedRun, ...]
    request: dict[str, Any]

    @property
    def finished(self) -> tuple[SeedRun, ...]:
        """The runs that did not fail."""
        return tuple(run for run in self.runs if not run.error)

    @property
    def failed(self) -> tuple[SeedRun, ...]:
        return tuple(run for run in self.runs if run.error)

    @property
    def spreads(self) -> dict[str, dict[str, Spread]]:
        """Every metric over the finished runs that have it, by group and name."""
        values: dict[str, dict[str, list[float]]] = {}
        for run in self.finished:
            for group, metrics in run.metrics.items():
                for name, value in metrics.items():
                    values.setdefault(group, {}).setdefault(name, []).append(value)
        return {group: {name: Spread.of(found) for name, found in metrics.items()} for group, metrics in values.items()}

    def to_json(self) -> dict[str, Any]:
        spreads = {
            group: {name: spread.to_json() for name, spread in metrics.items()}
            for group, metrics in self.spreads.items()
        }
        return {**super().to_json(), "spreads": spreads}

    def __str__(self) -> str:
        """A table for people: a row per metric, with its mean, its deviation and the value of every seed."""
        lines = [f"{len(self.finished)} of {counted(len(self.runs), 'seed')} finished"]
        for group, rows in table_rows(self).items():
            heads = (group, "mean", "deviation", *(f"seed {run.seed}" for run in self.finished))
            lines += _aligned([heads, *rows])
        return "\n".join([*lines, *(f"seed {run.seed} failed: {run.error}" for run in self.failed)])


def table_rows(repetition: Repetition) -> dict[str, list[tuple[str, ...]]]:
    """For each group a row per metric: its name, mean, standard deviation, and the value of every finished run."""
    found = {}
    for group, spreads in repetition.spreads.items():
        rows = []
        for name, spread in spreads.items():
            known = [run.metrics.get(group, {}).get(name) for run in repetition.finished]
            cells = ["-" if value is None else number_text(name, value) for value in known]
            deviation = "-" if spread.deviation is None else number_text(name, spread.deviation)
            rows.append((name, number_text(name, spread.mean), deviation, *cells))
        found[group] = rows
    return found


def number_text(name: str, value: float) -> str:
    """The value of a metric for people: accuracies and shares in percent."""
    if "accuracy" in name or "share of before" in name:
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, with the columns aligned: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def file_name(name: str) -> str:
    """The file of a repetition, in the folder that holds the run folders of the seeds."""
    return f"repeat-{name}.json"


# -- the metrics of results -------------------------------------------------------------------------------------------


def evaluation_metrics(evaluation: Evaluation, exported: ExportRecord | None, metric: str) -> Metrics:
    """The scores, costs and measured times of a pruned network."""
    before, after = evaluation.before, evaluation.after
    found: Metrics = {}
    for part, old, new in (("test", before.test, after.test), ("held-out", before.holdout, after.holdout)):
        found |= {f"{part} {metric} before": old} if old is not None else {}
        found |= {f"{part} {metric} after": new} if new is not None else {}
        found |= {f"{part} {metric} gained": new - old} if old is not None and new is not None else {}
    for cost, full in before.costs.items():
        if cost in after.costs:
            found |= _cost_metrics(cost, full, after.costs[cost])
    for timing in exported.timings if exported else ():
        where = f"{timing.runtime} on {timing.device}, batch {timing.batch_size}"
        found[f"latency, share of before ({where})"] = timing.after.seconds / timing.before.seconds
    return found


def choice_metrics(choice: ChosenStructure, metric: str) -> Metrics:
    """The estimated score and the limited costs of a structure that was not trained."""
    found: Metrics = {f"estimated {metric}": choice.score}
    for limit in choice.limits:
        found |= _cost_metrics(limit.cost, limit.full, limit.reached)
    return found


def _cost_metrics(cost: str, full: float, left: float) -> Metrics:
    name = cost_words(cost)
    return {f"{name} after": float(left), **({f"{name}, share of before": left / full} if full else {})}
