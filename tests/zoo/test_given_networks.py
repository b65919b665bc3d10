"""What users give as a network: a class, a lazy module, one on the meta device, or code that ends the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.Conv2d(8, 2, 1))


def meta() -> nn.Module:
    return Net().to("meta")


X = torch.zeros(2, 3, 8, 8)
DATA = aacp.Data.of((torch.zeros(20, 3, 8, 8), torch.zeros(20, dtype=torch.int64)))
RECIPE = aacp.Recipe(epochs=1, batch_size=4, lr=0.1)
GRAPH = aacp.trace(Net(), X)
ENTRANCES: dict[str, Callable[[Any, Path], Any]] = {
    "trace": lambda model, _: aacp.trace(model, X),
    "verify": lambda model, _: aacp.verify(model, GRAPH, X),
    "shrink": lambda model, _: aacp.shrink(model, GRAPH, [4]),
    "prune": lambda model, folder: aacp.prune(model, DATA, {"macs": 0.5}, folder=folder / "run"),
    "sweep": lambda model, folder: aacp.sweep(model, DATA, [{"macs": 0.5}], folder=folder / "run"),
    "fit": lambda model, _: aacp.fit(model, DATA, RECIPE),
    "train_from_scratch": lambda model, _: aacp.train_from_scratch(model, DATA, RECIPE),
    "recalibrate": lambda model, _: aacp.recalibrate(model, X),
    "Inheritance": lambda model, _: aacp.Inheritance(model, GRAPH, X),
    "repair": lambda model, _: aacp.repair(Net(), model, GRAPH, [8], X),
    "save": lambda model, folder: aacp.save(model, GRAPH, folder / "a"),
    "export_onnx": lambda model, folder: aacp.export_onnx(model, folder / "a.onnx", X),
    "conditions_here": lambda model, _: aacp.conditions_here(model),
    "load_weights": lambda model, folder: aacp.load_weights(model, folder / "a"),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_class_or_anything_else_in_place_of_a_network_is_rejected(entrance: str, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"is the class Net\. Give a network of this class: Net\(\)"):
        ENTRANCES[entrance](Net, tmp_path)
    for wrong in (None, 5, {"model": Net()}, lambda x: x):
        with pytest.raises(aacp.InvalidOption, match=r"is a .*, not a torch.nn.Module"):
            ENTRANCES[entrance](wrong, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_lazy_network_is_rejected_and_stays_as_it_is(entrance: str, tmp_path: Path) -> None:
    model = lazy()
    with pytest.raises(aacp.UntraceableModel, match=r"has a Uninitialized\w+ 0.weight, which has no shape yet"):
        ENTRANCES[entrance](model, tmp_path)
    assert nn.parameter.is_lazy(model[0].weight)  # type: ignore[index]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_network_on_the_meta_device_is_rejected(entrance: str, tmp_path: Path) -> None:
    with pytest.raises(aacp.UntraceableModel, match=r"has 0.weight on the meta device, without data"):
        ENTRANCES[entrance](meta(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_pruned_network_is_not_loaded_into_a_class(tmp_path: Path) -> None:
    network = Net()
    aacp.save(aacp.shrink(network, GRAPH, [4]), GRAPH, tmp_path / "a", kept=[4])
    with pytest.raises(aacp.InvalidOption, match=r"into is the class Net, not a network. Pass a new network"):
        aacp.load(tmp_path / "a", into=Net)  # type: ignore[arg-type]
    with pytest.raises(aacp.UntraceableModel, match="on the meta device"):
        aacp.load(tmp_path / "a", into=meta())


@pytest.mark.parametrize("name", [Net, 5, None, b"resnet56", Net()])
def test_what_is_not_a_name_is_rejected(name: Any) -> None:
    with pytest.raises(aacp.UnknownModel, match="is not a model name"):
        aacp.build_model(name)
    with pytest.raises(aacp.UnknownData, match="is not the name of a data set"):
        aacp.load_data(name)


@pytest.mark.parametrize("code", ["import sys\nsys.exit(0)\n", "def build():\n    raise SystemExit\n"])
def test_code_that_ends_the_program_is_an_error(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ending.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "ending", raising=False)
    with pytest.raises(aacp.UnknownModel, match="failed with SystemExit"):
        aacp.build_model("ending:build")


@pytest.mark.parametrize(
    ("build", "message"),
    [("meta", "on the meta device"), ("lazy", "has no shape yet"), ("scripted", "is a TorchScript module")],
)
def test_a_named_network_without_data_is_rejected_when_it_is_built(build: str, message: str) -> None:
    with pytest.raises(aacp.UntraceableModel, match=f"^zoo.given_networks:{build} .*{message}"):
        aacp.build_model(f"zoo.given_networks:{build}")


@pytest.mark.parametrize("shape", [(1, 1, 10**11, 10**11), (10**400, 1), (0, 3, 8, 8), ()])
def test_an_input_that_cannot_be_made_is_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"An input of shape .* cannot be made"):
        aacp.example_input(Net(), shape)


@pytest.mark.parametrize("size", ["0", "9" * 5000, "100000", "x", "-1", "²"])
def test_a_size_of_images_that_no_network_reads_is_rejected(size: str) -> None:
    with pytest.raises(aacp.UnknownData, match="has no size of images from 1 to 8,192 pixels"):
        aacp.load_data(f"imagefolder@{size}:pictures")
