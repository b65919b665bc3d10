"""The headline of a run, which is one sentence, and remarks on what improved and what did not."""

from __future__ import annotations

from collections.abc import Sequence

from aacp.cost.budget import Limit
from aacp.cost.kinds import cost_words
from aacp.report.cautions import Remark, cautions
from aacp.report.numbers import MINUS, difference, duration, percent, quantity, score
from aacp.report.run import Run
from aacp.runs.chosen import TO_BE_CHECKED, TOO_NOISY, LimitResult
from aacp.runs.exports import BeforeAfter
from aacp.runs.scores import NetworkMetrics
from aacp.runs.unfinished import unfinished_lines
from aacp.user.values import counted
from aacp.zoo.catalogue import data_title


def subject(run: Run) -> str:
    """The network and the data of a run: "resnet56 on CIFAR-10"."""
    if run.request is None:
        return run.name if run.graph is None else run.graph.model
    return f"{run.request.model} on {data_title(run.request.data)}"


def headline(run: Run) -> str:
    """One sentence: the network, the reduction of its costs, and its score before and after."""
    return f"{subject(run)}: {', '.join(_achievements(run))}"


def _achievements(run: Run) -> list[str]:
    before, after = run.before, run.after
    if before is not None and after is not None:
        return [fewer(before.macs, after.macs, "MACs"), fewer(before.params, after.params, "parameters"), _right(run)]
    if run.history.best is not None:
        best = score(run.history.best.score, run.metric, 1)
        return [f"{counted(len(run.history), 'structure')} evaluated so far, the best estimated at {best}"]
    if run.graph is not None:
        free = f"{len(run.graph.free)} of {len(run.graph.groups)} groups of channels"
        return [f"traced, not searched yet; {free} may be pruned"]
    return ["no results yet"] if not run.epochs else [f"{counted(len(run.epochs), 'epoch')} of training"]


def fewer(before: float, after: float, noun: str) -> str:
    """The relative change of a count as text: from 50 to 25 MACs is "50 % fewer MACs"."""
    if before == after or not before:
        return f"no fewer {noun}"
    return f"{percent(abs(1 - after / before))} {'fewer' if after < before else 'more'} {noun}"


def _right(run: Run) -> str:
    """The score after and before, on the same data."""
    suffix = " right" if run.metric == "accuracy" else f" {run.metric}"
    found = compared(run)
    if found is None:
        if run.choice is None:
            return "not scored yet"
        return f"estimated at {score(run.choice.score, run.metric, 1)}{suffix} before training"
    short, exact = ([score(value, run.metric, digits) for value in found] for digits in (1, 2))
    if exact[0] == exact[1]:
        return f"{short[1]}{suffix} as before"
    before, after = short if short[0] != short[1] else exact
    return f"{after} instead of {before}{suffix}"


def compared(run: Run) -> tuple[float, float] | None:
    """The scores before and after on test data or, without them, on held-out data."""
    if run.evaluation is None:
        return None
    before, after = run.evaluation.before, run.evaluation.after
    for pair in ((before.test, after.test), (before.holdout, after.holdout)):
        if pair[0] is not None and pair[1] is not None:
            return pair[0], pair[1]
    return None


def unpruned_score(run: Run) -> float | None:
    """The score of the unpruned network, on the data that the score of the run is from."""
    pair = compared(run)
    if pair is not None:
        return pair[0]
    return None if run.choice is None else run.choice.unpruned


def remarks(run: Run) -> list[Remark]:
    """Remarks below the headline: steps to finish, score lost, limits missed, costs that grew, cautions, speed."""
    found = [Remark(line, False) for line in unfinished_lines(run.unfinished)] if run.evaluation is None else []
    found += _about_score(run)
    found += [Remark(_missed(limit), False) for limit in run.limits if limit.outcome == "missed"]
    found += _about_device(run)
    if run.before is not None and run.after is not None:
        found += _about_growth(run.before, run.after)
    found += cautions(run)
    return found + [_about_time(timing) for timing in (run.exported.timings if run.exported else ())]


def _about_score(run: Run) -> list[Remark]:
    pair = compared(run)
    if pair is None or pair[1] >= pair[0] or score(pair[0], run.metric) == score(pair[1], run.metric):
        return []
    words = difference(*pair, run.metric)
    on_test = run.evaluation is not None and run.evaluation.after.test is not None
    where = "test data" if on_test else "held-out data"
    return [Remark(f"{run.metric.capitalize()} lost: {words} on {where}.", False)]


def _missed(limit: LimitResult) -> str:
    reached, bound = quantity(limit.reached, limit.unit), quantity(limit.bound, limit.unit)
    return f"Limit missed: {cost_words(limit.cost)} is {reached}, but the limit is {bound}."


def _about_device(run: Run) -> list[Remark]:
    """Whether the limit on latency holds on a device that is not here, which is not known before a check there."""
    found = run.device_check
    predicted = next((limit for limit in run.limits if limit.outcome == TO_BE_CHECKED), None)
    if predicted is not None:
        problem = predicted.table_problem
        doubt = f" The latency table cannot decide anything: {problem}." if problem else ""
        return [Remark(f"The latency is predicted for another device, and is {TO_BE_CHECKED}.{doubt}", None)]
    if found is None:
        return []
    numbers = f"{duration(found.limit.reached)} instead of {duration(found.limit.full)}"
    where = f"on {found.machine} in {found.runtime} {found.version}"
    if found.limit.outcome == TOO_NOISY:
        return [Remark(f"Too noisy to tell whether the latency is within its limit {where}: {numbers}.", None)]
    return [Remark(f"The latency is within its limit {where}: {numbers}.", True)] if found.is_met else []


def _about_growth(before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    """The costs that grew; the headline names those that fell."""
    grown = [
        (cost_words(cost), value, after.costs[cost])
        for cost, value in before.costs.items()
        if cost in after.costs and after.costs[cost] > value
    ]
    return [Remark(f"Not smaller: {fewer(old, new, name)} than before.", False) for name, old, new in grown]


def _about_time(timing: BeforeAfter) -> Remark:
    before, after, where = timing.before, timing.after, f"in {timing.runtime} on {timing.device}"
    numbers = f"{duration(after.seconds)} instead of {duration(before.seconds)} for a batch of {timing.batch_size}"
    if timing.is_faster:
        return Remark(f"{timing.times:.2f} times as fast{timing.measure} {where}: {numbers}.", True)
    if timing.is_slower:
        return Remark(f"Slower {where}: {numbers}.", False)
    if timing.is_as_fast:
        return Remark(f"Not faster {where}: {numbers}.", False)
    return Remark(f"Too noisy to tell whether it is faster {where}: {numbers}.", None)


def limits_text(limits: Sequence[Limit]) -> str:
    """The requested limits as short text: "MACs \N{MINUS SIGN}50 %, latency \N{LESS-THAN OR EQUAL TO} 1.8 ms"."""
    words = []
    for limit in limits:
        name = cost_words(limit.cost.name)
        if limit.pruning_rate is not None:
            words.append(f"{name} {MINUS}{percent(limit.pruning_rate)}")
        elif limit.at_most is not None:
            words.append(f"{name} \N{LESS-THAN OR EQUAL TO} {quantity(limit.at_most, limit.cost.unit)}")
    return ", ".join(words) or "no limit"


def headline_of(runs: Sequence[Run]) -> str:
    """One sentence for several runs: the ranges of their reductions and scores."""
    subjects = list(dict.fromkeys(subject(run) for run in runs))
    whole = f"{len(runs)} runs of {subjects[0]}" if len(subjects) == 1 else f"{len(runs)} runs"
    pairs = [(run.before, run.after) for run in runs if run.before and run.after]
    cuts = [1 - after.macs / before.macs for before, after in pairs if before.macs]
    parts = [f"{_range([percent(cut) for cut in sorted(cuts)])} fewer MACs"] if cuts and min(cuts) > 0 else []
    scores = [pair for run in runs if (pair := compared(run)) is not None]
    if scores and len({run.metric for run in runs}) == 1:
        metric = runs[0].metric
        after = _range([score(value, metric, 1) for value in sorted(value for _, value in scores)])
        unpruned = {before for before, _ in scores}
        instead = f", {score(unpruned.pop(), metric, 1)} before pruning" if len(unpruned) == 1 else ""
        parts.append(f"{after}{' right' if metric == 'accuracy' else ' ' + metric}{instead}")
    return f"{whole}: {', '.join(parts)}" if parts else whole


def _range(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"
