"""Plan: how to search for a structure within the budget, and how to train the structure that is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from aacp.channels.space import PruningStep, checked_steps
from aacp.cost.budget import Budget
from aacp.cost.kinds import COSTS, LATENCY
from aacp.data.scores import NetworkScore, Score, accuracy
from aacp.errors import InvalidOption
from aacp.estimate.importance import Importance, require_criterion
from aacp.estimate.inheritance import Reconstruction, require_reconstruction
from aacp.latency.deployment import HERE, Deployment
from aacp.pipeline import defaults
from aacp.runs.finalists import rungs_text
from aacp.runs.trainings import default_name, require_name
from aacp.search.baselines import UniformShrinkage
from aacp.search.methods import Method, named_method, proposes_one, require_method
from aacp.train.recipe import FINETUNE, Recipe
from aacp.user.options import known_options, require_known
from aacp.user.values import (
    MAX_SCORE,
    counted,
    instance,
    names,
    path_text,
    real_number,
    seed_number,
    shown,
    truth_value,
    whole_number,
)
from aacp.workers.ray import WorkerRequest

Init = Literal["network", "he"]


@known_options
@dataclass(frozen=True)
class Plan:
    """How to search for a structure within the limits, and how to train it.

    Args:
        pruning_step: the steps in which widths are reduced: a share of each width, a number of channels, one of these
            for each group, or "auto", which finds the steps by timing the layers where the network is to run.
        method: the search method: a name, or a subclass of aacp.Searcher.
        evaluations: the number of structures that a search evaluates. None takes the method's own number
            (`search_length`): 2,000 for "paper", "released" and "de", 200 for all others.
        proposals: how many structures without a score the methods "default" and "random" keep proposed. More keep more
            workers busy, but each is chosen with less knowledge. None is 8 with workers, else 1 ("random": 10).
        screening: the share of the calibration and held-out images that the search scores structures on, such as 0.1;
            the most promising structures are then scored on all images, and the best of them is delivered. None scores
            every structure on all images.
        workers: where structures are estimated: None in this process; a number of workers, which Ray starts on this
            machine; "auto" as many as the GPUs or CPUs of a Ray cluster, which is started here if none runs; or the
            address of a cluster, "ray://HOST:PORT". The result does not depend on it for a given `proposals`.
        recipe: how to train the structure that is found; None does not train it.
        from_scratch: train it from new weights instead of fine-tuning inherited ones.
        init: how new weights are drawn: "network" as the network's own constructor draws them, which needs the name of
            the network; "he" He-normal. None is "network" if the network can be built again, else "he".
        train_on_holdout: train it on the hold-out too; its score on the hold-out is then not reported.
        importance: which channels are kept first: a name, or a function of (model, graph) or of (model,
            graph, calibration) that returns one number per channel for each group; see `aacp.Inheritance`.
        reconstruction: how the weights that are kept are corrected: "repair" fits them to the outputs of the unpruned
            network, without labels; a function corrects the weights of a cut network before its batch norms are
            recalibrated; None keeps the weights of the unpruned network. "auto" is "repair" without a recipe, and None
            with one.
        mimic: without a recipe, the number of steps in which the network learns from the calibration images to
            reproduce the outputs of the unpruned one, without labels.
        calibration_images: the number of training images that batch norms are recalibrated on, and that networks are
            repaired on.
        frozen: patterns of the names of layers that are not pruned.
        scope: "all", "inner" to leave residual streams as they are, or "paper" for the coordinates that the paper's
            authors searched. None is "inner" for the method "uniform", and "all" for all others.
        tie: groups that share one gene: the names of the groups of each tie.
        parts: the submodules that are pruned, by name; () is the whole network or, if torch.export cannot follow it,
            the largest parts that it can follow.
        export: write both networks as ONNX files and time them.
        resources: measure the memory and energy of both exported networks, each in a process of the runtime.
        training: the name of the training in the run folder, which may hold several; None is "finetuned", "scratch" or,
            without a recipe, "untrained" or "mimicked".
        seed: the seed of everything random.
        max_drop: the largest drop of the score that is allowed, in the unit of the score. `shrink` is then reduced as
            far as that allows: bisection finds the share to remove.
        shrink: the cost that max_drop reduces.
        probe_epochs: with max_drop, the epochs of fine-tuning after which a structure is scored; 0 uses the estimate.
        finalists: how many of the best structures of the search are compared by short trainings, the uniform structure
            among them; the best on the hold-out is delivered. None delivers the choice of the search.
        rungs: the epochs of these trainings: all finalists are trained for the first number, the best of them for the
            next, and so on, each time from the start with the whole recipe scaled to that number. () with finalists is
            3 %, 10 % and 30 % of the recipe's epochs.
        deployment: where the network is to run; latencies are measured there.
        latency_table: a file of `aacp measure` for that deployment; None measures a table if one is needed.
    """

    pruning_step: PruningStep | Literal["auto"] = defaults.PRUNING_STEP
    method: Method = defaults.METHOD
    evaluations: int | None = None
    proposals: int | None = None
    screening: float | None = None
    workers: int | str | None = None
    recipe: Recipe | None = FINETUNE
    from_scratch: bool = False
    init: Init | None = None
    train_on_holdout: bool = False
    importance: Importance = defaults.IMPORTANCE
    reconstruction: Reconstruction | Literal["auto", "repair"] | None = "auto"
    mimic: int = 0
    calibration_images: int = defaults.CALIBRATION_IMAGES
    frozen: tuple[str, ...] = ()
    scope: str | None = None
    tie: tuple[tuple[str, ...], ...] = ()
    parts: tuple[str, ...] = ()
    export: bool = True
    resources: bool = False
    training: str | None = None
    seed: int = defaults.SEED
    max_drop: float | None = None
    shrink: str = defaults.SHRINK
    probe_epochs: int = 0
    finalists: int | None = None
    rungs: tuple[int, ...] = ()
    deployment: Deployment = HERE
    latency_table: str | None = None

    def __post_init__(self) -> None:
        self._check_values()
        require_known("cost to shrink called", self.shrink, COSTS)
        require_method(self.method)
        require_criterion(self.importance)
        if self.probe_epochs and self.recipe is None:
            raise InvalidOption(
                f"probe_epochs is {self.probe_epochs}, but there is no recipe. Give a recipe to train with, or 0 "
                "epochs to score structures by the estimate."
            )
        require_reconstruction(self.chosen_reconstruction)
        require_name(self.training_name)
        self._check_combinations()

    def _check_values(self) -> None:
        """Reject values of the wrong type or size; numbers of numpy become plain ones, as files hold them."""
        if self.recipe is not None:
            instance("recipe", self.recipe, Recipe, "Give aacp.Recipe(epochs=..., batch_size=..., lr=...), or None.")
        instance("deployment", self.deployment, Deployment, "Give aacp.Deployment(runtime, device, batch, threads).")
        if self.training is not None:
            instance("training", self.training, str, "Give the name of the training.")
        changed: dict[str, Any] = {
            "pruning_step": checked_steps(self.pruning_step),
            "frozen": names("frozen", self.frozen),
            "tie": tuple(names("a tie", each) for each in _listed("tie", self.tie, "of lists of names")),
            "parts": names("parts", self.parts),
            "seed": seed_number(self.seed),
            "latency_table": None if self.latency_table is None else path_text("latency_table", self.latency_table),
            "max_drop": None if self.max_drop is None else real_number("max_drop", self.max_drop, 0, MAX_SCORE),
            "evaluations": None if self.evaluations is None else whole_number("evaluations", self.evaluations, 1),
            "proposals": None if self.proposals is None else whole_number("proposals", self.proposals, 1),
            "screening": None if self.screening is None else _share("screening", self.screening),
            "finalists": None if self.finalists is None else whole_number("finalists", self.finalists, 2),
            "rungs": tuple(whole_number("a rung", epochs, 1) for epochs in _listed("rungs", self.rungs, "of epochs")),
        }
        if self.workers is not None:
            WorkerRequest.of(self.workers)  # rejects what is not a request
        for name, low in (("calibration_images", 1), ("mimic", 0), ("probe_epochs", 0)):
            changed[name] = whole_number(name, getattr(self, name), low)
        for name in ("from_scratch", "train_on_holdout", "export", "resources"):
            changed[name] = truth_value(name, getattr(self, name))
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    def _check_combinations(self) -> None:
        """Reject fields that contradict each other, or that would be ignored."""
        given = [f"shrink={self.shrink!r}"] if self.shrink != Plan.shrink else []
        given += [f"probe_epochs={self.probe_epochs}"] if self.probe_epochs else []
        if self.max_drop is None and given:
            raise InvalidOption(
                f"Without max_drop, {' and '.join(given)} would be ignored. Give max_drop, or leave that out."
            )
        self._check_finalists()
        if self.recipe is None and (self.from_scratch or self.train_on_holdout):
            name = "from_scratch" if self.from_scratch else "train_on_holdout"
            raise InvalidOption(f"{name} says how to train, but there is no recipe. Give one, or leave {name} out.")
        if self.resources and not self.export:
            raise InvalidOption(
                "The memory and energy of a network are measured with its exported file, but there is no export. Leave "
                "resources out, or export (without --no-export, or export=True)."
            )
        if self.mimic and self.recipe is not None:
            raise InvalidOption(
                f"mimic={self.mimic} says how a network that is not trained learns from the original, but there is a "
                "recipe to train it. Leave the training out (--no-training, or recipe=None), or leave mimic out."
            )
        if self.init is not None:
            require_known("init", self.init, get_args(Init), ", or None")
        if self.init is not None and not self.from_scratch:
            raise InvalidOption(
                f"init={self.init!r} says how new weights are drawn, but fine-tuning keeps the inherited ones. Train "
                "from scratch (--scratch, or from_scratch=True), or leave init out."
            )
        if self.recipe is not None and self.recipe.distillation and self.from_scratch:
            raise InvalidOption(
                f"The recipe takes {self.recipe.distillation} of the loss from a teacher, but a training from scratch "
                "has none. Use a recipe with distillation=0, such as base, or do not train from scratch."
            )

    def _check_finalists(self) -> None:
        """Reject finalists that cannot be trained, and rungs that do not rise or are longer than the recipe."""
        if self.finalists is None:
            if self.rungs:
                raise InvalidOption(
                    f"rungs={self.rungs} says how long finalists are trained, but there are none. Give the number of "
                    "finalists, or leave rungs out."
                )
            return
        if self.recipe is None:
            raise InvalidOption(
                f"finalists={self.finalists} are compared by short trainings, but there is no recipe. Give one, or "
                "leave finalists out."
            )
        if self.max_drop is not None:
            raise InvalidOption(
                f"finalists={self.finalists} are structures of one search, but max_drop makes several. Give limits "
                "instead of max_drop, or leave finalists out."
            )
        if any(after <= before for before, after in zip(self.rungs, self.rungs[1:], strict=False)):
            raise InvalidOption(f"rungs are {self.rungs}, which do not rise. Give longer rungs after shorter ones.")
        if self.rungs and self.rungs[-1] > self.recipe.epochs:
            raise InvalidOption(
                f"The last rung has {self.rungs[-1]} epochs, but the recipe has {self.recipe.epochs}. Give rungs of at "
                "most as many epochs as the recipe, or a longer recipe."
            )

    @property
    def chosen_rungs(self) -> tuple[int, ...]:
        """The epochs of the trainings in each rung: as given, or shares of the recipe's; () without finalists."""
        if self.rungs or self.finalists is None or self.recipe is None:
            return self.rungs
        return tuple(sorted({max(1, round(share * self.recipe.epochs)) for share in defaults.RUNGS}))

    @property
    def training_name(self) -> str:
        """The name of the training in the run folder."""
        if self.training is not None:
            return self.training
        return default_name(self.recipe is not None, self.from_scratch, bool(self.mimic))

    @property
    def chosen_reconstruction(self) -> Reconstruction | Literal["repair"] | None:
        """How the weights that are kept are corrected: the given way, or the default with or without training."""
        if self.reconstruction != "auto":
            return self.reconstruction
        return defaults.UNTRAINED_RECONSTRUCTION if self.recipe is None else defaults.RECONSTRUCTION

    @property
    def search_length(self) -> int:
        """The number of structures that each search evaluates: as given, or the default of the method."""
        return named_method(self.method).evaluations if self.evaluations is None else self.evaluations

    @property
    def proposed_at_once(self) -> int | None:
        """The number of structures without a score that a search keeps proposed; None is the default of its method."""
        if self.proposals is None and self.workers is not None:
            return defaults.PROPOSALS_FOR_WORKERS
        return self.proposals

    @property
    def expected_evaluations(self) -> int:
        """The number of structures that a search will evaluate at most: one if its method proposes a single one."""
        return 1 if proposes_one(self.method) else self.search_length

    @property
    def summary(self) -> str:
        """The parts of the plan that take time, for progress messages."""
        times = " in every search" if self.shrunk else ""
        return f"{counted(self.expected_evaluations, 'evaluation')}{times}, then {self._steps_after_search}"

    @property
    def _steps_after_search(self) -> str:
        if self.recipe is not None:
            rungs = rungs_text(self.chosen_rungs)
            compared = "" if self.finalists is None else f"{self.finalists} finalists in {rungs}, then "
            return f"{compared}{counted(self.recipe.epochs, 'epoch')} of training"
        steps = ["a repair of the weights"] if self.chosen_reconstruction == "repair" else []
        steps += [f"{counted(self.mimic, 'step')} of mimicking the original"] if self.mimic else []
        return f"{' and '.join(steps)}, without labels" if steps else "no training"

    @property
    def traced_scope(self) -> str:
        """The scope that the network is traced with: the given one, or the default of the method."""
        if self.scope is not None:
            return self.scope
        # Uniform widths are a baseline. People who choose widths by hand leave residual streams as they are: ResNet56
        # at -50 % is then estimated at 85 %, and at 64 % if the streams are cut too.
        return "inner" if issubclass(named_method(self.method).kind, UniformShrinkage) else defaults.SCOPE

    @property
    def shrunk(self) -> tuple[str, ...]:
        """The cost that max_drop reduces, if there is a max_drop."""
        return () if self.max_drop is None else (self.shrink,)

    def without_training(self) -> Plan:
        """The plan of the search alone, which corrects weights as this plan does with its recipe or without one."""
        return replace(
            self,
            reconstruction=self.chosen_reconstruction,
            recipe=None,
            from_scratch=False,
            init=None,
            train_on_holdout=False,
        )

    def check_budgets(self, budgets: Sequence[Budget]) -> None:
        """Reject budgets without limits, limits that the plan ignores, and a latency table that no budget needs."""
        limited = [set(budget.costs) for budget in budgets]
        if not self.shrunk and not (limited and all(limited)):
            raise InvalidOption('A budget without limits prunes nothing. Give a limit, such as {"macs": 0.5}.')
        if any(cost in costs for cost in self.shrunk for costs in limited):
            raise InvalidOption(
                f"A limit on {self.shrink} would be ignored, since max_drop reduces it as far as possible. Leave the "
                "limit out, or shrink another cost."
            )
        if self.latency_table is not None and LATENCY not in set(self.shrunk).union(*limited):
            raise InvalidOption(
                f"The latency table {self.latency_table} would be ignored, since nothing limits the latency. Limit it, "
                "or leave the table out."
            )

    def check_drop(self, score: Score) -> None:
        """Reject a drop of the accuracy by 100 points or more."""
        if self.max_drop is not None and self.max_drop >= 1 and score is accuracy:
            raise InvalidOption(
                f"An accuracy that may drop by {100 * self.max_drop:g} points leaves nothing to keep. Give less than "
                "100 points, or limits instead of a drop."
            )

    def check_screening(self, score: Score) -> None:
        """Reject screening for a score that reads its own data."""
        if self.screening is not None and isinstance(score, NetworkScore):
            raise InvalidOption(
                f"screening={self.screening} scores structures on a part of the held-out images, but this score reads "
                "its own data. Give an aacp.Data and a score of (network, batches), or leave screening out."
            )

    def require_workers(self) -> None:
        """Require Ray if there are workers, and reject the address of a cluster that does not answer."""
        if self.workers is not None:
            WorkerRequest.of(self.workers).require_answer()


def _share(name: str, value: Any) -> float:
    """The value as a share above 0 and below 1."""
    found = real_number(name, value, 0, 1)
    if not 0 < found < 1:
        raise InvalidOption(f"{name} is {found:g}, which is not a part of the images. Give a share such as 0.1.")
    return found


def _listed(name: str, value: Any, content: str) -> Sequence[Any]:
    """The value, if it is a list or a tuple; `content` says in the error what it holds."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidOption(f"{name} is {shown(value)}, which is not a list. Give a list {content}.")
    return value


def require_plan(plan: Any) -> None:
    """Reject what is not a plan, such as a dictionary of its fields."""
    instance("plan", plan, Plan, "Give aacp.Plan(...).")


DEFAULT = Plan()
