"""Curves: the progress of the search, scores against costs, the progress of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aacp.cost.analytic import Cost
from aacp.cost.kinds import cost_words
from aacp.report.chart import AMBER, BLUE, GREY, Trace, axis, layout, line, points, vertical
from aacp.report.cloud import scale
from aacp.report.html import Figure
from aacp.report.numbers import duration, score
from aacp.report.run import Run
from aacp.runs.chosen import LimitResult
from aacp.runs.scores import Epoch
from aacp.search.history import Candidate, History
from aacp.user.values import counted

CHOSEN = {"color": AMBER, "size": 13, "symbol": "diamond", "line": {"width": 1.5, "color": "#ffffff"}}


def score_title(metric: str, what: str = "estimated") -> str:
    return f"{what} {metric}{', %' if metric == 'accuracy' else ''}"


def search_figure(run: Run) -> Figure | None:
    """The score of every candidate by number, and the best so far."""
    if not len(run.history):
        return None
    best, chosen = run.history.best, chosen_candidate(run)
    assert best is not None
    traces = [*run.cloud.over_time(), *([_chosen(run, chosen, chosen.number)] if chosen is not None else [])]
    caption = (
        f"The search: {counted(len(run.history), 'structure')}, scored before any training. The best score is "
        f"{score(best.score, run.metric)}, of number {best.number}."
    )
    caption += _why_another(run, best, chosen)
    if run.screening is not None:
        caption += f" {run.screening.text(scale(run.metric), ' points' if run.metric == 'accuracy' else '')}"
    caption += run.cloud.remark
    return Figure("search", caption, traces, layout(axis("number of the structure"), axis(score_title(run.metric))))


def _why_another(run: Run, best: Candidate, chosen: Candidate | None) -> str:
    """Why the structure that is delivered is not the one with the best score, as a sentence; empty if it is."""
    found = run.finalists
    if found is not None and found.winner is not None and found.winner is not found.finalists[0]:
        name = found.name(found.finalists.index(found.winner))
        number = "" if chosen is None else f" (number {chosen.number})"
        return f" The delivered structure is {name}{number}: it won the comparison of finalists by short trainings."
    if chosen is None or chosen.number == best.number:
        return ""
    return f" Number {chosen.number} was chosen: its predicted score is better, and single scores are noisy."


def chosen_candidate(run: Run) -> Candidate | None:
    return None if run.choice is None else run.history.find(run.choice.counts)


def _chosen(run: Run, candidate: Candidate, x: float) -> Trace:
    text = replace(run.cloud, history=History([candidate])).hovers([0])
    return points("chosen", [x], [scale(run.metric) * candidate.score], text, CHOSEN)


def cost_figures(run: Run) -> list[Figure]:
    """Score against each cost, with the Pareto front of all candidates."""
    if not len(run.history):
        return []
    limits = run.choice.limits if run.choice else ()
    return [_cost_figure(run, cost, [limit for limit in limits if limit.cost == cost.name]) for cost in run.costs]


def _cost_figure(run: Run, cost: Cost, limits: Sequence[LimitResult]) -> Figure:
    traces = run.cloud.against(run.costs.index(cost))
    chosen = chosen_candidate(run)
    if chosen is not None:
        traces.append(_chosen(run, chosen, float(cost(np.asarray(chosen.structure)))))
    name = cost_words(cost.name)
    marked = " Diamond: the chosen structure." if chosen is not None else ""
    marked += " Dotted: the limit." if limits else ""
    marked += run.cloud.remark
    return Figure(
        f"cost-{cost.name}",
        f"Estimated {run.metric} against {name}. The line is the Pareto front of all candidates.{marked}",
        traces,
        layout(
            _cost_axis(name, cost),
            axis(score_title(run.metric)),
            {"shapes": [vertical(x.bound) for x in limits], "showlegend": False},
        ),
        300,
    )


def _cost_axis(name: str, cost: Cost) -> dict[str, object]:
    return axis(name, {"tickformat": "~s", "ticksuffix": "B" if cost.unit == "bytes" else "", "nticks": 5})


def training_figures(run: Run) -> list[Figure]:
    """A figure for each training of the run."""
    shown = [training for training in run.trainings if training.epochs]
    if len(shown) < 2:
        return [figure for figure in (training_figure(run),) if figure is not None]
    figures = [training_figure(run.about(training.path), training.name) for training in shown]
    return [figure for figure in figures if figure is not None]


def training_figure(run: Run, name: str = "") -> Figure | None:
    """Accuracy, loss and learning rate over the epochs, one above the other; `name` tells several trainings apart."""
    epochs = run.epochs
    if not epochs:
        return None
    times = [epoch.epoch for epoch in epochs]
    traces = _accuracies(epochs, run.metric)
    traces.append(line("loss", times, [epoch.loss for epoch in epochs], {"color": AMBER, "width": 2}, "2"))
    traces.append(line("learning rate", times, [epoch.lr for epoch in epochs], {"color": GREY, "width": 2}, "3"))
    panels = {"yaxis2": axis("loss", {"domain": [0.27, 0.51]}), "yaxis3": axis("lr", {"domain": [0, 0.19]})}
    top = axis(f"{run.metric}{', %' if run.metric == 'accuracy' else ''}", {"domain": [0.59, 1]})
    last = epochs[-1]
    seen = "" if last.holdout is None else f"; {score(last.holdout, run.metric)} on held-out data at the end"
    time = duration(sum(epoch.seconds for epoch in epochs))
    title = f"Training {name}".rstrip()
    caption = f"{title}: {counted(last.epoch, 'epoch')} in {time}, last loss {last.loss:.4g}{seen}."
    x = axis("epoch", {"anchor": "y3"})
    return Figure(
        f"training-{name}".rstrip("-"), caption, traces, layout(x, top, {**panels, "hovermode": "x unified"}), 460
    )


def _accuracies(epochs: Sequence[Epoch], metric: str) -> list[Trace]:
    found = []
    for name, field, style in (
        ("held-out", "holdout", {"color": BLUE, "width": 2}),
        ("batches trained on", "accuracy", {"color": GREY, "width": 1.5, "dash": "dot"}),
    ):
        known = [(epoch.epoch, getattr(epoch, field)) for epoch in epochs if getattr(epoch, field) is not None]
        if known:
            values = [round(scale(metric) * value, 6) for _, value in known]
            found.append(line(name, [time for time, _ in known], values, style))
    return found
