"""Sweep: several runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from aacp.cost.kinds import cost_words
from aacp.report.blocks import blocks_figure
from aacp.report.channels import channels_of_runs
from aacp.report.chart import AMBER, axis, hover, layout, points
from aacp.report.cloud import Cloud, scale
from aacp.report.curves import score_title
from aacp.report.headline import limits_text, subject, unpruned_score
from aacp.report.html import Figure, Markup, joined, section, table, tag, verdict
from aacp.report.numbers import DASH, change, gain, score
from aacp.report.rates import outcome, rate_figures
from aacp.report.run import Run
from aacp.runs.chosen import TO_BE_CHECKED, TOO_NOISY
from aacp.search.history import History


def comparison(runs: Sequence[Run]) -> Markup:
    """The part of the page that is about all runs."""
    figures = [*rate_figures(runs), blocks_figure(runs), channels_of_runs(runs), *fronts(runs)]
    drawn = [figure.markup("all-") for figure in figures if figure is not None]
    return joined([section("All runs", _table(runs)), section("Side by side", *drawn)])


def _table(runs: Sequence[Run]) -> Markup:
    heads = ("run", "limits requested", "MACs", "parameters", "unpruned", "score", "change", "limits")
    rows = [_row(run, place) for place, run in enumerate(runs)]
    return table("Every run, and the change of its costs and score.", heads, rows, 2)


def _row(run: Run, place: int) -> tuple[object, ...]:
    before, after, found, unpruned = run.before, run.after, outcome(run), unpruned_score(run)
    outcomes = {limit.outcome for limit in run.limits}
    worst = next((each for each in ("missed", TOO_NOISY, TO_BE_CHECKED) if each in outcomes), "met")
    return (
        tag("a", run.name, attributes={"href": f"#run{place}"}),
        limits_text(run.request.limits) if run.request else DASH,
        change(before.macs, after.macs) if before and after else DASH,
        change(before.params, after.params) if before and after else DASH,
        DASH if unpruned is None else score(unpruned, run.metric),
        DASH if found is None else f"{score(found[0], run.metric)} {found[1]}",
        DASH if unpruned is None or found is None else gain(unpruned, found[0], run.metric),
        verdict(worst) if run.limits else DASH,
    )


def fronts(runs: Sequence[Run]) -> list[Figure]:
    """All candidates of all runs of one network against MACs and parameters, with the Pareto front."""
    searched = [run for run in runs if run.graph is not None and len(run.history)]
    if len(searched) < 2 or len({(subject(run), run.metric) for run in searched}) > 1:
        return []
    if any(run.graph != searched[0].graph for run in searched):
        return []
    metric, costs = searched[0].metric, searched[0].costs
    whole = History.merged(run.history for run in searched)
    cloud = Cloud(whole, costs, metric, min(run.most_points for run in searched))
    return [
        Figure(
            f"front-{cost.name}",
            f"The {len(whole):,} structures evaluated in any run: estimated {metric} against {cost_words(cost.name)}, "
            f"and their Pareto front.{cloud.remark}",
            _with_choices(cloud.against(costs.index(cost)), searched, costs.index(cost)),
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
