"""Every file of examples/ runs, with few epochs and evaluations, and one of them also from the command line."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torchvision
from click.testing import CliRunner
from PIL import Image

import aacp
from aacp.cli import main
from aacp.pipeline import training

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(path: Path) -> None:
    assert f"python examples/{path.name}" in path.read_text().split('"""')[1]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Examples set torch's threads, as a script may."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing ONNX files takes most of the time of so short a run, and has its own tests."""
    monkeypatch.setattr(training, "export_both", lambda *_: None)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_folder_of_pictures_is_enough_to_prune(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(24):
        noise = torch.randint(256, (64, 64, 3), generator=torch.Generator().manual_seed(number)).byte()
        Image.fromarray(noise.numpy()).save(pictures / f"{number}.png")
    script = example("unlabelled_pictures")
    monkeypatch.setattr(script, "trained_network", small_network)
    pruned = script.main(pictures, tmp_path / "run", evaluations=1, mimic=1)
    assert pruned.evaluation.after.macs <= 2 / 3 * pruned.evaluation.before.macs
    assert "mimicked" in capsys.readouterr().out


def small_network() -> torch.nn.Module:
    """A small network for pictures of any size, in the place of MobileNetV2."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5))


DRAWN = ("stripes", "shapes", "commands", "images")  # the functions of the examples that draw data


def make_small(script: ModuleType) -> None:
    """Let an example draw few images, and have one block in each stage of ResNet18."""
    for name in DRAWN:
        if hasattr(script, name):
            setattr(script, name, partial(drawn, getattr(script, name)))
    if hasattr(script, "Blobs"):
        few = [torch.utils.data.Subset(loader.dataset, range(40)) for loader in script.loaders()]
        script.loaders = lambda: [torch.utils.data.DataLoader(images, batch_size=16) for images in few]
        assert script.build()(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
        resnet = torchvision.models.resnet
        script.build = lambda: resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=4)


def drawn(draw: Callable[..., Any], count: int, seed: int) -> Any:
    return draw(min(count, 96), seed)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "no_onnx")
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("own_model", 0.5),
        ("segmentation", 0.5),
        ("speech", 0.5),
        ("super_resolution", 0.5),
        ("torchvision_network", 0.33),
    ],
)
def test_an_example_prunes_to_its_budget(
    name: str, rate: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = example(name)
    make_small(script)
    pruned = script.main(tmp_path, epochs=1, evaluations=3)
    assert pruned.evaluation.after.macs <= (1 - rate) * pruned.evaluation.before.macs
    assert pruned.report.exists()
    assert "test score" in capsys.readouterr().out


@pytest.mark.slow
def test_a_detector_is_pruned_in_its_own_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = example("detector").main(tmp_path, epochs=4, evaluations=3)
    header = aacp.Artefact.read(tmp_path / "smaller.safetensors")
    cost = aacp.macs(header.graph)
    assert header.graph.parts == ("backbone", "head")
    assert cost(header.structure) <= 0.5 * cost(header.graph.full)
    assert scores["cut"] < 0.3 < scores["trained again"] == scores["loaded"]
    assert "only these parts of Detector are pruned" in capsys.readouterr().out


def test_f1_of_known_boxes() -> None:
    """Two objects are there. One is found, one box has the wrong class, and one has a low score."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]])
    found = {
        "boxes": torch.tensor([[1.0, 0, 10, 10], [20, 20, 30, 30], [20, 20, 30, 30]]),
        "labels": torch.tensor([1, 1, 2]),
        "scores": torch.tensor([0.9, 0.8, 0.2]),
    }

    class Always(torch.nn.Module):
        def forward(self, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
            return [found for _ in images]

    there = [{"boxes": boxes, "labels": torch.tensor([1, 2])}]
    assert example("detector").f1(Always(), torch.zeros(1, 3, 8, 8), there) == pytest.approx(2 * 1 / (2 + 2))


def unet_of_segmentation_models() -> torch.nn.Module:
    library = pytest.importorskip("segmentation_models_pytorch", reason="not a dependency")
    network: torch.nn.Module = library.Unet("resnet18", 3, None, "batchnorm", (32, 16, 8), in_channels=1, classes=3)
    return network


def unet_of_monai() -> torch.nn.Module:
    library = pytest.importorskip("monai.networks.nets", reason="monai is not a dependency")
    network: torch.nn.Module = library.BasicUNet(2, in_channels=1, out_channels=3, features=(8, 8, 16, 16, 32, 8))
    return network


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "no_onnx")
@pytest.mark.parametrize("build", [unet_of_segmentation_models, unet_of_monai])
def test_the_example_of_segmentation_prunes_networks_of_libraries(
    build: Callable[[], torch.nn.Module], tmp_path: Path
) -> None:
    model = build()
    pruned = example("segmentation").main(tmp_path, epochs=1, evaluations=2, model=model)
    again = aacp.load(tmp_path / "pruned", into=build())
    inputs = torch.zeros(1, 1, 64, 64)  # twice the size of the images of the example
    assert again.eval()(inputs).shape == model.eval()(inputs).shape
    assert pruned.evaluation.after.macs <= 0.5 * pruned.evaluation.before.macs


def test_psnr_of_known_images() -> None:
    script = example("super_resolution")
    there = torch.zeros(2, 1, 4, 4)
    found = torch.full_like(there, 0.2)  # an error of a tenth of the range of the values: 20 dB
    assert script.psnr(torch.nn.Identity(), aacp.Batches.of((found, there))) == pytest.approx(20, abs=1e-3)


def test_a_rising_tone_is_higher_at_its_end() -> None:
    script = example("speech")
    sounds, labels = script.commands(40, seed=0).tensors
    thirds = sounds.diff(dim=2).abs().mean(1).split(sounds.shape[2] // 3, dim=1)  # faster changes: higher pitch
    rises = thirds[2].mean(1) > thirds[0].mean(1)
    for name, expected in (("up", True), ("down", False)):
        of_this_kind = labels == script.COMMANDS.index(name)
        assert of_this_kind.any()
        assert (rises[of_this_kind] == expected).all()


def test_mean_iou_of_known_answers() -> None:
    found = torch.tensor([[0, 1, 1, 2]])
    there = torch.tensor([[0, 0, 1, 2]])
    answers = torch.nn.functional.one_hot(found, 3).permute(0, 2, 1).float()
    score = example("segmentation").mean_iou(torch.nn.Identity(), aacp.Batches.of((answers, there)))
    assert score == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)


@pytest.mark.slow
def test_an_example_runs_by_its_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = ["segmentation:UNet", "--data", "segmentation:pictures", "--metric", "segmentation:mean_iou"]
    options = [*names, "--prune-macs", "0.5", "--evaluations", "2", "--calibration", "32", "--run", str(tmp_path)]
    found = CliRunner().invoke(main, ["search", *options], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    recorded = aacp.RunFolder(tmp_path).read_json("run.json")
    assert (recorded["model"], recorded["metric"], recorded["metric_source"]) == (
        "segmentation:UNet",
        "mean_iou",
        "segmentation:mean_iou",
    )
