"""Prune a network and train it with Accelerate: python examples/loops/with_accelerate.py [FOLDER] (needs `accelerate`).

On several processes, search in one process before `accelerate launch`, and load the saved file in all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from digits_task import BUDGET, Net, accuracy, loader, parts
from torch import nn
from torch.utils.data import TensorDataset

import aacp
from accelerate import Accelerator


def train(
    accelerator: Accelerator,
    network: nn.Module,
    part: TensorDataset,
    epochs: int,
    teaching: aacp.Distillation | None = None,
) -> nn.Module:
    """A loop of Accelerate; returns the network without what Accelerate puts around it."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    prepared, optimiser, batches = accelerator.prepare(network, optimiser, loader(part, shuffle=True))
    prepared.train()
    for _ in range(epochs):
        for images, labels in batches:
            outputs = prepared(images)
            loss = nn.functional.cross_entropy(outputs, labels)
            if teaching is not None:
                loss = teaching(images, outputs, loss)
            optimiser.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
            optimiser.step()
    found: nn.Module = accelerator.unwrap_model(prepared)
    return found


def main(folder: str | Path = "runs/accelerate", epochs: int = 5, evaluations: int = 30, images: int = 1200) -> Path:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    training, held_out = parts(images)
    model = train(accelerator, Net(), training, epochs)

    plan = aacp.Plan(evaluations=evaluations)
    found = aacp.find(model, training, BUDGET, plan=plan, score=lambda network: accuracy(network, held_out))
    smaller = train(accelerator, found.cut(), training, epochs, aacp.Distillation(model))

    file = Path(folder) / "smaller.safetensors"
    found.save(smaller, file)
    again = aacp.load(file, into=Net())
    print(f"{found}\nheld out: unpruned {accuracy(model, held_out):.3f}, trained {accuracy(again, held_out):.3f}")
    return file


if __name__ == "__main__":
    main(*sys.argv[1:2])
