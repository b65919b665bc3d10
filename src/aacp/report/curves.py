"""Curves: the progress of the search, scores against costs, the progress of training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from aacp.cost.analytic import Cost
from aacp.cost.kinds import cost_words
from aacp.report.chart import AMBER, BLUE, GREY, Trace, axis, hover, layout, line, points, vertical
from aacp.report.html import Figure
from aacp.report.numbers import change, duration, quantity, score
from aacp.report.run import Run
from aacp.runs.files import Epoch, LimitResult
from aacp.search.history import Candidate, History

TRIED = {"color": GREY, "size": 6, "opacity": 0.55}
CHOSEN = {"color": AMBER, "size": 13, "symbol": "diamond", "line": {"width": 1.5, "color": "#ffffff"}}


def scale(metric: str) -> float:
    """The factor for the axis of a metric: accuracies are drawn in percent."""
    return 100.0 if metric == "accuracy" else 1.0


def score_title(metric: str, what: str = "estimated") -> str:
    return f"{what} {metric}{', %' if metric == 'accuracy' else ''}"


def candidate_hovers(history: History, costs: Sequence[Cost], metric: str) -> list[str]:
    """The hover text of each candidate: number, generation, score and costs."""
    counts = [list(candidate.structure) for candidate in history]
    priced = [(cost, np.asarray(cost(np.array(counts)))) for cost in costs] if counts else []
    return [
        hover(
            f"number {candidate.number}: {score(candidate.score, metric)}",
            f"generation {candidate.generation}",
            *(_priced(cost, float(values[row])) for cost, values in priced),
        )
        for row, candidate in enumerate(history)
    ]


def _priced(cost: Cost, value: float) -> str:
    return f"{quantity(value, cost.unit)} {_noun(cost.name)} ({change(cost.full, value)})"


def _noun(cost: str) -> str:
    return cost_words(cost).removeprefix("bytes ")  # the quantity has its unit


def search_figure(run: Run) -> Figure | None:
    """The score of every candidate by number, and the best so far."""
    if not len(run.history):
        return None
    numbers = [candidate.number for candidate in run.history]
    scores = [scale(run.metric) * candidate.score for candidate in run.history]
    traces = [
        points("tried", numbers, scores, candidate_hovers(run.history, run.costs, run.metric), TRIED),
        {**line("best so far", numbers, list(accumulate(scores, max)), {"color": BLUE, "width": 2, "shape": "hv"})}
        | {"hoverinfo": "skip"},
    ]
    best, chosen = run.history.best, chosen_candidate(run)
    assert best is not None
    traces += [_chosen(run, chosen, chosen.number)] if chosen is not None else []
    caption = (
        f"The search: {len(run.history)} structures, scored before any training. The best one is number "
        f"{best.number} with {score(best.score, run.metric)}."
    )
    if chosen is not None and chosen.number != best.number:
        caption += f" Number {chosen.number} was chosen: its predicted score is better, and single scores are noisy."
    return Figure("search", caption, traces, layout(axis("number of the structure"), axis(score_title(run.metric))))


def chosen_candidate(run: Run) -> Candidate | None:
    return None if run.choice is None else run.history.find(run.choice.counts)


def _chosen(run: Run, candidate: Candidate, x: float) -> Trace:
    text = candidate_hovers(History([candidate]), run.costs, run.metric)
    return points("chosen", [x], [scale(run.metric) * candidate.score], text, CHOSEN)


def cost_figures(run: Run) -> list[Figure]:
    """Score against each cost, with the Pareto front of all candidates."""
    if not len(run.history):
        return []
    limits = run.choice.limits if run.choice else ()
    return [_cost_figure(run, cost, [limit for limit in limits if limit.cost == cost.name]) for cost in run.costs]


def _cost_figure(run: Run, cost: Cost, limits: Sequence[LimitResult]) -> Figure:
    traces = against(run.history, cost, run.costs, run.metric)
    chosen = chosen_candidate(run)
    if chosen is not None:
        traces.append(_chosen(run, chosen, float(cost(np.asarray(chosen.structure)))))
    name = cost_words(cost.name)
    marked = " Diamond: the chosen structure." if chosen is not None else ""
    marked += " Dotted: the limit." if limits else ""
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


def against(history: History, cost: Cost, costs: Sequence[Cost], metric: str) -> list[Trace]:
    """Points for all candidates, and a line along the Pareto front."""
    values = np.asarray(cost(np.array([list(candidate.structure) for candidate in history])), dtype=float).tolist()
    scores = [scale(metric) * candidate.score for candidate in history]
    front = _front(values, scores)
    style = {"color": BLUE, "width": 2, "shape": "hv"}
    best = line("Pareto front", [x for x, _ in front], [y for _, y in front], style)
    marks = {"mode": "lines+markers", "marker": {"size": 6, "color": BLUE}, "hoverinfo": "skip"}
    return [points("tried", values, scores, candidate_hovers(history, costs, metric), TRIED), {**best, **marks}]


def _front(costs: Sequence[float], scores: Sequence[float]) -> list[tuple[float, float]]:
    """The Pareto front, cheapest first; by sorting, since a sweep may have evaluated tens of thousands."""
    found: list[tuple[float, float]] = []
    for cost, value in sorted(zip(costs, scores, strict=True), key=lambda pair: (pair[0], -pair[1])):
        if not found or value > found[-1][1]:
            found.append((cost, value))
    return found


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
    caption = f"{title}: {last.epoch} epochs in {time}, last loss {last.loss:.4g}{seen}."
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
