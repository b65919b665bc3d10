"""Run folders of the version before this one are still read: reported, evaluated, loaded, resumed and finished.

tests/previous_version was made at commit 1a9331c, on a CPU, by
    aacp search digits_resnet --data digits --prune-params 0.9 --max-size 40kB --evaluations 10 --calibration 64 \
        --device cpu --step 0.25 --run run
    aacp finetune run --epochs 1 --device cpu --no-export
"""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.pytorch.modules import named_tensors
from aacp.train.seeding import digest, global_seed

pytestmark = pytest.mark.slow

MADE = Path(__file__).parent / "previous_version"
SEARCH = ["--data", "digits", "--prune-params", "0.9", "--max-size", "40kB", "--evaluations", "10", "--step", "0.25"]
SEARCH += ["--calibration", "64", "--device", "cpu"]
IS_X86 = platform.machine() == "x86_64"
AFTER_SEARCH = ("training", "pruned.safetensors", "evaluation.json")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def written(name: str, folder: Path = MADE) -> dict:
    found: dict = json.loads((folder / name).read_text())
    return found


def untrained() -> nn.Module:
    """The network that was pruned: its weights are drawn, not trained."""
    with global_seed(torch.device("cpu"), 0):
        return aacp.build_model("digits_resnet")


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder. On other processors the weights that are drawn differ from those of x86 in their last bits."""
    made = Path(shutil.copytree(MADE, tmp_path / "run"))
    if not IS_X86:
        drawn_here = digest(value for _, value in named_tensors(untrained()))
        (made / "run.json").write_text(json.dumps({**written("run.json"), "weights": drawn_here}))
    return made


@pytest.fixture
def searched(finished: Path) -> Path:
    """The folder in its state between the two commands."""
    for name in AFTER_SEARCH:
        place = finished / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    (finished / "run.json").write_text(json.dumps({**written("run.json", finished), "recipe": None, "export": True}))
    return finished


def test_the_report_shows_it_without_complaint(finished: Path) -> None:
    code, _, err = run("report", finished)
    assert (code, err) == (0, "")
    page = (finished / "report.html").read_text()
    assert "Not everything could be read" not in page
    assert "90.2" in page  # percent of the parameters removed


def test_its_network_is_loaded_and_scores_the_same(finished: Path) -> None:
    network = aacp.load(finished)
    after = written("evaluation.json")["after"]
    assert sum(parameter.numel() for parameter in network.parameters()) == after["params"]
    code, out, _ = run("evaluate", finished, "--device", "cpu", "--json")
    found = json.loads(out)
    assert code == 0
    assert {name: found[name] for name in ("test", "holdout", "macs", "params", "activation_bytes")} == {
        name: after[name] for name in ("test", "holdout", "macs", "params", "activation_bytes")
    }
    assert found["weight_bytes"] <= 40_000  # a cost that the older evaluation.json does not have


@pytest.mark.skipif(not IS_X86, reason="the training began with weights that were drawn on x86")
def test_a_finished_run_is_finished(finished: Path) -> None:
    weights = (finished / "pruned.safetensors").read_bytes()
    code, out, err = run("finetune", finished, "--device", "cpu", "--no-export", "--json")
    assert code == 0, err
    assert json.loads(out)["after"] == written("evaluation.json")["after"]
    assert (finished / "pruned.safetensors").read_bytes() == weights


def test_a_searched_run_is_fine_tuned(searched: Path) -> None:
    code, out, err = run("finetune", searched, "--epochs", "1", "--device", "cpu", "--no-export", "--json")
    assert code == 0, err
    assert json.loads(out)["after"]["params"] == written("evaluation.json")["after"]["params"]
    assert (searched / "history.jsonl").read_bytes() == (MADE / "history.jsonl").read_bytes()


def test_an_interrupted_search_is_resumed_to_the_same_structure(searched: Path) -> None:
    """The command line limits the size of the file now; the earlier limit on the weights can be given in Python."""
    (searched / "structure.json").unlink()
    code, _, err = run("search", "digits_resnet", *SEARCH, "--run", searched)
    assert code == 1
    assert "limit on weight bytes: at most 40kB then, none now; limit on file size: none then, at most 40kB now" in err
    data = aacp.load_data("digits")
    plan = aacp.Plan(evaluations=10, pruning_step=0.25, calibration_images=64, recipe=None, reconstruction=None)
    limits = {"params": 0.9, "weight_bytes": "40kB"}
    found = aacp.find(untrained(), data, limits, searched, plan=plan, name="digits_resnet", device="cpu")
    assert list(found.structure) == written("structure.json")["counts"]


def test_another_request_is_rejected(finished: Path) -> None:
    code, _, err = run("search", "digits_resnet", *SEARCH, "--seed", "1", "--run", finished)
    assert code == 1
    assert "seed: 0 then, 1 now" in err
    assert "Repeat the earlier request, or choose another folder" in err


def test_a_function_that_was_recorded_by_its_bare_name_cannot_be_imported(searched: Path) -> None:
    request = {**written("run.json", searched), "recipe": None, "importance": "taylor"}
    (searched / "run.json").write_text(json.dumps(request))
    code, _, err = run("finetune", searched, "--epochs", "1", "--device", "cpu")
    assert code == 1
    assert "RunMismatch: The importance of this run is taylor" in err
    assert "Call aacp.prune again with it" in err
