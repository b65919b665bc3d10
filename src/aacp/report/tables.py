"""Tables: the parts of a report that show one run in rows of numbers and text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aacp.cost.kinds import cost_unit, cost_words
from aacp.cost.quantities import rounded
from aacp.report.channels import kept_counts, layers_of
from aacp.report.headline import limits_text
from aacp.report.html import Markup, capitalised, definitions, details, joined, listed, table, tag, verdict
from aacp.report.numbers import (
    DASH,
    NBSP,
    change,
    difference,
    duration,
    gain,
    percent,
    plain,
    quantity,
    score,
    signed,
    size,
)
from aacp.report.run import RecordedTraining, Run
from aacp.runs.chosen import LimitResult
from aacp.runs.exports import Latency, QuantizedScores, Resources
from aacp.runs.finalists import rungs_text
from aacp.runs.requests import Request
from aacp.user.values import counted, score_text

Row = tuple[object, object, object, object]
TIMES = (
    " Times are medians of one batch, with quartiles. Their change is the median over turns that time both networks, "
    "one after the other: on a busy machine it differs from that of the medians, and is more exact."
)

# -- before and after -------------------------------------------------------------------------------------------------


def before_and_after(run: Run) -> Markup:
    rows = [*_scores(run), *_costs(run), *_exports(run)]
    if not rows:
        return Markup()
    if run.after is None and run.exported is None:
        return table("The unpruned network.", ("", "unpruned"), [row[:2] for row in rows])
    caption = f"The unpruned network and the pruned one.{TIMES if run.exported and run.exported.timings else ''}"
    return table(caption, ("", "before", "after", "change"), rows)


def _scores(run: Run) -> Iterator[Row]:
    if run.evaluation is None:
        return
    before, after = run.evaluation.before, run.evaluation.after
    for name, old, new in (("test", before.test, after.test), ("held-out", before.holdout, after.holdout)):
        if old is not None or new is not None:
            difference = DASH if old is None or new is None else _under(*gain(old, new, run.metric).split(NBSP))
            yield f"{run.metric.capitalize()}, {name}", _score(old, run), _score(new, run), difference
    yield from _scores_in_int8(run)


def _scores_in_int8(run: Run) -> Iterator[Row]:
    """The scores of the quantised networks, below those in float."""
    files = run.exported.in_int8 if run.exported else None
    if files is None or files.quantized is None:
        return
    old, new = files.quantized.before_test, files.quantized.after_test
    if old is None or new is None:
        yield f"{run.metric.capitalize()}, test, int8", DASH, DASH, files.quantized.note
        return
    lost = _under(*gain(old, new, run.metric).split(NBSP))
    yield f"{run.metric.capitalize()}, test, int8", _score(old, run), _score(new, run), lost


def _score(value: float | None, run: Run) -> str:
    return DASH if value is None else score(value, run.metric)


def _costs(run: Run) -> Iterator[Row]:
    before, after = run.before, run.after
    if before is None:
        return
    units = {limit.cost: limit.unit for limit in (run.choice.limits if run.choice else ())}
    for cost, old in before.costs.items():
        new = None if after is None else after.costs.get(cost)
        yield _cost_row(capitalised(cost_words(cost)), old, new, units.get(cost, cost_unit(cost)))
    if before.file_bytes is not None:
        yield _cost_row("Weights as a file", before.file_bytes, None if after is None else after.file_bytes, "bytes")


def _cost_row(name: str, old: float, new: float | None, unit: str) -> Row:
    if new is None:
        return name, quantity(old, unit), DASH, DASH
    return name, quantity(old, unit), quantity(new, unit), change(old, new)


def _exports(run: Run) -> Iterator[Row]:
    if run.exported is None:
        return
    old, new = run.exported.before_bytes, run.exported.after_bytes
    yield "ONNX file", size(old), size(new), change(old, new)
    for files in run.exported.others:
        old, new = files.before_bytes, files.after_bytes
        yield files.file, size(old), size(new), change(old, new)
    for timing in run.exported.timings:
        name = f"{timing.runtime} on {timing.device}, batch {timing.batch_size}"
        before, after = timing.before, timing.after
        yield name, _latency(before), _latency(after), change(timing.times, 1)
    yield from _resources(run.exported.resources)


def _resources(found: Resources | None) -> Iterator[Row]:
    """The memory of both networks in the process of the runtime, and their energy where it is counted."""
    if found is None:
        return
    old, new = found.before_bytes, found.after_bytes
    yield f"Memory in {found.runtime}", size(old), size(new), change(old, new) if old else DASH
    if found.before_joules is not None and found.after_joules is not None:
        before, after = (f"{rounded(1e3 * value)}{NBSP}mJ" for value in (found.before_joules, found.after_joules))
        name = f"Energy of a batch, {found.energy_source}"
        yield name, before, after, change(found.before_joules, found.after_joules)


def _latency(time: Latency) -> Markup:
    return _under(duration(time.seconds), f"{_bare(time.low_seconds, time)}{DASH}{_bare(time.high_seconds, time)}")


def _under(value: str, remark: str = "") -> Markup:
    """A number with a smaller remark below it, so that tables stay narrow."""
    return joined([value, " ", tag("small", remark)]) if remark else joined([value])


def _bare(seconds: float, beside: Latency) -> str:
    """A quartile in the unit of the median, without the name of the unit."""
    unit = next((unit for unit in (60.0, 1.0, 1e-3, 1e-6) if beside.seconds >= unit), 1e-9)
    return rounded(seconds / unit)


# -- limits, channels -------------------------------------------------------------------------------------------------


def limits_table(run: Run) -> Markup:
    if not run.limits:
        return Markup()
    heads = ("limit", "unpruned", "at most", "reached", "to spare", "")
    caption = (
        "The requested limits and the costs of the chosen structure. To spare: points of the unpruned cost; for an "
        "absolute limit, of the limit."
    )
    return table(caption, heads, [_limit(limit) for limit in run.limits])


def _limit(limit: LimitResult) -> tuple[object, ...]:
    full, bound, reached = (quantity(value, limit.unit) for value in (limit.full, limit.bound, limit.reached))
    name = capitalised(cost_words(limit.cost))
    requested = f"at most {bound}" if limit.pruning_rate is None else f"{percent(limit.pruning_rate)} less"
    shown = _under(reached, signed(percent(limit.reached / limit.full - 1, 2))) if limit.full else reached
    return f"{name}: {requested}", full, bound, shown, percent(limit.slack, 2), verdict(limit.outcome)


def channel_table(run: Run) -> Markup:
    """The content of the figure as a table, also for readers who cannot see the figure."""
    graph = run.graph
    if graph is None or not graph.groups:
        return Markup()
    rows = []
    kept = kept_counts(graph, run.choice.counts if run.choice else None)
    for group, left in zip(graph.groups, kept, strict=True):
        unit = group.unit_channels
        state = graph.state(group) if group.frozen is None else f"frozen: {group.frozen}"
        layers = ", ".join(layers_of(group, graph))
        rows.append((group.name, layers, state, left * unit, group.width * unit, percent(left / group.width)))
    heads = ("group", "layers", "state", "kept", "of", "share")
    return details("The same as a table", table("Channels of each group.", heads, rows, numeric=3))


def frozen_table(run: Run) -> Markup:
    frozen = [] if run.graph is None else [group for group in run.graph.groups if group.frozen is not None]
    if not frozen or run.graph is None:
        return Markup()
    rows = [(group.name, group.frozen, group.width * group.unit_channels) for group in frozen]
    caption = f"{percent(run.graph.free_share)} of all convolution channels can be pruned; these groups cannot."
    return table(caption, ("group", "reason", "channels"), rows, numeric=2)


def tracing_notes(run: Run) -> Markup:
    return listed("Notes of the tracer:", () if run.graph is None else run.graph.notes)


# -- trainings --------------------------------------------------------------------------------------------------------


def trainings_table(run: Run) -> Markup:
    """All trainings of the structure, if there are several or one failed."""
    known = [training for training in run.trainings if training.request is not None]
    if len(known) < 2 and not any(training.request and training.request.failure for training in known):
        return Markup()
    heads = ("training", "how", "epochs", f"test {run.metric}", f"held-out {run.metric}", "")
    caption = (
        "All trainings of the structure in this folder. The rest of the page is about the first that was evaluated."
    )
    return table(caption, heads, [_training(training, run) for training in known], numeric=2)


def _training(training: RecordedTraining, run: Run) -> tuple[object, ...]:
    request = training.request
    assert request is not None
    planned = (request.recipe or {}).get("epochs", 0)
    after = None if training.evaluation is None else training.evaluation.after
    scores = (None, None) if after is None else (after.test, after.holdout)
    state = request.failure or ("" if after else "not finished")
    done = f"{len(training.epochs)} of {planned}"
    return training.name, request.kind, done, *(_score(value, run) for value in scores), state


# -- recovery without training ----------------------------------------------------------------------------------------

STEPS = {
    "inherited": "Inherited: the kept weights as they are",
    "recalibrated": "Recalibrated: batch norms measured again",
    "repaired": "Repaired: weights fitted to the original's outputs",
    "reconstructed": "Reconstructed: weights corrected by your function",
    "mimicked": "Mimicked: trained to reproduce the original",
}


def recovery_table(run: Run) -> Markup:
    """What each step gave a network that was not trained."""
    steps = () if run.recovery is None else run.recovery.steps
    if not steps:
        return Markup()
    rows = [(STEPS.get(step.name, step.name), _score(step.holdout, run), _score(step.test, run)) for step in steps]
    heads = ("after this step", f"held-out {run.metric}", f"test {run.metric}")
    caption = "The pruned network after each step; the last is delivered. No decision used the test data."
    return table(caption, heads, rows)


def recovery_notes(run: Run) -> Markup:
    """What could not be repaired, and what was decided."""
    return listed("Notes of the repair:", () if run.recovery is None else run.recovery.notes)


# -- how to reproduce -------------------------------------------------------------------------------------------------


def reproduction(run: Run) -> Markup:
    request = run.request
    if request is None:
        return Markup()
    each = "" if request.max_drop is None else " for each share that was tried"
    pairs: list[tuple[str, object]] = [
        ("Network and data", f"{request.model}, {request.data}"),
        ("Limits", _goal(request)),
        ("Pruning step", _step(request.pruning_step)),
        ("Scope", _scope(request)),
        ("Search", f"{request.method}, {counted(request.evaluations, 'evaluation')}{each}"),
        *_finalists(request),
        ("Reconstruction", request.reconstruction or "none"),
        *((f"Training {name}", _settings(recipe)) for name, recipe in _recipes(run)),
        ("Seed", request.seed),
        ("Versions", ", ".join(f"{name} {version}" for name, version in request.versions.items()) or DASH),
        ("Hardware", request.hardware),
        ("Begun", request.started),
    ]
    if run.exported is not None:
        words = f"opset {run.exported.opset}, outputs within {run.exported.largest_difference:.2g} of torch's"
        pairs.append(("ONNX", words))
        pairs += [("int8", _calibration(files.quantized)) for files in run.exported.others if files.quantized]
    later = [training.request.command for training in run.trainings if training.request is not None]
    commands = "\n".join(dict.fromkeys([request.command, *later]))  # that of `aacp prune` is both
    return joined([tag("pre", tag("code", commands), attributes={"tabindex": "0"}), definitions(pairs)])


def _calibration(found: QuantizedScores) -> str:
    """How networks were quantised, and how close they stayed to float."""
    words = f"calibrated on {found.calibration_images:,} training images"
    if found.before_likeness is None or found.after_likeness is None:
        return words
    return (
        f"{words}; likeness of the outputs to float, where 1 is equal: unpruned {score_text(found.before_likeness)}, "
        f"pruned {score_text(found.after_likeness)}"
    )


def _recipes(run: Run) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for training in run.trainings:
        if training.request is not None:
            yield training.name, training.request.recipe


def _finalists(request: Request) -> Iterator[tuple[str, object]]:
    if request.finalists is not None:
        yield "Finalists", f"{request.finalists} in {rungs_text(request.rungs)}"


def _goal(request: Request) -> str:
    if request.max_drop is None:
        return limits_text(request.limits)
    allowed = difference(0.0, request.max_drop, request.metric)
    drop = f"as few {cost_words(request.shrink or '')} as a drop of {allowed} allows"
    return f"{drop}; {limits_text(request.limits)}" if request.limits else drop


def _scope(request: Request) -> str:
    """Where the network was pruned, and which groups shared a gene."""
    ties = [f"{' with '.join(tie)} tied" for tie in request.tie]
    parts = [f"only {', '.join(request.parts)}"] if request.parts else []
    return "; ".join([request.scope or "all", *parts, *ties])


def _step(step: Any) -> str:
    if isinstance(step, float) and 0 < step < 1 and (1 / step).is_integer():
        return f"1/{1 / step:.0f} of each group"
    return f"multiples of {plain(step, 0)}" if isinstance(step, int) else str(step)


def _settings(recipe: dict[str, Any] | None) -> str:
    return "none" if recipe is None else ", ".join(f"{name} {value}" for name, value in recipe.items())
