"""PruningJob: a pruning run described by names, as the command line gives it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aacp.data.scores import Score, accuracy
from aacp.errors import UnknownData
from aacp.pipeline import Pruned, prune
from aacp.plan import Plan
from aacp.train.seeding import global_seed
from aacp.zoo.data import load_data
from aacp.zoo.imports import module_of
from aacp.zoo.models import build_model
from aacp.zoo.weights import load_weights


@dataclass(frozen=True)
class PruningJob:
    """What to prune, on what data, how and where, in names."""

    model: str
    data: str
    folder: str
    plan: Plan
    weights: str | None = None
    metric: str | None = None
    device: str | None = None

    def run(self) -> Pruned:
        with global_seed(torch.device("cpu"), self.plan.seed):
            model = build_model(self.model)
        if self.weights is not None:
            load_weights(model, self.weights)
        data = load_data(self.data, seed=self.plan.seed)
        score = accuracy if self.metric is None else _score(self.metric)
        return prune(
            model, data, self.plan, self.folder, score=score, name=self.model, device=self.device, verbose=True
        )


def _score(name: str) -> Score:
    """A score function of the user's."""
    source, _, entry = name.partition(":")
    function = getattr(module_of(source, UnknownData), entry, None)
    if not callable(function):
        raise UnknownData(f"{name} is no function. Name one of (network, batches), as package.module:function.")
    score: Score = function
    return score
