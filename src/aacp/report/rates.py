"""Rates: scores of several runs over their pruning rates (the paper's Fig. 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from aacp.cost.kinds import cost_words
from aacp.report.chart import BLUE, GREY, LINE_COLOURS, SHADES, Trace, axis, hover, layout, line, points
from aacp.report.cloud import scale
from aacp.report.curves import score_title
from aacp.report.headline import compared, subject, unpruned_score
from aacp.report.html import Figure
from aacp.report.numbers import MINUS, percent, score
from aacp.report.run import Run

Rates = dict[str, float]
Judged = tuple[Run, float]  # a run and its score
KINDS = ("test", "held-out", "estimated")  # what scores are measured on, the most telling first
FEWEST_POINTS = 3  # fewer scores are not drawn as a line of their own


def rates(run: Run) -> Rates:
    """The requested pruning rate of each cost."""
    limits = () if run.request is None else run.request.limits
    return {limit.cost.name: limit.pruning_rate for limit in limits if limit.pruning_rate is not None}


def varied(runs: Sequence[Run]) -> list[str]:
    """The costs whose rate differs between runs; one that is not limited has rate 0, as in the paper."""
    names = dict.fromkeys(cost for run in runs for cost in rates(run))
    return [name for name in names if len({rates(run).get(name, 0.0) for run in runs}) > 1]


def outcome(run: Run) -> tuple[float, str] | None:
    """The score of a run, and the data that it was measured on."""
    pair = compared(run)
    if pair is not None and run.evaluation is not None:
        return pair[1], "test" if run.evaluation.after.test is not None else "held-out"
    return None if run.choice is None else (run.choice.score, "estimated")


def rate_figures(runs: Sequence[Run]) -> list[Figure]:
    """The scores over the rate that differs between the runs, or over two rates; empty if they cannot be compared.

    Over one rate, a line. Over two, a heat map, and for each rate lines along which the other rate is fixed.
    """
    judged, kind = _comparable(runs)
    costs = varied([run for run, _ in judged])
    if len({subject(run) for run in runs}) != 1 or len(costs) not in (1, 2):
        return []
    if len(costs) == 1:
        figures = [_line_figure(judged, costs[0], kind)]
    else:
        lines = [_fixed_figure(judged, cost, kind) for cost in costs]
        figures = [_shades_figure(judged, costs, kind), *(figure for figure in lines if figure is not None)]
    if len(judged) == len(runs):
        return figures
    missing = f" Not shown, for lack of such a score: {len(runs) - len(judged)} of {len(runs)} runs."
    return [replace(figure, caption=figure.caption + missing) for figure in figures]


def _comparable(runs: Sequence[Run]) -> tuple[list[Judged], str]:
    """The runs that have the most common kind of score, and this kind: a part of a sweep may not be trained yet."""
    found = [(run, *score_and_kind) for run in runs if (score_and_kind := outcome(run)) is not None]
    kinds = Counter(kind for *_, kind in found)
    kind = max(KINDS, key=lambda kind: kinds[kind])
    return [(run, value) for run, value, its_kind in found if its_kind == kind], kind


def _line_figure(judged: Sequence[Judged], cost: str, kind: str) -> Figure:
    """The scores over the only rate that differs."""
    metric = judged[0][0].metric
    traces = [
        *_line_with_points(judged, cost, kind, "mean", BLUE),
        *_unpruned_line(judged, [100 * _rate(run, cost) for run, _ in judged]),
    ]
    fixed = _fixed_text(judged[0][0], cost)
    fixed = f", with {fixed} in every run" if fixed else ""
    caption = f"{metric.capitalize()} ({kind}) over the requested pruning rate of {cost_words(cost)}{fixed}."
    x = axis(f"{cost_words(cost)} removed, %")
    return Figure("rates", caption, traces, layout(x, axis(score_title(metric, kind))))


def _fixed_figure(judged: Sequence[Judged], cost: str, kind: str) -> Figure | None:
    """The scores over one rate, with a line for each setting of the other rates that has enough points."""
    metric = judged[0][0].metric
    settings: dict[str, list[Judged]] = {}
    for run, value in judged:
        settings.setdefault(_fixed_text(run, cost), []).append((run, value))
    lines = {
        fixed: members
        for fixed, members in settings.items()
        if len({_rate(run, cost) for run, _ in members}) >= FEWEST_POINTS
    }
    if not lines:
        return None
    traces: list[Trace] = []
    for place, (fixed, members) in enumerate(lines.items()):
        colour = LINE_COLOURS[place % len(LINE_COLOURS)]
        traces += _line_with_points(members, cost, kind, fixed or "no other limit", colour)
    drawn = [run for members in lines.values() for run in members]
    traces += _unpruned_line(drawn, [100 * _rate(run, cost) for run, _ in drawn])
    caption = (
        f"{metric.capitalize()} ({kind}) over the requested pruning rate of {cost_words(cost)}, while the other limit "
        f"is fixed: {', '.join(fixed or 'no other limit' for fixed in lines)}."
    )
    x = axis(f"{cost_words(cost)} removed, %")
    return Figure(f"rates-{cost}", caption, traces, layout(x, axis(score_title(metric, kind))))


def _line_with_points(judged: Sequence[Judged], cost: str, kind: str, name: str, colour: str) -> list[Trace]:
    """A line through the mean score at each rate, and a point for every run."""
    metric = judged[0][0].metric
    by_rate = _grouped(judged, [cost])
    places = sorted(by_rate)
    means = [scale(metric) * fmean(value for _, value in by_rate[place]) for place in places]
    xs = [100 * _rate(run, cost) for run, _ in judged]
    ys = [scale(metric) * value for _, value in judged]
    texts = [hover(run.name, f"{score(value, metric)} {kind}") for run, value in judged]
    through = line(name, [100 * place[0] for place in places], means, {"color": colour, "width": 2})
    marks = points(f"{name}: runs" if name != "mean" else "runs", xs, ys, texts, {"color": colour, "size": 9})
    return [{**through, "hoverinfo": "skip"}, marks]


def _unpruned_line(judged: Sequence[Judged], xs: Sequence[float]) -> list[Trace]:
    """A level line at the score of the unpruned network, if it is known and the same for all runs."""
    found = {value for run, _ in judged if (value := unpruned_score(run)) is not None}
    if len(found) != 1:
        return []
    level = scale(judged[0][0].metric) * found.pop()
    return [line("unpruned", [min(xs), max(xs)], [level, level], {"color": GREY, "dash": "dot"})]


def _rate(run: Run, cost: str) -> float:
    return rates(run).get(cost, 0.0)


def _fixed_text(run: Run, cost: str) -> str:
    """The rates of all costs but one: "MACs \N{MINUS SIGN}50 %"; a rate of 0 is no limit."""
    others = {name: rate for name, rate in rates(run).items() if name != cost and rate}
    return ", ".join(f"{cost_words(name)} {MINUS}{percent(rate)}" for name, rate in others.items())


def _shades_figure(judged: Sequence[Judged], costs: Sequence[str], kind: str) -> Figure:
    metric, cells = judged[0][0].metric, _grouped(judged, costs)
    xs, ys = (sorted({place[index] for place in cells}) for index in (0, 1))
    means = {place: fmean(value for _, value in found) for place, found in cells.items()}
    z = [[scale(metric) * means[x, y] if (x, y) in means else None for x in xs] for y in ys]
    names = {
        place: hover(*(f"{run.name}: {score(value, metric)}" for run, value in found)) for place, found in cells.items()
    }
    trace = {
        "type": "heatmap",
        "z": z,
        "text": [["" if (x, y) not in means else score(means[x, y], metric, 1) for x in xs] for y in ys],
        "texttemplate": "%{text}",
        "hovertext": [[names.get((x, y), "") for x in xs] for y in ys],
        "hoverinfo": "text",
        "colorscale": SHADES,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "xgap": 2,
        "ygap": 2,
    }
    first, second = (cost_words(cost) for cost in costs)
    caption = f"{metric.capitalize()} ({kind}) over the requested pruning rates of {first} and {second}."
    x, y = axis(f"{first} removed", _ticks(xs)), axis(f"{second} removed", _ticks(ys))
    return Figure("rates", caption, [trace], layout(x, y), 130 + 52 * max(3, len(ys)))


def _ticks(values: Sequence[float]) -> dict[str, object]:
    """Ticks labelled with their rates. All cells have the same size, even if the rates are not equally spaced."""
    names = [percent(value) for value in values]
    return {"tickvals": list(range(len(values))), "ticktext": names, "showgrid": False}


def _grouped(judged: Sequence[Judged], costs: Sequence[str]) -> dict[tuple[float, ...], list[Judged]]:
    """Runs by their requested rates; runs with several seeds are in one group."""
    found: dict[tuple[float, ...], list[Judged]] = {}
    for run, value in judged:
        found.setdefault(tuple(_rate(run, cost) for cost in costs), []).append((run, value))
    return found
