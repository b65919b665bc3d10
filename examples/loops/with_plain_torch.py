"""Prune a network and train it in a loop of your own: python examples/loops/with_plain_torch.py [FOLDER]."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from digits_task import BUDGET, Net, accuracy, loader, parts
from torch import nn
from torch.utils.data import TensorDataset

import aacp


def train(network: nn.Module, part: TensorDataset, epochs: int, teaching: aacp.Distillation | None = None) -> None:
    """A loop as one writes it; the teacher is the only part that is new."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    network.train()
    for _ in range(epochs):
        for images, labels in loader(part, shuffle=True):
            outputs = network(images)
            loss = nn.functional.cross_entropy(outputs, labels)
            if teaching is not None:
                loss = teaching(images, outputs, loss)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def main(folder: str | Path = "runs/plain_loop", epochs: int = 5, evaluations: int = 30, images: int = 1200) -> Path:
    torch.manual_seed(0)
    training, held_out = parts(images)
    model = Net()
    train(model, training, epochs)  # or use a network that is already trained

    plan = aacp.Plan(evaluations=evaluations)
    found = aacp.find(model, training, BUDGET, plan=plan, score=lambda network: accuracy(network, held_out))
    smaller = found.cut()
    before = accuracy(smaller, held_out)
    train(smaller, training, epochs, aacp.Distillation(model))

    file = Path(folder) / "smaller.safetensors"
    found.save(smaller, file)
    again = aacp.load(file, into=Net())
    print(found)
    print(
        f"held out: unpruned {accuracy(model, held_out):.3f}, cut {before:.3f}, trained {accuracy(again, held_out):.3f}"
    )
    return file


if __name__ == "__main__":
    main(*sys.argv[1:2])
