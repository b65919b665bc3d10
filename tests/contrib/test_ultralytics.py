"""The adapter for ultralytics: its validator scores, its trainer trains what was cut, and its files hold the cut."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.contrib.ultralytics import Validation, trainer_for

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "yolo.py"


class Validator:
    """What the adapter uses of a validator of ultralytics: it reads batches of 4 images and fuses its network."""

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
    def get_model(self, cfg: Any = None, weights: Any = None, verbose: bool = True) -> nn.Module:
        raise AssertionError("the network was built from its YAML file")

    def setup(self) -> nn.Module:
        return self.get_model(cfg="some.yaml", weights=None, verbose=False)


@pytest.fixture
def yolo() -> SimpleNamespace:
    Validator.made.clear()
    roles = {"validator": Validator, "trainer": Trainer}
    overrides = {"task": "detect", "imgsz": 640}
    return SimpleNamespace(task="detect", task_map={"detect": roles}, overrides=overrides, model=nn.Conv2d(3, 2, 1))


def test_the_score_is_the_fitness_that_the_validator_of_the_task_finds(yolo: SimpleNamespace) -> None:
    network = nn.Linear(2, 1)
    score = Validation(yolo, {"data": "shapes.yaml", "imgsz": 160})(network)
    assert score == pytest.approx(float(network.weight.detach().sum() + network.bias.detach().sum()))
    (validator,) = Validator.made
    assert validator.args["data"] == "shapes.yaml"
    assert validator.args["imgsz"] == 160  # the settings come before those of the YOLO
    assert validator.args["task"] == "detect"
    assert validator.args["plots"] is False


def test_calibration_images_are_what_the_validator_prepares_and_no_more_than_needed(yolo: SimpleNamespace) -> None:
    images = Validation(yolo, {"data": "shapes.yaml"}).images(6)
    assert [tuple(batch.shape) for batch in images] == [(4, 3, 8, 8)] * 2
    assert [float(batch.max()) for batch in images] == pytest.approx([0.0, 0.2])
    (validator,) = Validator.made
    assert (validator.read, validator.args["split"]) == (2, "train")
    assert not hasattr(yolo.model, "fused")
    assert len(Validation(yolo, {}).images(1000, split="val")) == 5  # the whole split, if it has fewer


def test_the_trainer_trains_the_network_that_it_is_given(yolo: SimpleNamespace) -> None:
    smaller = nn.Conv2d(3, 1, 1)
    trainer = trainer_for(yolo, smaller)
    assert issubclass(trainer, Trainer)
    assert trainer().setup() is smaller


def test_an_object_that_is_not_a_yolo_is_rejected() -> None:
    with pytest.raises(
        aacp.InvalidOption, match=r"A Conv2d is not an ultralytics YOLO with a trainer. Give the object"
    ):
        trainer_for(nn.Conv2d(3, 2, 1), nn.Conv2d(3, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n", "yolo11n"])
def test_a_yolo_is_pruned_trained_on_exported_and_loaded(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ultralytics", reason="ultralytics (AGPL) is not a dependency")
    spec = importlib.util.spec_from_file_location("yolo_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["yolo_example"] = script
    spec.loader.exec_module(script)
    found = script.main(name, tmp_path, size=64, epochs=1, more_epochs=1, evaluations=2)
    assert found["parameters in a new process"] == found["parameters"] < 3e6
    assert found["largest difference in ONNX Runtime"] < 1e-2  # pixels of a picture of 64
