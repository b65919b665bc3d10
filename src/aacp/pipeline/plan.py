"""Plan: how a network is pruned to its budget: how to search, and how to train what is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aacp.data.scores import Score, accuracy
from aacp.errors import InvalidOption
from aacp.estimate.importance import require_criterion
from aacp.latency.deployment import HERE, Deployment
from aacp.pipeline.targets import COSTS, LATENCY
from aacp.runs.files import Target
from aacp.search.methods import require_method
from aacp.space import PruningStep
from aacp.train.recipe import FINETUNE, Recipe


@dataclass(frozen=True)
class Plan:
    """How to search for a structure within the limits, and how to train it.

    With `max_drop`, in the unit of the score, the network is made as small as it can be for that: the share of
    `shrink`, a cost, that is removed is found by bisection, and every share is judged by what the best structure found
    for it is estimated at or, with `probe_epochs`, scores after a short fine-tuning. A `pruning_step` of "auto" is
    found by timing the layers where the network is to run.
    """

    pruning_step: PruningStep | Literal["auto"] = 1 / 8
    method: str = "default"
    evaluations: int = 200
    recipe: Recipe | None = FINETUNE  # None: the network is not trained
    from_scratch: bool = False
    train_on_holdout: bool = False  # as well, once the structure is chosen; what it scores then says nothing
    importance: str | Callable[..., Any] = "l1"
    calibration_images: int = 4096
    frozen: tuple[str, ...] = ()
    scope: str = "all"
    export: bool = True  # both networks as ONNX files, and timed
    seed: int = 0
    max_drop: float | None = None
    shrink: str = "macs"
    probe_epochs: int = 0
    deployment: Deployment = HERE
    latency_table: str | None = None  # a file of aacp measure for this deployment; otherwise one is measured

    def __post_init__(self) -> None:
        if self.max_drop is not None and not self.max_drop >= 0:
            raise InvalidOption(f"max_drop is {self.max_drop}, but must not be negative. Give 0.005 for half a point.")
        if self.shrink not in COSTS:
            raise InvalidOption(f"There is no cost {self.shrink!r} to shrink. Choose from {', '.join(COSTS)}.")
        if self.evaluations < 1 or self.calibration_images < 1:
            raise InvalidOption(
                f"A search with {self.evaluations} evaluations on {self.calibration_images} calibration images finds "
                "nothing. Give 1 or more of both."
            )
        require_method(self.method)
        require_criterion(self.importance)
        if self.probe_epochs < 0 or (self.probe_epochs and self.recipe is None):
            raise InvalidOption(
                f"{self.probe_epochs} epochs were asked for to judge a structure by, with a recipe of {self.recipe}. "
                "Give a number of epochs and a recipe to train by, or 0 to go by the estimate."
            )
        self._check_together()

    def _check_together(self) -> None:
        """Refuse what would be ignored for want of something else."""
        if self.max_drop is None and (self.shrink != Plan.shrink or self.probe_epochs):
            raise InvalidOption(
                f"shrink={self.shrink!r} and probe_epochs={self.probe_epochs} say how max_drop is kept, but there is "
                "none. Give max_drop, or leave them out."
            )
        if self.recipe is None and (self.from_scratch or self.train_on_holdout):
            name = "from_scratch" if self.from_scratch else "train_on_holdout"
            raise InvalidOption(f"{name} says how to train, but there is no recipe. Give one, or leave {name} out.")
        if self.recipe is not None and self.recipe.distillation and self.from_scratch:
            raise InvalidOption(
                f"The recipe takes {self.recipe.distillation} of the loss from a teacher, but from scratch there is "
                "none. Use a recipe with distillation=0, such as base, or do not train from scratch."
            )

    @property
    def in_words(self) -> str:
        """What takes its time."""
        times = " in every search" if self.shrunk else ""
        trained = f"{self.recipe.epochs} epochs of training" if self.recipe else "no training"
        return f"{self.evaluations} evaluations{times}, then {trained}"

    @property
    def shrunk(self) -> tuple[str, ...]:
        """The cost that is made as small as can be, if one is."""
        return () if self.max_drop is None else (self.shrink,)

    def check_budgets(self, budgets: Sequence[Sequence[Target]]) -> None:
        """Refuse budgets that leave nothing to do for what is planned, or the other way round."""
        limited = [{limit.cost for limit in limits} for limits in budgets]
        if not self.shrunk and not (limited and all(limited)):
            raise InvalidOption('A budget without limits prunes nothing. Give one, such as {"macs": 0.5}.')
        if any(cost in costs for cost in self.shrunk for costs in limited):
            raise InvalidOption(
                f"A limit on {self.shrink} would be ignored, since max_drop makes it as small as can be. Leave the "
                "limit out, or shrink another cost."
            )
        if self.latency_table is not None and LATENCY not in set(self.shrunk).union(*limited):
            raise InvalidOption(
                f"The latency table {self.latency_table} would be ignored, since nothing limits the latency. Give it a "
                "limit, or leave the table out."
            )

    def check_drop(self, score: Score) -> None:
        """Refuse a drop of all there is."""
        if self.max_drop is not None and self.max_drop >= 1 and score is accuracy:
            raise InvalidOption(
                f"An accuracy that may drop by {100 * self.max_drop:g} points leaves nothing to keep. Give less than "
                "100 points, or limits instead of a drop."
            )

    def require_table(self) -> None:
        """Refuse a latency table that is not there."""
        if self.latency_table is not None and not Path(self.latency_table).exists():
            raise InvalidOption(
                f"There is no latency table {self.latency_table}. Make it with aacp measure, or leave it out, and one "
                "is measured."
            )


DEFAULT = Plan()
