"""Sweep: one network under several budgets, and everything that was found on the way (the paper's Fig. 6)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from aacp.artefact.header import ARTEFACT
from aacp.channels import ChannelGraph
from aacp.cost.budget import amount
from aacp.data.devices import device_of
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Data
from aacp.errors import InvalidOption
from aacp.pipeline.latency_stage import latency_limit
from aacp.pipeline.plan import DEFAULT, Plan
from aacp.pipeline.preflight import rehearse_judging
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.searching import better_known, choice_of
from aacp.pipeline.targets import ANALYTIC, Asked, budget_of, targets
from aacp.pipeline.task import PruningTask
from aacp.report.page import write_report
from aacp.runs.files import EVALUATION, GRAPH, STRUCTURE, TRAINING, ChosenStructure, Evaluation, Target
from aacp.runs.folder import RunFolder
from aacp.search.history import Candidate, History
from aacp.search.loop import recorded
from aacp.space import SearchSpace
from aacp.train.teaching import Loss

FRONT, PRICED = "front.json", ("macs", "params")
AFTERWARDS = (TRAINING, ARTEFACT)  # what a run leaves once its structure is settled


@dataclass(frozen=True)
class Sweep:
    """What each budget came to, in the order of the budgets, and the front of everything evaluated."""

    folders: tuple[RunFolder, ...]
    choices: tuple[ChosenStructure, ...]
    evaluations: tuple[Evaluation | None, ...]  # of networks that were trained
    front: tuple[Candidate, ...]  # in score, MACs and parameters, the best score first

    def to_json(self) -> dict[str, Any]:
        rows = zip(self.folders, self.choices, self.evaluations, strict=True)
        runs = [
            {"folder": str(folder.path), "choice": choice.to_json(), "evaluation": evaluation and evaluation.to_json()}
            for folder, choice, evaluation in rows
        ]
        return {"runs": runs, "front": [candidate.to_json() for candidate in self.front]}

    def __str__(self) -> str:
        rows = zip(self.folders, self.choices, self.evaluations, strict=True)
        lines = [_line(folder.path.name, choice, evaluation) for folder, choice, evaluation in rows]
        return "\n".join([*lines, f"{len(self.front)} structures on the front of score, MACs and parameters"])


def sweep(
    model: nn.Module,
    data: Data,
    budgets: Sequence[Asked],
    folder: str | os.PathLike[str],
    *,
    plan: Plan = DEFAULT,
    train: bool = False,
    score: Score = accuracy,
    loss: Loss | None = None,
    known_from: Sequence[str | os.PathLike[str]] = (),
    name: str | None = None,
    device: torch.device | str | None = None,
    verbose: bool = False,
) -> Sweep:
    """Search for a structure within each budget and, with `train`, prune to it; a run folder for each, inside `folder`.

    Every search takes over what those before it have evaluated, and in the end each budget gets the best that any of
    them has found within it. The same call again goes on where it was stopped.
    """
    subject = PruningTask(model, data, name or type(model).__name__, device_of(device), score, loss=loss)
    limits = [targets(budget) for budget in budgets]
    return Sweeping(subject, limits, plan, folder, train, tuple(map(str, known_from)), verbose).sweep()


class Sweeping:
    """One call of `sweep`."""

    def __init__(
        self,
        subject: PruningTask,
        limits: Sequence[tuple[Target, ...]],
        plan: Plan,
        folder: str | os.PathLike[str],
        train: bool,
        known_from: tuple[str, ...] = (),
        verbose: bool = False,
    ) -> None:
        if plan.max_drop is not None:
            raise InvalidOption("A sweep has its budgets and needs no max_drop. Leave it out, or prune to it instead.")
        plan.check_budgets(limits)
        self.subject, self.limits, self.train, self.verbose = subject, list(dict.fromkeys(limits)), train, verbose
        self.plan = plan if train else replace(plan, recipe=None, from_scratch=False, train_on_holdout=False)
        self.folder, self.known_from = RunFolder.of(folder), known_from

    def sweep(self) -> Sweep:
        with self.folder.lock():
            runs, estimate = self._runs(), None
            for run in runs:
                run.estimate = estimate
                self._search(run)
                estimate = run.estimate or estimate
            self._share(runs)
            for run in runs if self.train else ():
                run.pruned()
            return self._swept(runs)

    def _runs(self) -> list[PruningRun]:
        """A run for each budget; each of them knows what those before it have found."""
        places = [RunFolder(self.folder.path / folder_name(limits)) for limits in self.limits]
        runs = [
            PruningRun(self.subject, limits, self.plan, place, None, self._known(places[:order]), self.verbose)
            for order, (limits, place) in enumerate(zip(self.limits, places, strict=True))
        ]
        for run in runs:
            run.measurements, run.may_keep_all = self.folder, True
        return runs

    def _known(self, earlier: Sequence[RunFolder]) -> tuple[str, ...]:
        return (*self.known_from, *(str(folder.path) for folder in earlier))

    def _search(self, run: PruningRun) -> None:
        """One search; the first traces for all, and shows whether every budget can be met before any is searched."""
        known = self.folder.read_json(GRAPH)
        if known is None:
            if self.train:
                rehearse_judging(self.subject)
            with run.folder.lock():
                graph = run.traced()
            clock = run.clock(graph)
            for limits in self.limits:
                budget_of(limits, graph, clock.table_for(limits)).check(SearchSpace(graph, clock.steps()))
            self.folder.write_json(GRAPH, graph.to_json())
        elif run.folder.read_json(GRAPH) is None:
            run.folder.write_json(GRAPH, known)
        run.found()

    def _share(self, runs: Sequence[PruningRun]) -> None:
        """Give each run the best that any has found within its limits, unless that would have to be timed first."""
        known = History.merged(recorded(run.folder) for run in runs)
        for run in runs:
            best, is_trained = recorded(run.folder).best, any((run.folder.path / it).exists() for it in AFTERWARDS)
            if best is None or is_trained or latency_limit(run.limits):
                continue
            graph = run.traced()
            budget = budget_of(run.limits, graph)
            better = better_known(known, budget, SearchSpace(graph, run.clock(graph).steps()), best)
            if better is not None:
                self.subject.require_equal(graph, better.structure)
                run.folder.write_json(STRUCTURE, choice_of(better, budget).to_json())

    def _swept(self, runs: Sequence[PruningRun]) -> Sweep:
        graph = runs[0].traced()
        choices = tuple(run.searched(graph) for run in runs)
        records = [run.folder.read_json(EVALUATION) for run in runs]
        evaluations = tuple(None if record is None else Evaluation.from_json(record) for record in records)
        front = self._front(graph, [run.folder for run in runs])
        write_report([run.folder.path for run in runs], self.folder.path / "report.html")
        return Sweep(tuple(run.folder for run in runs), choices, evaluations, front)

    def _front(self, graph: ChannelGraph, folders: Sequence[RunFolder]) -> tuple[Candidate, ...]:
        """What no other structure beats, of all that was evaluated; also as a file."""
        costs = [ANALYTIC[name](graph) for name in PRICED]
        front = tuple(History.merged(map(recorded, folders)).pareto(costs))
        rows = [
            {"counts": list(one.structure), "score": one.score, **{c.name: int(c(list(one.structure))) for c in costs}}
            for one in front
        ]
        self.folder.write_json(FRONT, rows)
        return front


def folder_name(limits: Sequence[Target]) -> str:
    """Limits as the name of a folder: macs-0.5_params-0.3."""
    return "_".join(f"{limit.cost}-{_asked(limit)}" for limit in limits)


def _asked(limit: Target) -> str:
    return f"{limit.pruning_rate:g}" if limit.at_most is None else f"max-{limit.at_most:g}"


def _line(name: str, choice: ChosenStructure, evaluation: Evaluation | None) -> str:
    test = "" if evaluation is None else f", test {evaluation.before.test:.4f} -> {evaluation.after.test:.4f}"
    reached = ", ".join(
        f"{limit.cost} {amount(limit.reached, limit.unit)} of {amount(limit.bound, limit.unit)}"
        for limit in choice.limits
    )
    return f"{name}: estimated {choice.score:.4f}{test}; {reached}"
