"""Jobs: the work of the commands, which name networks, data, files and functions instead of passing objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from aacp.cost.budget import Budget
from aacp.data.devices import device_of
from aacp.data.likeness import LIKENESS
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Holdout
from aacp.errors import InvalidOption
from aacp.pipeline.functions import FUNCTIONS, importable, restored
from aacp.pipeline.plan import Plan
from aacp.pipeline.preflight import check_table, known_runs
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.request import CROSS_ENTROPY, plan_of, read_request, require_room
from aacp.pipeline.sweep import SweepRun, check_sweep, folders_of
from aacp.pipeline.task import PruningTask, chosen_score
from aacp.pipeline.training import PLAIN, TrainingMeans
from aacp.runs.files import STRUCTURE
from aacp.runs.folder import RunFolder
from aacp.runs.requests import Request
from aacp.runs.trainings import read_training, training_folder
from aacp.train.job import network_of
from aacp.train.recipe import FUNCTIONS as RECIPE_FUNCTIONS
from aacp.train.recipe import Recipe
from aacp.train.teaching import Loss
from aacp.zoo.data import load_data
from aacp.zoo.imports import named_function
from aacp.zoo.trust import DATA, MODEL, require_trust

# The fields of TaskNames that may name code, and what the code is used for.
USES = {"model": MODEL, "data": DATA, "metric": "score", "loss": "loss"}
# What run.json calls the functions that are used if none are named.
BUILT_IN = {"metric": (accuracy.__name__, LIKENESS), "loss": (CROSS_ENTROPY,)}


@dataclass(frozen=True)
class TaskNames:
    """A pruning task by names.

    Args:
        model: the name that `build_model` builds the network by.
        data: the name that `load_data` loads the data by.
        weights: the file of the trained weights.
        metric: package.module:function of the score; None is accuracy or, without labels, likeness to the original.
        device: where to compute; None is the GPU, if there is one.
        loss: package.module:function of the loss; None is cross-entropy.
        holdout: the part of the training data that is held out, see `load_data`.
        holdout_seed: chooses the examples that are held out. It is not the seed of the run, so runs with several seeds
            have the same hold-out, on which `aacp train` did not train their network.
        cache: the folder of decoded images, see `load_data`.
        teacher: the name of the network to learn from; None is the unpruned network.
        teacher_weights: the file of its weights.
    """

    model: str
    data: str
    weights: str | None = None
    metric: str | None = None
    device: str | None = None
    loss: str | None = None
    holdout: Holdout = None
    holdout_seed: int = 0
    cache: str | None = None
    teacher: str | None = None
    teacher_weights: str | None = None

    def load(self, seed: int) -> PruningTask:
        """The task; the seed draws the weights of a network that has no file of weights."""
        model = network_of(self.model, self.weights, seed)
        data = load_data(self.data, holdout=self.holdout, seed=self.holdout_seed, cache=self.cache)
        return PruningTask(
            model=model,
            data=data,
            name=self.model,
            device=device_of(self.device),
            score=chosen_score(score_of(self.metric), model, data),
            weights_file="" if self.weights is None else str(Path(self.weights).resolve()),
            data_source=self.data,
            loss=loss_of(self.loss),
            holdout=self.holdout,
            holdout_seed=self.holdout_seed,
            teacher=None if self.teacher is None else network_of(self.teacher, self.teacher_weights, seed),
        )


def pruning_run(
    names: TaskNames,
    budget: Budget,
    plan: Plan,
    folder: str,
    known_from: tuple[str, ...],
    means: TrainingMeans = PLAIN,
) -> PruningRun:
    """The run of aacp prune and aacp search."""
    plan.check_budgets([budget])
    place = RunFolder(folder)
    require_room(place)
    check_table(plan, [place])
    known_from = known_runs(known_from, [place])
    task = names.load(plan.seed)
    return PruningRun(task, budget, plan, place, means=means, known_from=known_from)


def sweep_run(
    names: TaskNames,
    budgets: tuple[Budget, ...],
    plan: Plan,
    folder: str,
    train: bool,
    known_from: tuple[str, ...],
    means: TrainingMeans,
) -> SweepRun:
    """The runs of aacp sweep."""
    check_sweep(plan, budgets, train)
    folders = folders_of(folder, budgets)
    check_table(plan, folders)
    known_from = known_runs(known_from, folders)
    task = names.load(plan.seed)
    return SweepRun(task, budgets, plan, folder, train, means, known_from)


@dataclass(frozen=True)
class FinishingJob:
    """aacp finetune and aacp scratch: the stages of a run after its search.

    Args:
        folder: the run folder.
        given: fields of TaskNames; the folder's records replace fields that are missing or None.
        trust: whether code that the folder names may be imported.
    """

    folder: str
    given: Mapping[str, Any] = field(default_factory=dict)
    trust: bool = False

    @cached_property
    def request(self) -> Request:
        return read_request(RunFolder(self.folder))

    @property
    def names(self) -> TaskNames:
        """The names that the folder records, or those that are given instead."""
        given = {name: value for name, value in self.given.items() if value is not None}
        for name, built_in in BUILT_IN.items():
            known, source = getattr(self.request, name), getattr(self.request, f"{name}_source")
            if (known not in built_in or source) and not {**self._recorded, **given}[name]:
                raise InvalidOption(
                    f"The {USES[name]} of {self.folder} is {known}, which cannot be imported: no module defines it, or "
                    f"it needs settings. Name one that a module defines (--{name} package.module:function)."
                )
        return TaskNames(**{**self._recorded, **given})

    @property
    def _recorded(self) -> dict[str, Any]:
        """Fields of TaskNames as the folder records them."""
        recorded = self.request
        return {
            "model": recorded.model,
            "data": recorded.data_source or recorded.data,
            "weights": recorded.weights_file or None,
            "metric": importable(recorded.metric_source),
            "loss": importable(recorded.loss_source),
            "holdout": recorded.holdout,
            "holdout_seed": recorded.holdout_seed or 0,
        }

    def plan(self, **changes: Any) -> Plan:
        """The recorded plan of the search with some fields changed; code that the folder names needs trust."""
        runtime = (self.request.deployment or {}).get("runtime")
        names = [(use, self._recorded[name]) for name, use in USES.items() if not self.given.get(name)]
        names += [("runtime", runtime if isinstance(runtime, str) else None)]
        names += [(name, getattr(self.request, name)) for name in FUNCTIONS]
        require_trust(self.folder, names, self.trust)
        return plan_of(self.request, **changes)

    def recorded_recipe(self, training: str) -> Recipe | None:
        """The recipe of the training of this name, if the folder holds one."""
        known = read_training(training_folder(Path(self.folder), training))
        if known is None or known.recipe is None:
            return None
        fields = Recipe.completed(known.recipe)
        functions = {name: str(fields[name]) for name in RECIPE_FUNCTIONS if ":" in str(fields[name])}
        require_trust(self.folder, functions.items(), self.trust)
        for name, source in functions.items():
            fields[name] = restored(name, source, RECIPE_FUNCTIONS[name])
        return Recipe(**fields)

    def finish(self, plan: Plan, means: TrainingMeans) -> Pruned:
        """Train, save, evaluate, export and report the structure that was found."""
        folder = RunFolder(self.folder)
        if folder.read_json(STRUCTURE) is None:
            raise InvalidOption(f"The search in {self.folder} is not finished. Repeat its command first.")
        run = PruningRun(
            self.names.load(plan.seed),
            Budget(*self.request.limits),
            plan,
            folder,
            means=means,
            known_from=self.request.known_from,
            is_searched=True,
        )
        return run.prune()


def score_of(name: str | None) -> Score | None:
    """A score function by name; None without a name, which leaves the choice to `chosen_score`."""
    return None if name is None else named_function(name, "(network, batches)", InvalidOption)


def loss_of(name: str | None) -> Loss | None:
    """A loss function by name, or None for cross-entropy."""
    return None if name is None else named_function(name, "(outputs, targets)", InvalidOption)
