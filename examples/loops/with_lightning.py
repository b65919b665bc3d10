"""Prune a network and train it with Lightning: python examples/loops/with_lightning.py [FOLDER] (needs `lightning`)."""

from __future__ import annotations

import sys
from pathlib import Path

import lightning
import torch
from digits_task import BUDGET, Net, accuracy, loader, parts
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import aacp


class Classifier(lightning.LightningModule):
    """The module as it was before pruning, with one line for the teacher."""

    def __init__(self, network: nn.Module, teaching: aacp.Distillation | None = None) -> None:
        super().__init__()
        self.network = network
        self.teaching = teaching  # it is not a module: Lightning neither trains nor saves it

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        images, labels = batch
        outputs = self.network(images)
        loss = nn.functional.cross_entropy(outputs, labels)
        return loss if self.teaching is None else self.teaching(images, outputs, loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-3)


def train(module: Classifier, part: TensorDataset, epochs: int, folder: Path) -> None:
    trainer = lightning.Trainer(max_epochs=epochs, logger=False, default_root_dir=folder, enable_progress_bar=False)
    trainer.fit(module, loader(part, shuffle=True))


def main(folder: str | Path = "runs/lightning", epochs: int = 5, evaluations: int = 30, images: int = 1200) -> Path:
    torch.manual_seed(0)
    training, held_out = parts(images)
    model = Net()
    train(Classifier(model), training, epochs, Path(folder) / "base")

    plan = aacp.Plan(evaluations=evaluations)
    found = aacp.find(model, training, BUDGET, plan=plan, score=lambda network: accuracy(network, held_out))
    smaller = found.cut()
    train(Classifier(smaller, aacp.Distillation(model)), training, epochs, Path(folder) / "pruned")

    file = Path(folder) / "smaller.safetensors"
    found.save(smaller, file)
    again = aacp.load(file, into=Net())
    print(f"{found}\nheld out: unpruned {accuracy(model, held_out):.3f}, trained {accuracy(again, held_out):.3f}")
    return file


if __name__ == "__main__":
    main(*sys.argv[1:2])
