"""benchmarks/search_pays.py, short_trainings.py and untrained.py: their commands, resuming, and what they report."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import aacp
from aacp.cli import main
from aacp.estimate.importance import unit_importance
from aacp.train.job import network_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
LATENCY = ["--rate", "0", "--latency-rate", "0.3", "--runtime", "latency.simulator:SIMULATOR", "--runs-on", "npu"]


@pytest.mark.extensive
@pytest.mark.slow
@pytest.mark.usefixtures("among_scripts")
def test_search_pays_under_a_limit_on_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simulated device, whose time for a batch is known: 0.1 ms, and 0.5 ns for each MAC with two threads."""
    import resumable
    import search_pays

    begun = []

    def run_here(_: object, words: list[str]) -> str:
        begun.append(words[3])
        main.main(words[3:], standalone_mode=False)
        return ""

    monkeypatch.setattr(resumable, "run_until_deadline", run_here)
    given = ["--smoke", "--arms", "uniform", "search", "--seeds", "0", *LATENCY, "--batch", "64", "--structures", "8"]
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["search_pays.py", *given, *places])
    with pytest.raises(SystemExit, match="False"):  # nothing is unfinished
        search_pays.main()
    assert begun == ["measure", "search", "search", "prune", "prune"]  # what is timed comes before all trainings
    result = json.loads((tmp_path / "search_pays_smoke.json").read_text())
    assert [row["arm"] for row in result["rows"]] == ["uniform", "search"]
    network = aacp.build_model("digits_resnet")
    full = 64 * aacp.macs(aacp.trace(network, torch.zeros(1, 1, 8, 8))).full
    for row in result["rows"]:
        seconds = [1e-4 + 0.5e-9 * share * full for share in (row["macs"], 1)]
        assert row["latency"] == pytest.approx(seconds[0] / seconds[1], rel=1e-6)
        assert 0.6 < row["latency"] <= 0.7
    assert [row["evaluations"] for row in result["rows"]] == [1, 6]


@pytest.mark.slow
@pytest.mark.usefixtures("among_scripts")
def test_search_pays_trains_a_global_ranking_as_the_other_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resumable
    import search_pays

    begun = []

    def run_here(_: object, words: list[str]) -> str:
        begun.append(words)
        if words[1] == "-m":
            main.main(words[3:], standalone_mode=False)
        else:
            monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
        return ""

    monkeypatch.setattr(resumable, "run_until_deadline", run_here)
    given = ["--smoke", "--arms", "uniform", "global-l1", "--seeds", "1", "--epochs", "1", "--device", "cpu"]
    called = ["search_pays.py", *given, "--runs", str(tmp_path), "--out", str(tmp_path)]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", called)
        with pytest.raises(SystemExit, match="False"):  # nothing is unfinished
            search_pays.main()
    assert len(begun) == 2  # what is finished is not run again
    _, ranked = json.loads((tmp_path / "search_pays_smoke.json").read_text())["rows"]
    assert (ranked["arm"], ranked["evaluations"]) == ("global-l1", 1)
    assert tuple(ranked["counts"]) == _widest_ranked(network_of("digits_resnet", None, seed=1), 0.5)
    places = [tmp_path / "uniform-1", tmp_path / "global-l1-1"]
    searches = [json.loads((place / "run.json").read_text()) for place in places]
    same = ("weights", "limits", "holdout_size", "importance", "reconstruction", "calibration_images", "seed")
    assert [searches[0][name] for name in same] == [searches[1][name] for name in same]
    trainings = [json.loads((place / "trainings/finetuned/training.json").read_text()) for place in places]
    assert {name for name, value in trainings[0].items() if trainings[1][name] != value} == {"command", "started"}


@pytest.mark.usefixtures("among_scripts")
def test_search_pays_takes_over_the_rows_of_an_earlier_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import search_pays

    begun = []
    monkeypatch.setattr(search_pays, "run", lambda _, arm, seed: begun.append((arm, seed)))
    called = ["search_pays.py", "--smoke", "--device", "cpu", "--runs", str(tmp_path), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", called)
    options = search_pays.arguments()
    row = {"arm": "search", "seed": 0, "test": 0.5, "seconds": None}
    about = {"command": "python search_pays.py", "versions": "torch", "hardware": {"gpu": "H200"}}
    earlier = search_pays.settings_of(options) | about | {"rows": [row]}
    file = tmp_path / "earlier.json"
    file.write_text(json.dumps(earlier))
    monkeypatch.setattr(sys, "argv", [*called, "--arms", "uniform", "search", "--known", str(file)])
    with pytest.raises(SystemExit, match="True"):  # three of four commands did nothing
        search_pays.main()
    assert begun == [("uniform", 0), ("uniform", 1), ("search", 1)]
    result = json.loads((tmp_path / "search_pays_smoke.json").read_text())
    assert result["rows"] == [{"measured_by": about, **row}]
    assert result["known"] == "earlier.json"
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--lr", "0.1", "--epochs", "7"])
    with pytest.raises(SystemExit, match=r"earlier.json has another epochs, lr\. Give the options that it was"):
        search_pays.main()


@pytest.mark.usefixtures("among_scripts")
@pytest.mark.parametrize(
    ("weights", "rate", "other"),
    [
        ("base.safetensors", ["--lr", "0.05"], ""),
        ("base.safetensors", [], "lr"),
        ("vgg16.safetensors", ["--lr", "0.05"], "weights"),
    ],
)
def test_rows_of_another_base_or_another_default_rate_are_not_taken_over(
    weights: str, rate: list[str], other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older results state neither: the base is in their command, and all trainings had the full rate by default."""
    import search_pays

    file = tmp_path / "earlier.json"
    words = ["--network", "vgg16", "--weights", "/folder/base.safetensors", "--data", "PATH", "--epochs", "30", *rate]
    monkeypatch.setattr(sys, "argv", ["search_pays.py", *words, "--device", "cpu", "--known", str(file)])
    options = search_pays.arguments()
    earlier = {
        name: value
        for name, value in search_pays.settings_of(options).items()
        if name not in ("lr", "images", "weights", "teacher_weights")
    }
    earlier["command"] = f"python search_pays.py --weights {weights} --epochs 30"
    row = {"arm": "search", "seed": 0}
    file.write_text(json.dumps(earlier | {"versions": "", "hardware": "", "rows": [row]}))
    if other:
        with pytest.raises(SystemExit, match=f"earlier.json has another {other}\\."):
            search_pays.known_rows(options)
    else:
        assert set(search_pays.known_rows(options)) == {("search", 0)}


@pytest.mark.usefixtures("among_scripts")
def test_search_pays_gives_each_arm_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    import search_pays

    given = ["--arms", "released", "released-scratch", "--recipe", "cifar10-finetune", "--scratch-recipe", "base"]
    given += ["--teacher", "digits_resnet", "--teacher-weights", __file__]
    monkeypatch.setattr(sys, "argv", ["search_pays.py", "--smoke", *given, "--epochs", "160"])
    options = search_pays.arguments()
    shared = {"method": "released", "scope": "paper", "evaluations": None, "teacher": "digits_resnet"}
    tuned, new = (search_pays.command(options, arm, 0)[4:] for arm in options.arms)
    found = [main.commands["prune"].make_context("prune", words).params for words in (tuned, new)]
    assert [{name: each[name] for name in shared} for each in found] == [shared, shared]
    assert [(each["recipe"], each["epochs"], each["scratch"]) for each in found] == [
        ("cifar10-finetune", 160, False),
        ("base", 320, True),
    ]


@pytest.mark.usefixtures("among_scripts")
def test_search_pays_trains_nothing_for_0_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import search_pays

    monkeypatch.setattr(sys, "argv", ["search_pays.py", "--smoke", "--arms", "search", "repaired", "--epochs", "0"])
    options = search_pays.arguments()
    for arm, reconstruction in (("search", "none"), ("repaired", "repair")):
        words = search_pays.command(options, arm, 0)[4:]
        found = main.commands["prune"].make_context("prune", words).params
        assert not found["training"]
        assert found["reconstruction"] == reconstruction
        assert search_pays.evaluation_of(options, arm, 0).parent.name == "untrained"
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--arms", "scratch"])
    with pytest.raises(SystemExit):
        search_pays.arguments()
    assert "need --epochs" in capsys.readouterr().err


@pytest.mark.usefixtures("among_scripts")
def test_search_pays_writes_each_row_when_its_command_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is lost before the last command ends loses no other."""
    import search_pays

    def end(options: argparse.Namespace, arm: str, seed: int) -> None:
        if arm == "search":
            raise ConnectionError("The machine is lost.")
        rows[arm, seed] = {"arm": arm, "seed": seed}

    rows: dict[tuple[str, int], dict[str, object]] = {}
    monkeypatch.setattr(search_pays, "run", end)
    monkeypatch.setattr(search_pays, "outcome", lambda _, arm, seed: rows.get((arm, seed)))
    given = ["--smoke", "--device", "cpu", "--seeds", "0", "--arms", "uniform", "search"]
    monkeypatch.setattr(sys, "argv", ["search_pays.py", *given, "--runs", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(ConnectionError):
        search_pays.main()
    assert json.loads((tmp_path / "search_pays_smoke.json").read_text())["rows"] == [{"arm": "uniform", "seed": 0}]


def _widest_ranked(network: torch.nn.Module, rate: float) -> tuple[int, ...]:
    """Of all thresholds on the l1-norms relative to the mean of their group, the counts with most MACs in the limit."""
    graph = aacp.trace(network.eval(), torch.zeros(1, 1, 8, 8))
    norms = unit_importance(network, graph, "l1")
    parts = [norms[graph.slice_of(group)] for group in graph.free]
    parts = [part / part.mean() for part in parts]
    cost = aacp.macs(graph)
    found = [tuple(max(1, int((part > least).sum())) for part in parts) for least in np.concatenate(parts)]
    return max((counts for counts in found if cost(counts) <= (1 - rate) * cost.full), key=cost)


@pytest.mark.slow
@pytest.mark.usefixtures("among_scripts")
def test_networks_of_search_pays_are_scored_before_their_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`aacp prune --no-training` with the same options delivers the same network and scores it."""
    import untrained

    weights = tmp_path / "base" / "weights.safetensors"
    digits = ["digits_resnet", "--data", "digits", "--seed", "1", "--device", "cpu"]
    main.main(["train", *digits, "--epochs", "1", "--run", str(weights.parent)], standalone_mode=False)
    expected = {}
    rows = []
    for arm, words in {"uniform": ["--method", "uniform"], "repaired": ["--importance", "obs"]}.items():
        run = tmp_path / arm
        words += ["--reconstruction", "repair" if arm == "repaired" else "none", "--evaluations", "2"]
        words += ["--calibration", "64", "--prune-macs", "0.5", "--weights", str(weights), "--run", str(run)]
        main.main(["prune", *digits, *words, "--no-training", "--no-export"], standalone_mode=False)
        found = json.loads((run / "structure.json").read_text())
        rows.append({"arm": arm, "seed": 1, "macs": 0.5, "params": 0.5, "estimate": found["score"]})
        rows[-1]["counts"] = found["counts"]
        after = json.loads((run / "trainings/untrained/evaluation.json").read_text())["after"]
        expected[arm] = (after["holdout"], after["test"])
    others = [{"arm": arm, "seed": 1} for arm in ("scratch", "modelopt")]
    result = tmp_path / "search_pays_digits_resnet_50_10_epochs.json"
    result.write_text(json.dumps({"network": "digits_resnet", "rows": [*rows, *others]}))
    words = [str(result), "--weights", str(weights), "--data", "digits", "--images", "64", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["untrained.py", *words, "--out", str(tmp_path)])
    untrained.main()
    written = json.loads((tmp_path / "untrained_digits_resnet_50.json").read_text())
    assert {row["arm"]: (row["holdout"], row["test"]) for row in written["rows"]} == expected
    uniform, repaired = (expected[arm][1] for arm in ("uniform", "repaired"))
    assert written["summary"]["repaired"] == {"test": [repaired], "above_uniform": [repaired - uniform]}


@pytest.mark.extensive
def test_search_pays_resumes_a_training_after_a_kill(tmp_path: Path) -> None:
    words = [sys.executable, str(FOLDER / "search_pays.py"), "--smoke", "--arms", "uniform", "--seeds", "0"]
    words += ["--epochs", "8", "--device", "cpu", "--runs", str(tmp_path), "--out", str(tmp_path)]
    log = tmp_path / "uniform-0" / "trainings" / "finetuned" / "training" / "log.jsonl"
    killed = subprocess.Popen(words, start_new_session=True)
    while killed.poll() is None and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)  # the benchmark and its command, as when a machine is taken away
    killed.wait()
    before = log.read_text().splitlines()
    assert 3 <= len(before) < 8
    subprocess.run(words, check=True)
    lines = log.read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 9))
    assert lines[: len(before) - 1] == before[:-1]  # the last epoch may have been logged but not saved
    (row,) = json.loads((tmp_path / "search_pays_smoke.json").read_text())["rows"]
    assert row["training_seconds"] == pytest.approx(sum(json.loads(line)["seconds"] for line in lines), abs=0.06)


@pytest.mark.usefixtures("among_scripts")
@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_command_that_fails_is_given_once_more(
    failures: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from resumable import run_once, seconds_of

    place = tmp_path / "command"
    code = "import pathlib, sys\nplace = pathlib.Path(sys.argv[1])\nplace.mkdir(exist_ok=True)\n"
    code += "number = len(list(place.iterdir()))\n(place / str(number)).touch()\n"
    code += f"if number < {failures}: raise SystemExit('too little memory')\n(place / 'end').touch()"
    options = argparse.Namespace(deadline=time.monotonic() + 100, at_once=1)
    run_once(options, place, place / "end", [sys.executable, "-c", code, str(place)])
    names = {0: {"0", "end"}, 1: {"0", "1", "end"}, 3: {"0", "1"}}
    assert {path.name for path in place.iterdir()} == names[failures]
    assert capsys.readouterr().out.count("failed:\ntoo little memory") == min(failures, 2)
    assert float(seconds_of(place).read_text()) > 0


@pytest.mark.usefixtures("among_scripts")
@pytest.mark.parametrize(
    ("script", "first", "second", "other"),
    [
        ("search_pays", "--weights a --recipe base", "--weights b --epochs 7 --recipe base", "epochs, weights"),
        ("search_pays", "--recipe base", "--recipe finetune", "recipe"),
        ("short_trainings", "--rate 0.5 --recipe base", "--rate 0.7 --recipe finetune", "rate"),
        ("short_trainings", "--teacher a --teacher-weights b", "--teacher a --teacher-weights c", "teacher a"),
        ("short_trainings", "--teacher a --teacher-weights b", "--teacher b --teacher-weights c", None),
        ("fig6", "--rates 0", "--rates 0 0.4 --lr 0.1", "lr"),
        ("fig6", "--weights /here/a", "--weights /there/a", None),
    ],
)
def test_a_folder_with_runs_of_other_settings_is_rejected(
    script: str, first: str, second: str, other: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished command does not run again, so that its result would be reported as that of the other settings."""
    module = importlib.import_module(script)
    monkeypatch.setattr(importlib.import_module("resumable"), "run_until_deadline", lambda *_: "")
    monkeypatch.setattr(module, "run_until_deadline", lambda *_: "", raising=False)
    ends = []
    for given in (first, second):
        places = ["--runs", str(tmp_path), "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [f"{script}.py", "--smoke", *given.split(), *places])
        with pytest.raises(SystemExit) as ended:
            module.main()
        ends.append(ended.value.code)
    rejected = f"{tmp_path} has runs with another {other}. Give another folder as --runs."
    assert ends == [True, rejected if other else True]


@pytest.mark.usefixtures("among_scripts")
def test_short_trainings_with_another_teacher_have_their_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    import short_trainings

    places, words = [], []
    monkeypatch.setattr(short_trainings, "run_once", lambda *given: words.append(given[-1]))
    monkeypatch.setattr(short_trainings.shutil, "copytree", lambda *_: None)
    for teacher in ([], ["--teacher", "resnet20", "--teacher-weights", __file__]):
        monkeypatch.setattr(sys, "argv", ["short_trainings.py", "--smoke", *teacher])
        options = short_trainings.arguments()
        job = ("plain", "digits-finetune", 1, 0.05, 0)
        places.append(short_trainings.place_of(options, job))
        short_trainings.train(options, job)
    assert places[0] != places[1]
    found = [main.commands["finetune"].make_context("finetune", ["tests", *each[5:]]).params for each in words]
    assert [each["teacher"] for each in found] == [None, "resnet20"]
