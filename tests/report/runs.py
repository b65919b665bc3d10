"""Run folders as a pipeline writes them: a real network and a real search, with made-up scores and times."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import aacp
from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import macs, params
from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import computed_costs
from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency
from aacp.runs.files import EVALUATION, EXPORT, GRAPH, HISTORY, LOG, RUN, STRUCTURE, TRAINING
from aacp.runs.folder import RunFolder
from aacp.runs.requests import Request
from aacp.runs.scores import Epoch, Evaluation, NetworkMetrics
from aacp.search.baselines import RandomSearch
from aacp.search.loop import run_search
from aacp.train.recipe import FINETUNE

UNPRUNED = 0.9173  # of resnet20, on test data


@cache
def graph_of(model: str = "resnet20") -> ChannelGraph:
    network = aacp.build_model(model)
    return aacp.trace(network, aacp.example_input(network, (1, 3, 32, 32)))


def made_up_score(graph: ChannelGraph, structure: Structure) -> float:
    """An accuracy that falls with what is removed, most where it saves most."""
    full, cost = np.asarray(graph.full), macs(graph)
    saved = cost.full - cost(np.where(np.eye(len(full), dtype=bool), 1, full))
    kept = np.asarray(structure) / full
    lost = (saved / saved.sum() * (1 - kept) ** 2).sum()
    return float(0.92 - 0.4 * lost - 0.05 * (kept < 0.3).mean() + 0.004 * math.sin(37 * kept.sum()))


@dataclass(frozen=True)
class Made:
    """A run folder, and what was put into it."""

    path: Path
    graph: ChannelGraph
    request: Request
    choice: ChosenStructure
    evaluation: Evaluation
    exported: ExportRecord
    epochs: tuple[Epoch, ...]
    recipe: dict[str, Any] = field(default_factory=FINETUNE.scaled(30).to_json)


def make_run(
    path: Path,
    macs_rate: float = 0.5,
    params_rate: float = 0.3,
    evaluations: int = 60,
    model: str = "resnet20",
    test: float = 0.9204,
    speed: float = 1.7,
) -> Made:
    """A whole run; `speed` is how many times as fast the pruned network is said to be."""
    graph = graph_of(model)
    budget = Budget(Limit(macs(graph), macs_rate), Limit(params(graph), params_rate))
    method = RandomSearch(SearchSpace(graph, 1 / 8), budget, 0)
    request = _request(path, model, evaluations, macs_rate, params_rate)
    RunFolder(path).write_json(RUN, request.to_json())  # the lines of a history are sealed with the request
    found = run_search(method, lambda structure: made_up_score(graph, structure), evaluations=evaluations, folder=path)
    best = found.recommended.structure
    made = Made(
        path,
        graph,
        request,
        ChosenStructure(
            best.counts, found.recommended.score, tuple(LimitResult.of(limit, best) for limit in budget.limits)
        ),
        Evaluation(_measured(graph, graph.full, UNPRUNED), _measured(graph, best, test)),
        _exported(speed),
        _epochs(30, test),
    )
    write_run(made)
    return made


def write_run(made: Made) -> None:
    """The files that the search has not written already."""
    folder = RunFolder(made.path)
    candidates = folder.read_log(HISTORY)
    folder.write_json(GRAPH, made.graph.to_json())
    for name, record in (
        (RUN, made.request),
        (STRUCTURE, made.choice),
        (EVALUATION, made.evaluation),
        (EXPORT, made.exported),
    ):
        folder.write_json(name, record.to_json())
    # As in older versions: one training in the run folder, with its recipe in run.json.
    folder.write_json(RUN, {**made.request.to_json(), "recipe": made.recipe})
    folder.write_log(HISTORY, candidates)  # its lines are sealed with the request
    lines = "".join(f"{json.dumps(epoch.to_json())}\n" for epoch in made.epochs)
    RunFolder(made.path / TRAINING).write_text(LOG, lines)


def _request(path: Path, model: str, evaluations: int, macs_rate: float, params_rate: float) -> Request:
    limits = (Limit("macs", macs_rate), Limit("params", params_rate))
    command = (
        f"aacp prune {model} --weights {model}.th --data cifar10:data "
        f"--prune-macs {macs_rate} --prune-params {params_rate} --run {path.name}"
    )
    return Request(
        command,
        model,
        "cifar10:data",
        limits,
        1 / 8,
        "default",
        evaluations,
        7,
        {"aacp": "0.1.0", "torch": "2.11.0", "Python": "3.11.2"},
        "NVIDIA H200; Intel Xeon Platinum 8468",
        "2025-03-01T09:30:00+00:00",
    )


def _measured(graph: ChannelGraph, structure: Structure, test: float) -> NetworkMetrics:
    costs = {cost.name: int(cost(structure)) for cost in computed_costs(graph)}
    return NetworkMetrics(test, round(test + 0.0061, 4), costs, costs["weight_bytes"] + 2048)


def metrics(test: float, holdout: float, macs: int, params: int, activation_bytes: int) -> NetworkMetrics:
    """Scores and costs without a network."""
    return NetworkMetrics(test, holdout, {"macs": macs, "params": params, "activation_bytes": activation_bytes})


def _exported(speed: float) -> ExportRecord:
    def timing(runtime: str, seconds: float) -> BeforeAfter:
        times = [Latency(t, 0.98 * t, 1.03 * t) for t in (seconds, seconds / speed)]
        return BeforeAfter(runtime, "Xeon 8468", 1, 200, times[0], times[1])

    timings = (timing("ONNX Runtime 1.20, 1 thread", 1.83e-3), timing("PyTorch 2.11, 1 thread", 4.41e-3))
    return ExportRecord(18, 2.4e-6, 1_094_232, 512_444, timings)


def _epochs(count: int, final: float) -> tuple[Epoch, ...]:
    recipe = FINETUNE.scaled(count)
    generator = np.random.default_rng(0)
    found = []
    for number in range(1, count + 1):
        done = number / count
        noise = float(generator.normal(0, 0.004 * (1 - done)))
        holdout = final + 0.0061 - 0.06 * (1 - done) ** 1.5 + noise
        loss = 0.31 + 0.9 * math.exp(-4 * done)
        lr = recipe.lr_at(number * 390 - 1, 390)
        found.append(Epoch(number, lr, round(loss, 6), round(0.99 - loss / 8, 6), round(holdout, 6), 1.9, 26_100.0))
    return tuple(found)


# -- variations -------------------------------------------------------------------------------------------------------


def copy_of(made: Made, path: Path, **changes: Any) -> Made:
    """The same run in another folder, with some of its records replaced."""
    shutil.copytree(made.path, path)
    other = replace(made, path=path, **changes)
    write_run(other)
    return other


def asking(made: Made, macs_rate: float, params_rate: float | None) -> Request:
    """The request with other pruning rates."""
    limits = [Limit("macs", macs_rate), *([] if params_rate is None else [Limit("params", params_rate)])]
    return replace(made.request, limits=tuple(limits))


def scoring(made: Made, test: float | None, holdout: float | None = None) -> Evaluation:
    return replace(made.evaluation, after=replace(made.evaluation.after, test=test, holdout=holdout))


def sweep_of(made: Made, folder: Path) -> list[Made]:
    """Four runs over two rates."""
    cells = {(0.3, None): 0.93, (0.3, 0.5): 0.925, (0.6, None): 0.915, (0.6, 0.5): 0.911}
    folder.mkdir()
    return [
        copy_of(made, folder / f"m{m}-p{p}", request=asking(made, m, p), evaluation=scoring(made, test, test))
        for (m, p), test in cells.items()
    ]


ATTACK = """</script><script>document.title='touched'</script><img src=x onerror="document.title='touched'">"'&%{y}"""


def nasty(made: Made, path: Path) -> Made:
    """A run in which every name that comes from outside tries to be markup."""
    groups = [
        replace(group, name=f"{i}{ATTACK}", frozen=group.frozen and ATTACK) for i, group in enumerate(made.graph.groups)
    ]
    words = {
        "command": ATTACK,
        "model": ATTACK,
        "data": ATTACK,
        "method": ATTACK,
        "hardware": ATTACK,
        "started": ATTACK,
    }
    request = replace(made.request, **words, versions={ATTACK: ATTACK}, pruning_step=ATTACK)
    timings = tuple(replace(timing, runtime=ATTACK, device=ATTACK) for timing in made.exported.timings)
    limits = tuple(replace(limit, cost=ATTACK, unit=ATTACK) for limit in made.choice.limits)
    return copy_of(
        made,
        path,
        graph=replace(made.graph, groups=tuple(groups), notes=(ATTACK,), model=ATTACK),
        request=request,
        recipe={ATTACK: ATTACK},
        exported=replace(made.exported, timings=timings),
        choice=replace(made.choice, limits=limits),
    )
