"""The model card of a pruned network: the report of its run as Markdown, for a repository of networks."""

from __future__ import annotations

from collections.abc import Iterator

from aacp.cost.kinds import cost_unit, cost_words
from aacp.report.cautions import cautions
from aacp.report.headline import headline, limits_text
from aacp.report.numbers import change, gain, quantity, score
from aacp.report.run import Run
from aacp.user.values import counted

FRONT_MATTER = "---\nlibrary_name: aacp\ntags:\n- aacp\n- channel-pruning\n- pytorch\n---\n"


def model_card(run: Run, model: str | None, needs_trust: bool) -> str:
    """The card of the network of a run.

    Args:
        run: the run; its command and its paths are left out, since they are those of a private machine.
        model: the name that `build_model` builds the original by, or None.
        needs_trust: whether that is the name of the user's code.
    """
    usage = _usage(run, model, needs_trust)
    return "\n".join([FRONT_MATTER, f"# {headline(run)}\n", *_comparison(run), *_remarks(run), usage, *_origin(run)])


def _comparison(run: Run) -> Iterator[str]:
    if run.evaluation is None:
        return
    before = run.evaluation.before
    after = run.evaluation.after
    yield "| | before | after | change |\n|---|---|---|---|"
    for name, old, new in (("test", before.test, after.test), ("held-out", before.holdout, after.holdout)):
        if old is not None and new is not None:
            cells = (score(old, run.metric), score(new, run.metric), gain(old, new, run.metric))
            yield f"| {run.metric}, {name} | {' | '.join(cells)} |"
    for cost, old_cost in before.costs.items():
        if cost in after.costs:
            unit = cost_unit(cost)
            cells = (quantity(old_cost, unit), quantity(after.costs[cost], unit), change(old_cost, after.costs[cost]))
            yield f"| {cost_words(cost)} | {' | '.join(cells)} |"
    yield ""


def _remarks(run: Run) -> Iterator[str]:
    for remark in cautions(run):
        yield f"{remark.text}\n"


def _usage(run: Run, model: str | None, needs_trust: bool) -> str:
    original = "" if model is not None else f", into={'Network' if run.graph is None else run.graph.model}()"
    trust = ", trust=True" if needs_trust else ""
    call = f'aacp.from_pretrained("FOLDER_OR_REPOSITORY"{original}{trust})'
    return f"## Use\n\n```python\nimport aacp\n\nnetwork = {call}\n```\n"


def _origin(run: Run) -> Iterator[str]:
    request = run.request
    if request is None:
        return
    yield "## How it was made\n"
    yield f"- limits: {limits_text(request.limits)}"
    yield f"- search: {request.method}, {counted(request.evaluations, 'evaluation')}, seed {request.seed}"
    if run.training is not None:
        yield f"- training: {run.training.kind}"
    yield f"- versions: {', '.join(f'{name} {version}' for name, version in request.versions.items())}\n"
