"""Repetitions: the mean and the spread of runs with several seeds, as tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aacp.report.html import Markup, joined, section, table, tag
from aacp.runs.folder import RunFolder
from aacp.runs.repeats import Repetition, file_name, table_rows
from aacp.user.values import counted


def repetitions_in(place: str | os.PathLike[str]) -> list[Repetition]:
    """The repetitions that are recorded in a folder, by name."""
    folder = Path(place)
    names = sorted(path.name for path in folder.glob(file_name("*")))
    return [Repetition.from_json(RunFolder(folder).read_json(name)) for name in names]


def over_seeds(repetitions: Sequence[Repetition]) -> Markup:
    """A table for each group of metrics, and the seeds that failed."""
    return section("Over seeds", *(_tables(found) for found in repetitions))


def _tables(found: Repetition) -> Markup:
    seeds = [f"seed {run.seed}" for run in found.finished]
    failures = [
        tag("p", f"{found.name}: seed {run.seed} failed. {run.error}", attributes={"class": "bad"})
        for run in found.failed
    ]
    tables = [
        table(_caption(found, group), ("", "mean", "deviation", *seeds), rows)
        for group, rows in table_rows(found).items()
    ]
    return joined([*tables, *failures])


def _caption(found: Repetition, group: str) -> str:
    name = f"{found.name}, {group}" if group else found.name
    return (
        f"{name}: mean and standard deviation (n \N{MINUS SIGN} 1) over {counted(len(found.finished), 'seed')}, and "
        "every value. Scores are those after the last epoch of training."
    )
