"""Small tasks for the checks before a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import aacp
from aacp.pipeline.task import PruningTask

TRAINED = aacp.Plan(recipe=aacp.Recipe(epochs=1, batch_size=4, lr=0.1))
SEARCHED = replace(TRAINED, recipe=None)
INPUTS, LABELS = torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2


class Noisy(nn.Module):
    """A network that draws numbers, and counts in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2)

    def forward(self, image: Tensor) -> Tensor:
        noise = torch.rand_like(image) if image.dim() else image
        answer: Tensor = self.last(self.norm(self.first(image + noise)).relu().mean((2, 3)))
        return answer


class Plain(Noisy):
    """The same without noise, to be traced."""

    def forward(self, image: Tensor) -> Tensor:
        answer: Tensor = self.last(self.norm(self.first(image)).relu().mean((2, 3)))
        return answer


class Examples(Dataset[Any]):
    """Twelve images with labels, each in the form that a function gives it."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> Any:
        return self.form(INPUTS[index], LABELS[index])


def task_of(form: Any, score: Any = aacp.accuracy, loss: Any = None, **parts: Any) -> PruningTask:
    """A task with the noisy network, whose parts are loaders of examples in a form, unless others are given."""
    part = DataLoader(Examples(form), 4)
    given = {"train": part, "holdout": DataLoader(Examples(form), 4), "test": DataLoader(Examples(form), 4)} | parts
    return PruningTask(Noisy(), aacp.Data(**given), "noisy", torch.device("cpu"), score, loss=loss)


def pair(image: Tensor, label: Tensor) -> Any:
    return image, label


def dictionary(image: Tensor, label: Tensor) -> Any:
    return {"image": image, "label": label}


def own_score(network: nn.Module, batches: aacp.Batches) -> float:
    return 0.5


def task_of_network(network: nn.Module, form: Any = pair, **parts: Any) -> PruningTask:
    """The same with another network."""
    return replace(task_of(form, **parts), model=network)
