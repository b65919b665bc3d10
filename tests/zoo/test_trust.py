"""Code that a run folder or a file names is imported only with --trust, or trust=True."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.zoo.trust import DATA, MODEL, is_code

OLD = Path(__file__).parent.parent / "previous_version"  # a finished run with nothing but built-in names


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's run folder in the current folder, beside a module that leaves a trace when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("evil", "mine", "plain_sibling", "colorsys"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    lines = ["from pathlib import Path", "Path('imported').touch()", "def found(*given):", "    raise SystemExit(0)"]
    (tmp_path / "evil.py").write_text("\n".join(lines))
    shutil.copytree(OLD, tmp_path / "run")
    return tmp_path / "run"


def rename(folder: Path, field: str) -> None:
    recorded = json.loads((folder / "run.json").read_text())
    value: Any = {**recorded["deployment"], "runtime": "evil:found"} if field == "deployment" else "evil:found"
    (folder / "run.json").write_text(json.dumps({**recorded, field: value}))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.stderr


FINISHING = [
    "model",
    "data_source",
    "metric_source",
    "loss_source",
    "method",
    "importance",
    "reconstruction",
    "deployment",
]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        *(("finetune", field) for field in FINISHING),
        *(("scratch", field) for field in ("model", "method")),
        *(("evaluate", field) for field in ("model", "data_source", "metric_source")),
    ],
)
def test_a_command_imports_nothing_that_a_folder_names(command: str, field: str, stranger: Path) -> None:
    rename(stranger, field)
    code, message = run(command, "run", "--device", "cpu")
    assert code == 1
    assert message.startswith("UntrustedCode: run names code, which would be imported and executed: evil:found (")
    assert "a module in the current folder" in message
    assert "--trust" in message
    assert not Path("imported").exists()


def test_with_trust_the_code_is_imported_and_an_exit_in_it_is_an_error(stranger: Path) -> None:
    rename(stranger, "data_source")
    code, message = run("evaluate", "run", "--device", "cpu", "--trust")
    assert Path("imported").exists()
    assert (code, message.partition(".")[0]) == (1, "UnknownData: evil:found failed with SystemExit: 0")


@pytest.mark.slow
def test_a_name_given_in_place_of_a_recorded_one_needs_no_trust(stranger: Path) -> None:
    rename(stranger, "data_source")
    code, message = run("evaluate", "run", "--device", "cpu", "--data", "digits")
    assert (code, message) == (0, "")
    assert not Path("imported").exists()


def saved(path: Path, model: str) -> nn.Module:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 1))
    x = torch.randn(1, 3, 8, 8)
    graph = aacp.trace(network, x)
    aacp.save(aacp.shrink(network, graph, [4]), graph, path, kept=[4], model=model, example=x)
    return network


def test_the_network_of_a_file_is_imported_only_with_trust(stranger: Path) -> None:
    network = saved(stranger.parent / "a", "evil:found")
    with pytest.raises(aacp.UntrustedCode, match=r"a names code.*evil:found \(model, a module in the current folder\)"):
        aacp.load("a")
    code, message = run("export", "a")
    assert (code, message[:13]) == (1, "UntrustedCode")
    code, message = run("evaluate", "a", "--data", "digits")
    assert (code, message[:13]) == (1, "UntrustedCode")
    aacp.load("a", into=network)
    assert not Path("imported").exists()
    with pytest.raises(aacp.UnknownModel, match="evil:found failed with SystemExit: 0"):
        aacp.load("a", trust=True)


@pytest.mark.parametrize(
    ("use", "name", "expected"),
    [
        (MODEL, "resnet56", False),
        (MODEL, "torchvision:resnet18", False),
        (MODEL, "torchvision.models.detection:ssd300_vgg16", False),
        (MODEL, "timm:resnet18", False),
        (MODEL, "torchvision_evil:build", True),
        (MODEL, "timm.layers:build", True),  # only timm:NAME is built by the installed package
        (MODEL, "digits:build", True),  # a module may be called like a data set
        (DATA, "digits:build", True),
        (DATA, "cifar10@32:build", True),  # only folders of images have a size
        (DATA, "digits", False),
        (DATA, "cifar10:/data", False),
        (DATA, "imagefolder@32:/data", False),
        (DATA, "tensors:a.npy", False),
        (DATA, "torchvision.datasets:MNIST", True),
        (DATA, "timm:build", True),
        ("score", "os:getcwd", True),
        ("method", "paper", False),
        ("importance", "aacp.cli:main", True),
    ],
)
def test_built_in_names_are_distinguished_from_code(use: str, name: str, expected: bool) -> None:
    assert is_code(use, name) is expected


def test_the_current_folder_does_not_replace_installed_packages(stranger: Path) -> None:
    """Once a module of the current folder was imported, other imports still prefer what is installed."""
    (stranger.parent / "mine.py").write_text("import plain_sibling\ndef build():\n    return plain_sibling.network()\n")
    (stranger.parent / "plain_sibling.py").write_text(
        "from torch import nn\ndef network():\n    return nn.Identity()\n"
    )
    (stranger.parent / "colorsys.py").write_text("raise RuntimeError('from the current folder')\n")
    assert isinstance(aacp.build_model("mine:build"), nn.Identity)
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
