"""Cautions: what is wrong with a run although its numbers may look right."""

from __future__ import annotations

from dataclasses import dataclass

from aacp.report.numbers import difference, score
from aacp.report.run import Run
from aacp.runs.files import NetworkMetrics

SUSPICIOUS = 0.03  # by so much more of a hold-out right than of test data
HARM = 0.01  # of the score, lost in training


@dataclass(frozen=True)
class Remark:
    """A sentence beside the headline."""

    text: str
    is_good: bool


def cautions(run: Run) -> list[Remark]:
    """All that apply; a drop that was allowed is told in any case."""
    if run.evaluation is None:
        return []
    before, after = run.evaluation.before, run.evaluation.after
    known_by_heart = _about_holdout(before) if run.metric == "accuracy" else []
    trained = [] if known_by_heart else _about_training(run, after.holdout)
    about_removal = [*_about_nothing(before, after), *_about_time(run, before, after)]
    return [*about_removal, *_about_drop(run, before, after), *trained, *known_by_heart]


def _about_nothing(before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    if (before.macs, before.params) != (after.macs, after.params):
        return []
    return [Remark("Nothing was removed: the network met its limits as it was.", False)]


def _about_time(run: Run, before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    """Who asked for fewer MACs may have meant less time."""
    timings = run.exported.timings if run.exported else ()
    asked = () if run.request is None else run.request.limits
    if not timings or after.macs >= before.macs or any(timing.is_faster for timing in timings):
        return []
    if any(limit.cost.name == "latency" for limit in asked):
        return []
    how = "Limit the latency itself (--prune-latency, --max-latency), or cut in steps that suit it (--step auto)."
    return [Remark(f"Fewer MACs made it no faster where it was timed. {how}", False)]


def _about_drop(run: Run, before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    """Structures were chosen for a drop by what was estimated of them; what counts is what was delivered."""
    allowed = None if run.request is None else run.request.max_drop
    if allowed is None or before.holdout is None or after.holdout is None:
        return []
    is_kept = before.holdout - after.holdout <= allowed
    lost = "nothing" if after.holdout >= before.holdout else difference(before.holdout, after.holdout, run.metric)
    verdict = "Drop kept" if is_kept else "Drop NOT kept"
    words = f"{verdict}: {lost} lost on held-out data, where {difference(0.0, allowed, run.metric)} may be."
    return [Remark(words, is_kept)]


def _about_training(run: Run, trained: float | None) -> list[Remark]:
    """A rate that is too high, or too few steps, may cost more than they give back."""
    if run.choice is None or trained is None or run.request is None or run.request.recipe is None:
        return []
    inherited = run.choice.score
    if run.request.from_scratch or inherited - trained <= HARM * abs(inherited):
        return []
    both = (
        f"{score(inherited, run.metric, 1)} on held-out data as inherited, {score(trained, run.metric, 1)} as trained"
    )
    return [Remark(f"Training made it worse: {both}. Train longer, or with a lower learning rate.", False)]


def _about_holdout(unpruned: NetworkMetrics) -> list[Remark]:
    """Examples that a network knows by heart are no hold-out: few mistakes there, and many on test data."""
    test, holdout = unpruned.test, unpruned.holdout
    if test is None or holdout is None or holdout - test < SUSPICIOUS or 4 * (1 - holdout) > 1 - test:
        return []
    both = (
        f"{score(holdout, 'accuracy', 1)} of the held-out examples right and {score(test, 'accuracy', 1)} of the test"
    )
    return [Remark(f"The unpruned network has {both}: it was probably trained on the hold-out.", False)]
