"""Prune an image model of Hugging Face and train it with their Trainer (needs `transformers` and `accelerate`).

    python examples/loops/with_transformers.py [FOLDER]

The network is a ResNet with random weights, so that nothing is downloaded. The Trainer's own checkpoints hold the
weights of the smaller network, but not its widths: keep the file that aacp saves.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from digits_task import BUDGET, parts
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import aacp


def build() -> nn.Module:
    """A small ResNet for digits."""
    config = ResNetConfig(
        num_channels=1, embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
    )
    network: nn.Module = ResNetForImageClassification(config)
    return network


class DistillingTrainer(Trainer):
    """The Trainer with a teacher. Outputs are dictionaries with the heads "loss" and "logits"."""

    teaching: aacp.Distillation | None = None

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)
        loss = outputs["loss"]
        if self.teaching is not None:
            loss = self.teaching({"pixel_values": inputs["pixel_values"]}, outputs, loss)
        return (loss, outputs) if return_outputs else loss


def train(network: nn.Module, part: TensorDataset, epochs: int, folder: Path, teacher: nn.Module | None = None) -> None:
    arguments = TrainingArguments(
        output_dir=str(folder), num_train_epochs=epochs, per_device_train_batch_size=32, learning_rate=5e-3,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    examples: Any = [{"pixel_values": image, "labels": label} for image, label in part]
    trainer = DistillingTrainer(model=network, args=arguments, train_dataset=examples)
    if teacher is not None:
        trainer.teaching = aacp.Distillation(teacher, heads={"logits": "classes"})
    trainer.train()


def accuracy(network: nn.Module, part: TensorDataset) -> float:
    images, labels = part.tensors
    with torch.no_grad():
        return float((network.eval()(images)["logits"].argmax(1) == labels).float().mean())


def main(folder: str | Path = "runs/transformers", epochs: int = 5, evaluations: int = 30, images: int = 1200) -> Path:
    torch.manual_seed(0)
    training, held_out = parts(images)
    model = build()
    train(model, training, epochs, Path(folder) / "base")

    inputs = training.tensors[0]  # images alone: the network's arguments
    plan = aacp.Plan(evaluations=evaluations)
    found = aacp.find(model, inputs, BUDGET, plan=plan, score=lambda network: accuracy(network, held_out))
    smaller = found.cut()
    train(smaller, training, epochs, Path(folder) / "pruned", teacher=model)

    file = Path(folder) / "smaller.safetensors"
    found.save(smaller, file)
    again = aacp.load(file, into=build())
    print(f"{found}\nheld out: unpruned {accuracy(model, held_out):.3f}, trained {accuracy(again, held_out):.3f}")
    return file


if __name__ == "__main__":
    main(*sys.argv[1:2])
