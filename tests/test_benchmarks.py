"""The scripts in benchmarks start, and the options and names of aacp that they and the documents use exist."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import aacp
from aacp.cli import main

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
DOCUMENTS = "".join(path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), FOLDER / "gpu.sh"))
OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*(?![\w{=-])")  # not those of other programs, which have a value after =
OPTIONS_OF_AACP = {
    option
    for command in main.commands.values()
    for parameter in command.params
    for option in (*parameter.opts, *parameter.secondary_opts)
}
SCRIPTS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.accelerated] * ("aacp.accelerate" in path.read_text()))
    for path in sorted(FOLDER.glob("*.py"))
]


@pytest.fixture
def _among_scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let scripts import each other, and forget them after: some have the names of folders of tests."""
    monkeypatch.syspath_prepend(str(FOLDER))
    known = set(sys.modules)
    with patch.dict(os.environ):
        yield
    for name in {path.stem for path in FOLDER.glob("*.py")} - known:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_among_scripts")
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_starts_and_knows_the_options_and_names_that_are_used(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script.read_text()
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    is_command = '__name__ == "__main__"' in text  # the others are only imported
    with pytest.raises(SystemExit, match=r"^0$") if is_command else nullcontext():
        runpy.run_path(str(script), run_name="__main__")
    own = set(OPTION.findall(capsys.readouterr().out))
    commands = re.findall(rf"python benchmarks/{script.name}((?:[^\n`]|\n {{8}})*)", text + DOCUMENTS)
    assert set(OPTION.findall(" ".join(commands))) <= own
    assert set(OPTION.findall(text)) <= own | OPTIONS_OF_AACP
    attributes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    names = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "aacp"}
    assert {name for name in names if not hasattr(aacp, name)} == set()


def test_every_script_that_a_document_names_exists() -> None:
    named = set(re.findall(r"benchmarks/(\w+\.py)", DOCUMENTS))
    assert named - {path.name for path in FOLDER.glob("*.py")} == set()
    assert len(named) > 30


LATENCY = ["--rate", "0", "--latency-rate", "0.3", "--runtime", "latency.simulator:SIMULATOR", "--runs-on", "npu"]


@pytest.mark.slow
@pytest.mark.usefixtures("_among_scripts")
def test_search_pays_under_a_limit_on_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simulated device, whose time for a batch is known: 0.1 ms, and 0.5 ns for each MAC with two threads."""
    import search_pays

    begun = []

    def run_here(_: object, words: list[str]) -> str:
        begun.append(words[3])
        main.main(words[3:], standalone_mode=False)
        return ""

    monkeypatch.setattr(search_pays, "run_until_deadline", run_here)
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
