"""The adapter for ultralytics: its validator scores, its trainer trains what was cut, and its files hold the cut."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.contrib.ultralytics import Validation, trainer_for
from contrib.stand_in import YOLO, Trainer, Validator
from sampling import sampled

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "yolo.py"


@pytest.fixture
def yolo() -> YOLO:
    Validator.made.clear()
    return YOLO("best.pt")


def test_the_score_is_the_fitness_that_the_validator_of_the_task_finds(yolo: YOLO) -> None:
    network = nn.Linear(2, 1)
    score = Validation(yolo, {"data": "shapes.yaml", "imgsz": 160})(network)
    assert score == pytest.approx(float(network.weight.detach().sum() + network.bias.detach().sum()))
    (validator,) = Validator.made
    assert validator.args["data"] == "shapes.yaml"
    assert validator.args["imgsz"] == 160  # the settings come before those of the YOLO
    assert validator.args["task"] == "detect"
    assert validator.args["plots"] is False


def test_calibration_images_are_what_the_validator_prepares_and_no_more_than_needed(yolo: YOLO) -> None:
    images = Validation(yolo, {"data": "shapes.yaml"}).images(6)
    assert [tuple(batch.shape) for batch in images] == [(4, 3, 8, 8)] * 2
    assert [float(batch.max()) for batch in images] == pytest.approx([0.0, 0.2])
    (validator,) = Validator.made
    assert (validator.read, validator.args["split"]) == (2, "train")
    assert not hasattr(yolo.model, "fused")
    assert len(Validation(yolo, {}).images(1000, split="val")) == 5  # the whole split, if it has fewer


def test_the_trainer_trains_the_network_that_it_is_given(yolo: YOLO) -> None:
    smaller = nn.Conv2d(3, 1, 1)
    trainer = trainer_for(yolo, smaller)
    assert issubclass(trainer, Trainer)
    assert trainer().setup() is smaller


def test_an_object_that_is_not_a_yolo_is_rejected() -> None:
    with pytest.raises(
        aacp.InvalidOption, match=r"A Conv2d is not an ultralytics YOLO with a trainer. Give the object"
    ):
        trainer_for(nn.Conv2d(3, 2, 1), nn.Conv2d(3, 1, 1))


class Split(nn.Module):
    """As blocks of ultralytics: `forward` halves its channels by `chunk`, exporters call `forward_split`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c = width
        self.cv1 = nn.Module()
        self.cv1.conv = nn.Conv2d(3, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.cv1.conv(x).chunk(2, 1)
        return first + second

    def forward_split(self, x: Tensor) -> Tensor:
        first, second = self.cv1.conv(x).split((self.c, self.c), 1)
        return first + second


def test_the_trainer_gets_a_network_that_trains_and_that_exporters_can_run(yolo: YOLO) -> None:
    smaller = nn.Sequential(Split(4), Split(4)).requires_grad_(False)
    for split in smaller:
        split.cv1.conv = nn.Conv2d(3, 6, 1).requires_grad_(False)  # cut from 8 channels, and `c` is still 4
    x = torch.randn(1, 3, 2, 2)
    with pytest.raises(RuntimeError, match="split"):
        smaller[0].forward_split(x)
    trainer_for(yolo, smaller)
    torch.testing.assert_close(smaller[0].forward_split(x), smaller[0](x))
    assert [split.c for split in smaller] == [3, 3]
    assert all(parameter.requires_grad for parameter in smaller.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # ultralytics and what it imports warn
@pytest.mark.parametrize("name", sampled(["yolov8n", "yolo11n"], 2))
def test_a_yolo_is_pruned_trained_further_exported_and_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ultralytics", reason="ultralytics (AGPL) is not a dependency: install it to run this test")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of the new process
    spec = importlib.util.spec_from_file_location("yolo_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "PICTURES", {"train": 16, "val": 8, "test": 8})
    found = script.main(name, tmp_path, size=64, epochs=1, more_epochs=1, evaluations=2)
    assert found["share of MACs"] <= 0.6
    assert found["parameters in a new process"] == found["parameters"] < 2.5e6  # of 3.0e6 and 2.6e6
    assert found["largest difference in ONNX Runtime"] < 1e-2  # pixels of a picture of 64
    assert found["mAP in a new process"] == pytest.approx(found["mAP after training"])
    steps = ["train", "search", "cut", "train", "export", "compare", "any size", "new process"]
    printed = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]  # ultralytics prints lines, too
    assert [line for line in printed if line in steps] == steps
