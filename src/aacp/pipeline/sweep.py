"""Sweep: one network under several budgets, whose searches share their evaluations (the paper's Fig. 6)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import COSTS, LATENCY
from aacp.cost.quantities import amount
from aacp.data.devices import device_of
from aacp.data.scores import Score
from aacp.data.splits import Data
from aacp.errors import InvalidOption
from aacp.pipeline.plan import DEFAULT, Plan, require_plan
from aacp.pipeline.preflight import check_scoring, check_training_arguments, known_runs
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.reporting import write_report_or_reason
from aacp.pipeline.searching import better_known, choice_of
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.pipeline.training import PLAIN, TrainingMeans
from aacp.pytorch.modules import with_gradients
from aacp.report.page import FILE
from aacp.runs.chosen import ChosenStructure
from aacp.runs.files import EVALUATION, FRONT, GRAPH, STRUCTURE
from aacp.runs.folder import RunFolder
from aacp.runs.scores import Evaluation
from aacp.runs.trainings import is_begun, trainings_in
from aacp.search.history import Candidate, History
from aacp.search.saving import recorded
from aacp.train.teaching import Loss
from aacp.user.code import without_exit
from aacp.user.notebook import html_table
from aacp.user.options import known_options
from aacp.user.values import counted, path_text, score_text

FRONT_COSTS = ("macs", "params")  # the front is of the score and these costs


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep, in the order of the budgets.

    Args:
        folders: the run folder of each budget.
        choices: the structure of each budget.
        evaluations: scores and costs of the networks that were trained; None for the others.
        front: the evaluated structures that no other beats in score, MACs and parameters, best score first.
        pruned: what `Pruned.to_json` says about each network that was trained; None for the others.
        unreported: why there is no report of this state of the sweep.
    """

    folders: tuple[RunFolder, ...]
    choices: tuple[ChosenStructure, ...]
    evaluations: tuple[Evaluation | None, ...]
    front: tuple[Candidate, ...]
    pruned: tuple[dict[str, Any] | None, ...]
    unreported: str = ""

    @property
    def report(self) -> Path:
        """The page about all runs."""
        return self.folders[0].path.parent / FILE

    def to_json(self) -> dict[str, Any]:
        rows = zip(self.folders, self.choices, self.evaluations, self.pruned, strict=True)
        runs = [
            {
                "folder": str(folder.path),
                "choice": choice.described(),
                "evaluation": evaluation and evaluation.to_json(),
                "pruned": pruned,
            }
            for folder, choice, evaluation, pruned in rows
        ]
        return {
            "runs": runs,
            "front": [candidate.to_json() for candidate in self.front],
            "report": None if self.unreported else str(self.report),
            "no_report": self.unreported,
        }

    def __repr__(self) -> str:
        return f"<Sweep of {counted(len(self.folders), 'budget')}, in {self.folders[0].path.parent}>"

    def _repr_html_(self) -> str:
        """A line for each budget, for notebooks."""
        rows = [line.partition(": ")[::2] for line in str(self).splitlines() if ": " in line]
        return html_table("The result of each budget", ("budget", "result"), rows)

    def __str__(self) -> str:
        rows = zip(self.folders, self.choices, self.evaluations, strict=True)
        lines = [_line(folder.path.name, choice, evaluation) for folder, choice, evaluation in rows]
        return "\n".join(
            [*lines, f"{counted(len(self.front), 'structure')} on the front of score, MACs and parameters"]
        )


@known_options
@without_exit
@with_gradients
def sweep(
    model: nn.Module,
    data: Data,
    budgets: Sequence[Budget | Mapping[str, float | str]],
    folder: str | os.PathLike[str],
    *,
    plan: Plan = DEFAULT,
    train: bool = False,
    score: Score | None = None,
    loss: Loss | None = None,
    teacher: nn.Module | None = None,
    again: bool = False,
    processes: int = 1,
    known_from: Sequence[str | os.PathLike[str]] = (),
    name: str | None = None,
    device: torch.device | str | None = None,
) -> Sweep:
    """Search for a structure within each budget and, with `train`, prune to it; the same call again resumes.

    Every search reuses the evaluations of those before it. In the end each budget gets the best structure that any of
    the searches evaluated within it.

    Args:
        model, data, plan, score, loss, teacher, again, processes: as in `aacp.prune`.
        known_from, name, device: as in `aacp.prune`.
        budgets: several budgets, each as `aacp.prune` takes one.
        folder: holds a run folder for each budget.
        train: train, evaluate and export every network, not only search.
    """
    require_plan(plan)
    path_text("folder", folder)
    task = PruningTask.of(model, data, name, device_of(device), score, loss, teacher)
    run_budgets = tuple(map(Budget.of, budgets))
    check_sweep(plan, run_budgets, train)
    check_training_arguments(teacher, loss, trains=train and plan.recipe is not None)
    earlier = known_runs(known_from, folders_of(folder, run_budgets))
    means = TrainingMeans(again, processes)
    return SweepRun(task, run_budgets, plan, folder, train, means, earlier).sweep()


def check_sweep(plan: Plan, budgets: Sequence[Budget], train: bool) -> None:
    """Reject a plan with a max_drop or finalists, which are for one run, and what the sweep would ignore."""
    if plan.mimic and not train:
        raise InvalidOption(
            f"mimic={plan.mimic} would be ignored, since this sweep only searches. Give train=True (--train), or leave "
            "mimic out."
        )
    if plan.max_drop is not None:
        raise InvalidOption("A sweep has its budgets and needs no max_drop. Leave it out, or prune to it instead.")
    if plan.finalists is not None:
        raise InvalidOption(
            "Finalists are compared in a run of one budget, but the searches of a sweep share their structures "
            "afterwards. Leave finalists out, or prune to each budget."
        )
    plan.check_budgets(budgets)


class SweepRun:
    """A sweep in its folder; `check_sweep` must have compared the budgets with the plan."""

    def __init__(
        self,
        task: PruningTask,
        budgets: Sequence[Budget],
        plan: Plan,
        folder: str | os.PathLike[str],
        train: bool,
        means: TrainingMeans = PLAIN,
        known_from: tuple[str, ...] = (),
    ) -> None:
        self.task = task
        self.budgets = list(dict.fromkeys(budgets))
        self.plan = plan if train else plan.without_training()
        self.trains = train
        self.means = means
        self.folder = RunFolder.of(folder)
        self.known_from = known_from

    def sweep(self) -> Sweep:
        """Search for every budget, share the best structures, and train if that is requested."""
        with self.folder.lock():
            runs = self._make_runs()
            for run in runs if self.trains else ():
                run.register_training()  # before the first search, so that mistakes are found now
            try:
                graph = self._begin(runs[0])
                for run in runs:
                    self._search(run, graph)
            finally:
                runs[0].shared.release()
            self._share_best(runs)
            pruned = [run.prune().to_json() if self.trains else None for run in runs]
            return self._results(runs, pruned)

    def _make_runs(self) -> list[PruningRun]:
        """A run for each budget; each reuses the evaluations of those before it."""
        folders = folders_of(self.folder.path, self.budgets)
        shared = SharedEstimate(self.task, self.plan)
        return [
            PruningRun(
                self.task,
                budget,
                self.plan,
                folder,
                means=self.means,
                known_from=(*self.known_from, *(str(earlier.path) for earlier in folders[:number])),
                shared=shared,
                measurements=self.folder,
                accepts_met_budget=True,
            )
            for number, (budget, folder) in enumerate(zip(self.budgets, folders, strict=True))
        ]

    def _begin(self, first: PruningRun) -> ChannelGraph:
        """The graph of the first run, which traces for all; every budget is checked before the first search."""
        known = self.folder.read_json(GRAPH)
        if known is None and self.trains:
            check_scoring(self.task)
        with first.folder.lock():
            first.mend()
            first.register()  # before tracing, since it removes the graph of another request
            graph = first.trace()
        if known is None:
            latency = first.latency_stage(graph)
            for budget in self.budgets:
                space = SearchSpace(graph, latency.find_steps())
                bound = budget.on(graph, latency.table_for(budget))
                bound.check(latency.within_reach(space, bound))
            self.folder.write_json(GRAPH, graph.to_json())
        return graph

    def _search(self, run: PruningRun, graph: ChannelGraph) -> None:
        """One search, along the graph of the first run."""
        with run.folder.lock():
            run.mend()
            run.register()
            if not (run.folder.path / GRAPH).exists():
                run.folder.write_json(GRAPH, graph.to_json())
            run.find()

    def _share_best(self, runs: Sequence[PruningRun]) -> None:
        """Give each run the best structure that any run evaluated within its budget.

        Runs with a limit on latency are left out, since such a structure would have to be measured first.
        """
        histories = [recorded(run.folder) for run in runs]
        known = History.merged(histories)
        for run, history in zip(runs, histories, strict=True):
            best = history.best
            is_final = any(is_begun(place) for place in trainings_in(run.folder.path).values())
            if best is None or is_final or run.budget.limit_on(LATENCY) is not None:
                continue
            graph = run.trace()
            bound_budget = run.budget.on(graph)
            space = SearchSpace(graph, run.latency_stage(graph).find_steps())
            # The choice scores higher than the best of this search if it is that of an earlier run (known_from).
            choice = ChosenStructure.from_json(run.folder.read_json(STRUCTURE))
            better = better_known(known, bound_budget, space, max(choice.score, best.score))
            if better is not None:
                run.record_choice(graph, choice_of(better, bound_budget))

    def _results(self, runs: Sequence[PruningRun], pruned: Sequence[dict[str, Any] | None]) -> Sweep:
        graph = runs[0].trace()
        folders = tuple(run.folder for run in runs)
        choices = tuple(ChosenStructure.from_json(folder.read_json(STRUCTURE)) for folder in folders)
        evaluations = tuple(
            run.register_training().place.read(EVALUATION, Evaluation.from_json) if self.trains else None
            for run in runs
        )
        front = self._write_front(graph, folders)
        unreported = write_report_or_reason(self.folder, folders)
        return Sweep(folders, choices, evaluations, front, tuple(pruned), unreported)

    def _write_front(self, graph: ChannelGraph, folders: Sequence[RunFolder]) -> tuple[Candidate, ...]:
        """Write the evaluated structures that no other beats to a file, and return them."""
        costs = [COSTS[name].on(graph) for name in FRONT_COSTS]
        front = tuple(History.merged(map(recorded, folders)).pareto(costs))
        rows = []
        for candidate in front:
            counts = list(candidate.structure)
            priced = {cost.name: int(cost(counts)) for cost in costs}
            rows.append({"counts": counts, "score": candidate.score, **priced})
        self.folder.write_json(FRONT, rows)
        return front


def folders_of(folder: str | os.PathLike[str], budgets: Sequence[Budget]) -> list[RunFolder]:
    """The run folder of each budget inside the folder of a sweep."""
    return [RunFolder(Path(folder) / folder_name(budget)) for budget in budgets]


def folder_name(budget: Budget) -> str:
    """A budget as the name of a folder: macs-0.5_params-0.3."""
    return "_".join(f"{limit.cost.name}-{_folder_part(limit)}" for limit in budget.limits)


def _folder_part(limit: Limit) -> str:
    return f"{limit.pruning_rate:.10g}" if limit.at_most is None else f"max-{limit.at_most:.10g}"


def _line(name: str, choice: ChosenStructure, evaluation: Evaluation | None) -> str:
    tests = () if evaluation is None else (evaluation.before.test, evaluation.after.test)
    known = [score_text(value) for value in tests if value is not None]
    test = f", test {' -> '.join(known)}" if known else ""
    reached = "; ".join(f"{limit.cost} {amount(limit.reached, limit.unit)}, {limit.phrase}" for limit in choice.limits)
    unpruned = "" if choice.unpruned is None else f" (unpruned {score_text(choice.unpruned)})"
    return f"{name}: estimated {score_text(choice.score)}{unpruned}{test}; {reached}"
