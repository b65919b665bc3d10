"""Cautions: remarks on results that should not be trusted, or that miss the goal of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aacp.cost.kinds import LATENCY
from aacp.report.numbers import difference, duration, score
from aacp.report.run import Run
from aacp.runs.exports import IN_INT8
from aacp.runs.requests import Request
from aacp.runs.scores import NetworkMetrics, is_within_drop

# If the accuracy on the hold-out exceeds that on test data by this much, the hold-out was probably trained on.
LEAKAGE_GAP = 0.03
# If training lowers the score by more than this share of it, and an accuracy by more than chance, the report says that
# training did harm.
TRAINING_LOSS = 0.01


@dataclass(frozen=True)
class Remark:
    """A sentence below the headline, marked as good or bad, or not marked if `is_good` is None."""

    text: str
    is_good: bool | None


def cautions(run: Run) -> list[Remark]:
    """All cautions that apply to a run. If the run has a `max_drop`, one remark says whether it was met."""
    if run.evaluation is None:
        return []
    before, after = run.evaluation.before, run.evaluation.after
    leakage = _about_holdout(before) if run.metric == "accuracy" else []
    trained = [] if leakage else _about_training(run, after.holdout)
    about_removal = [*_about_nothing(before, after), *_about_time(run, before, after), *_about_int8(run)]
    return [*about_removal, *_about_drop(run, before, after), *trained, *leakage]


def _about_nothing(before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    if (before.macs, before.params) != (after.macs, after.params):
        return []
    return [Remark("Nothing was removed: the unpruned network already meets the limits.", False)]


def _about_time(run: Run, before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    """Warn if the network has fewer MACs but is not faster, since the goal may have been a faster network.

    A timing that is too noisy to tell is not a reason to warn.
    """
    timings = run.exported.timings if run.exported else ()
    if not timings or after.macs >= before.macs:
        return []
    if any(timing.is_faster or not timing.is_decided for timing in timings):
        return []
    if run.request is not None and LATENCY in _reduced_costs(run.request):
        return []
    how = (
        "Limit the latency itself (--prune-latency, --max-latency), or choose the pruning step by timing (--step auto)."
    )
    return [Remark(f"The network has fewer MACs but is not faster where it was timed. {how}", False)]


def _about_int8(run: Run) -> list[Remark]:
    """Warn if the pruned network is slower in int8 than in float in the same runtime, beyond the quartiles."""
    timings = {timing.runtime: timing.after for timing in (run.exported.timings if run.exported else ())}
    found = []
    for name, quantized in timings.items():
        plain = timings.get(name.replace(IN_INT8, "")) if IN_INT8 in name else None
        if plain is not None and quantized.low_seconds > plain.high_seconds:
            both = f"{duration(quantized.seconds)} against {duration(plain.seconds)}"
            found.append(Remark(f"The pruned network is slower in int8 than in float: {both} ({name}).", False))
    return found


def _reduced_costs(request: Request) -> set[str]:
    """The costs that a run has limits on, and the cost that a max_drop reduces."""
    shrunk = set() if request.max_drop is None or request.shrink is None else {request.shrink}
    return {limit.cost.name for limit in request.limits} | shrunk


def _about_drop(run: Run, before: NetworkMetrics, after: NetworkMetrics) -> list[Remark]:
    """Compare the drop of the delivered network with the limit: the search used estimated drops."""
    allowed = None if run.request is None else run.request.max_drop
    if allowed is None or before.holdout is None or after.holdout is None:
        return []
    is_met = is_within_drop(before.holdout, after.holdout, allowed)
    lost = "nothing" if after.holdout >= before.holdout else difference(before.holdout, after.holdout, run.metric)
    verdict = "Largest drop met" if is_met else "Largest drop exceeded"
    most = difference(0.0, allowed, run.metric)
    return [Remark(f"{verdict}: {lost} lost on held-out data; the limit is {most}.", is_met)]


def _about_training(run: Run, trained: float | None) -> list[Remark]:
    """Warn if training lowered the score, as it can with a learning rate that is too high or with too few steps."""
    if run.choice is None or trained is None or run.training is None or run.training.recipe is None:
        return []
    inherited = run.choice.score
    loss = max(TRAINING_LOSS * abs(inherited), _chance(run, inherited, trained))
    if run.training.from_scratch or inherited - trained <= loss:
        return []
    both = (
        f"{score(inherited, run.metric, 1)} on held-out data before training, {score(trained, run.metric, 1)} after it"
    )
    return [Remark(f"Training lowered the score: {both}. Train longer, or with a lower learning rate.", False)]


def _chance(run: Run, *accuracies: float) -> float:
    """Two standard errors of the difference of two accuracies on the hold-out; 0 for other scores."""
    examples = None if run.request is None else run.request.holdout_size
    if run.metric != "accuracy" or not examples:
        return 0.0
    return 2 * math.sqrt(sum(accuracy * (1 - accuracy) for accuracy in accuracies) / examples)


def _about_holdout(unpruned: NetworkMetrics) -> list[Remark]:
    """Warn if the network was probably trained on the hold-out: it makes few mistakes there and many on test data."""
    test, holdout = unpruned.test, unpruned.holdout
    if test is None or holdout is None or holdout - test < LEAKAGE_GAP or 4 * (1 - holdout) > 1 - test:
        return []
    both = f"{score(holdout, 'accuracy', 1)} accuracy on held-out data and {score(test, 'accuracy', 1)} on test data"
    why = "it was probably trained on the hold-out, unless the test data are harder"
    return [Remark(f"The unpruned network has {both}: {why}.", False)]
