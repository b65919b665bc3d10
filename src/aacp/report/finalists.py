"""Finalists: the structures that were compared by short trainings, and their scores in every rung, as a table."""

from __future__ import annotations

from aacp.report.html import Markup, capitalised, joined, table, tag
from aacp.report.numbers import DASH, score
from aacp.report.run import Run
from aacp.runs.finalists import Finalists
from aacp.user.values import counted


def finalists_table(run: Run) -> Markup:
    """A row for each finalist: its estimate, and its score on the hold-out after each rung that it took part in."""
    found = run.finalists
    if found is None:
        return Markup()
    heads = ("finalist", "estimated", *(f"after {counted(epochs, 'epoch')}" for epochs in found.rungs), "")
    caption = (
        f"Structures of the search that were compared by short trainings: {run.metric} on the hold-out. Every training "
        "began anew, with the whole recipe scaled to its epochs. No decision used the test data."
    )
    rows = [_row(run, found, position) for position in range(len(found.finalists))]
    notes = [tag("p", note) for note in found.notes]
    return joined([table(caption, heads, rows), *notes])


def _row(run: Run, found: Finalists, position: int) -> tuple[object, ...]:
    finalist = found.finalists[position]
    scores = [score(value, run.metric) for value in finalist.holdout]
    missing = [DASH] * (len(found.rungs) - len(scores))
    outcome = "delivered" if finalist is found.winner else ""
    return capitalised(found.name(position)), score(finalist.choice.score, run.metric), *scores, *missing, outcome
