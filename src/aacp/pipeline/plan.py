"""Plan: how a network is pruned to its budget: how to search, and how to train what is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from aacp.errors import InvalidOption
from aacp.latency.deployment import HERE, Deployment
from aacp.pipeline.targets import COSTS
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
        if self.probe_epochs < 0 or (self.probe_epochs and self.recipe is None):
            raise InvalidOption(
                f"{self.probe_epochs} epochs were asked for to judge a structure by, with a recipe of {self.recipe}. "
                "Give a number of epochs and a recipe to train by, or 0 to go by the estimate."
            )


DEFAULT = Plan()
