"""What docs/loops.md assumes: a trained network, its class, a loader, and a validation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from preludes.small import SmallNetwork as Net
from preludes.small import digits, trained_network

model = trained_network()
train_loader = DataLoader(TensorDataset(*digits(160)[:120]), batch_size=24, shuffle=True)
images, labels = digits(160)[120:]


def validate(network: nn.Module) -> float:
    with torch.no_grad():
        return float((network(images).argmax(1) == labels).float().mean())


class Heads(nn.Module):
    """A network with two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Net()
        self.boxes = nn.Linear(10, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.body(x)
        return {"logits": logits, "boxes": self.boxes(logits)}


detector = Heads()


def detection_loss(outputs: dict[str, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs["logits"], targets)


def f1_of_boxes(network: nn.Module) -> float:
    """Stands for the validation of a detector: the share of the places at which it finds a box."""
    with torch.no_grad():
        return len(network(images)) / images[:, 0].numel()
