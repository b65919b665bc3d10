"""A stand-in for ultralytics, which is AGPL and no dependency: what aacp and docs/yolo.md use of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Validator:
    """A validator: it reads batches of 4 images and fuses its network."""

    made: ClassVar[list[Any]] = []

    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args
        self.read = 0
        self.metrics = SimpleNamespace(fitness=0.0)
        self.made.append(self)

    def preprocess(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        self.read += 1
        return {"img": batch["img"] / 255}

    def __call__(self, model: nn.Module) -> None:
        model.fused = True
        for number in range(5):
            self.preprocess({"img": torch.full((4, 3, 8, 8), 51.0 * number)})
        self.metrics.fitness = sum(float(parameter.detach().sum()) for parameter in model.parameters())


class Trainer:
    """A trainer: only one with another `get_model` trains a network that was cut."""

    def get_model(self, cfg: Any = None, weights: Any = None, verbose: bool = True) -> nn.Module:
        raise AssertionError("the network was built from its YAML file")

    def setup(self) -> nn.Module:
        return self.get_model(cfg="some.yaml", weights=None, verbose=False)


class YOLO:
    """A detector of two layers. It trains, validates and exports nothing, and takes only options of ultralytics."""

    task = "detect"
    task_map: ClassVar[dict[str, dict[str, type]]] = {"detect": {"validator": Validator, "trainer": Trainer}}

    def __init__(self, model: str) -> None:
        self.overrides = {"task": "detect", "imgsz": 640, "model": model}
        self.model: nn.Module = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 3))

    def train(self, *, trainer: type[Trainer], data: str, imgsz: int, epochs: int) -> None:
        self.model = trainer().setup()

    def val(self) -> None:
        Validator(self.overrides)(self.model)

    def export(self, *, format: str) -> None:
        assert format == "onnx"
