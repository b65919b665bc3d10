"""Sweep: several runs beside each other, over one pruning rate or two (the paper's Fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from aacp.cost.kinds import cost_words
from aacp.report.channels import channels_of_runs
from aacp.report.chart import AMBER, BLUE, GREY, SHADES, axis, hover, layout, line, points
from aacp.report.curves import against, scale, score_title
from aacp.report.headline import compared, limits_text, subject
from aacp.report.html import Figure, Markup, joined, section, table, tag
from aacp.report.numbers import DASH, change, gain, percent, score
from aacp.report.run import Run
from aacp.search.history import History

Rates = dict[str, float]


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


def comparison(runs: Sequence[Run]) -> Markup:
    """The part of the page that is about all runs."""
    figures = [rate_figure(runs), channels_of_runs(runs), *fronts(runs)]
    drawn = [figure.markup("all-") for figure in figures if figure is not None]
    return joined([section("All runs", _table(runs)), section("Side by side", *drawn)])


def _table(runs: Sequence[Run]) -> Markup:
    heads = ("run", "limits requested", "MACs", "parameters", "accuracy", "change", "limits")
    rows = [_row(run, place) for place, run in enumerate(runs)]
    return table("Every run, and the change of its costs and score.", heads, rows, 2)


def _row(run: Run, place: int) -> tuple[object, ...]:
    before, after, found, pair = run.before, run.after, outcome(run), compared(run)
    is_cut = before is not None and after is not None
    missed = [limit for limit in (run.choice.limits if run.choice else ()) if not limit.holds]
    verdict = tag("span", "missed" if missed else "met", attributes={"class": "bad" if missed else "good"})
    return (
        tag("a", run.name, attributes={"href": f"#run{place}"}),
        limits_text(run.request.limits) if run.request else DASH,
        change(before.macs, after.macs) if is_cut and before and after else DASH,
        change(before.params, after.params) if is_cut and before and after else DASH,
        DASH if found is None else f"{score(found[0], run.metric)} {found[1]}",
        DASH if pair is None else gain(*pair, run.metric),
        verdict if run.choice and run.choice.limits else DASH,
    )


def rate_figure(runs: Sequence[Run]) -> Figure | None:
    """A line over the one rate that differs, or a heat map over two; None if the runs cannot be compared."""
    judged = [(run, found[0], found[1]) for run in runs if (found := outcome(run)) is not None]
    is_fair = len({kind for _, _, kind in judged}) == 1 and len({subject(run) for run in runs}) == 1
    costs = varied([run for run, _, _ in judged])
    if not is_fair or len(costs) not in (1, 2):
        return None
    draw = _line_figure if len(costs) == 1 else _shades_figure
    return draw([(run, value) for run, value, _ in judged], costs, judged[0][2])


def _line_figure(judged: Sequence[tuple[Run, float]], costs: Sequence[str], kind: str) -> Figure:
    metric, cost = judged[0][0].metric, costs[0]
    by_rate = _grouped(judged, costs)
    places = sorted(by_rate)
    means = [scale(metric) * fmean(value for _, value in by_rate[place]) for place in places]
    xs = [100 * rates(run).get(cost, 0.0) for run, _ in judged]
    ys = [scale(metric) * value for _, value in judged]
    texts = [hover(run.name, f"{score(value, metric)} {kind}") for run, value in judged]
    traces = [
        line("mean", [100 * place[0] for place in places], means, {"color": BLUE, "width": 2}) | {"hoverinfo": "skip"},
        points("runs", xs, ys, texts, {"color": BLUE, "size": 9}),
    ]
    unpruned = {pair[0] for run, _ in judged if (pair := compared(run)) is not None}
    if len(unpruned) == 1:
        level = scale(metric) * unpruned.pop()
        traces.append(line("unpruned", [min(xs), max(xs)], [level, level], {"color": GREY, "dash": "dot"}))
    caption = f"{metric.capitalize()} ({kind}) over the requested pruning rate of {cost_words(cost)}."
    x, y = axis(f"{cost_words(cost)} removed, %"), axis(score_title(metric, kind))
    return Figure("rates", caption, traces, layout(x, y))


def _shades_figure(judged: Sequence[tuple[Run, float]], costs: Sequence[str], kind: str) -> Figure:
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


def _grouped(
    judged: Sequence[tuple[Run, float]], costs: Sequence[str]
) -> dict[tuple[float, ...], list[tuple[Run, float]]]:
    """Runs by their requested rates; runs with several seeds are in one group."""
    found: dict[tuple[float, ...], list[tuple[Run, float]]] = {}
    for run, value in judged:
        found.setdefault(tuple(rates(run).get(cost, 0.0) for cost in costs), []).append((run, value))
    return found


def fronts(runs: Sequence[Run]) -> list[Figure]:
    """All candidates of all runs of one network against MACs and parameters, with the Pareto front."""
    searched = [run for run in runs if run.graph is not None and len(run.history)]
    if len(searched) < 2 or len({(subject(run), run.metric) for run in searched}) > 1:
        return []
    if any(run.graph != searched[0].graph for run in searched):
        return []
    metric, costs = searched[0].metric, searched[0].costs
    whole = History.merged(run.history for run in searched)
    return [
        Figure(
            f"front-{cost.name}",
            f"The {len(whole):,} structures evaluated in any run: estimated {metric} against {cost_words(cost.name)}, "
            "and their Pareto front.",
            _with_choices(against(whole, cost, costs, metric), searched, costs.index(cost)),
            layout(axis(cost_words(cost.name), {"tickformat": "~s", "nticks": 6}), axis(score_title(metric))),
        )
        for cost in costs[:2]
    ]


def _with_choices(traces: list[dict[str, object]], runs: Sequence[Run], place: int) -> list[dict[str, object]]:
    chosen = [(run, run.choice) for run in runs if run.choice is not None]
    xs = [float(run.costs[place](list(choice.counts))) for run, choice in chosen]
    ys = [scale(run.metric) * choice.score for run, choice in chosen]
    texts = [hover(run.name, f"chosen at {score(choice.score, run.metric)}") for run, choice in chosen]
    return [*traces, points("chosen", xs, ys, texts, {"color": AMBER, "size": 10, "symbol": "diamond"})]
