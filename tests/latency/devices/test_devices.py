"""Networks are timed by a second process with a clock of its own, and its results become a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.latency import job
from aacp.latency.devices import runner
from latency.device_process import run_on_device
from latency.simulator import SECONDS_PER_BATCH, SECONDS_PER_MAC, FileSimulator, count_macs

MODEL = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 4, 3)).eval()
EXAMPLE = torch.zeros(1, 3, 16, 16)
GRAPH = aacp.trace(MODEL, EXAMPLE)
SPACE = aacp.SearchSpace(GRAPH, 1 / 8)


def exported(folder: Path) -> Path:
    where = aacp.Deployment(FileSimulator(), "npu", threads=1)
    aacp.export_networks(MODEL, GRAPH, SPACE, where, example=EXAMPLE, folder=folder, structures=24, held_out=6)
    return folder


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = exported(tmp_path_factory.mktemp("device") / "networks")
    ended = run_on_device(folder, noise=0.01)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.slow
def test_the_table_of_a_device_predicts_its_seconds_and_states_its_error(timed: Path, tmp_path: Path) -> None:
    table = aacp.table_from_results(timed / "results.json")
    assert table.conditions.machine == "a small board"
    assert (table.conditions.runtime, table.conditions.version) == ("file_simulator", "1.0")
    assert (len(table.measured), len(table.held_out)) == (24, 6)
    assert table.error.rank_correlation > 0.9
    true = SECONDS_PER_BATCH + SECONDS_PER_MAC * count_macs(MODEL, EXAMPLE)
    assert table.reference == pytest.approx(true, rel=0.02)
    table.save(tmp_path / "table.json")
    loaded = aacp.LatencyTable.load(tmp_path / "table.json")
    assert loaded.cost(GRAPH).full == table.reference  # although this is another machine


def test_the_command_line_makes_the_table(timed: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    found = CliRunner().invoke(main, ["measure", "--from", str(timed / "results.json"), "--out", str(out), "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["setting"]["machine"] == "a small board"
    assert aacp.LatencyTable.load(out).elsewhere


@pytest.mark.slow
def test_an_interrupted_device_continues(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks")
    assert "the power was cut" in run_on_device(folder, loads=9).stderr
    first = json.loads((folder / "results.json").read_text())["networks"]
    assert len(first) == 8  # the ninth file that was opened, besides the original, was lost
    with pytest.raises(aacp.RunMismatch, match=r"incomplete: 22 of 30 networks were not timed, structure-008"):
        aacp.table_from_results(folder / "results.json")
    assert run_on_device(folder).returncode == 0
    whole = json.loads((folder / "results.json").read_text())["networks"]
    assert len(whole) == 30
    assert {name: whole[name] for name in first} == first


def changed(timed: Path, folder: Path, change: dict[str, Any]) -> Path:
    """Copies of the manifest and of the results with other values."""
    folder.mkdir()
    (folder / "manifest.json").write_bytes((timed / "manifest.json").read_bytes())
    results = {**json.loads((timed / "results.json").read_text()), **change}
    (folder / "results.json").write_text(json.dumps(results))
    return folder / "results.json"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"manifest": "0" * 64}, aacp.RunMismatch, "belongs to another manifest.json"),
        ({"runtime": "ncnn"}, aacp.RunMismatch, "is of the runtime 'ncnn'"),
        ({"clock_resolution": 0.01}, aacp.InconclusiveMeasurement, "steps by 0.01 s, .* less than 50 steps"),
        ({"clock_resolution": float("nan")}, aacp.DamagedFile, "is damaged"),
        ({"networks": []}, aacp.DamagedFile, r"networks should be an object, but is \[\]"),
        (
            {"networks": {"structure-000.macs": {"turns": "x"}}},
            aacp.DamagedFile,
            "structure-000.macs.sha256 is missing",
        ),
        ({"extra": 1}, aacp.DamagedFile, "the file has an unknown field 'extra'"),
    ],
)
def test_faulty_results_are_rejected(timed: Path, tmp_path: Path, change, error, words: str) -> None:
    with pytest.raises(error, match=words):
        aacp.table_from_results(changed(timed, tmp_path / "other", change))


def test_results_are_found_in_their_folder(timed: Path, tmp_path: Path) -> None:
    folder = changed(timed, tmp_path / "other", {}).parent
    found = CliRunner().invoke(main, ["measure", "--from", str(folder)])
    assert found.exit_code == 0, found.output
    assert found.stdout.endswith(f"table: {folder / 'latency.json'}\n")
    assert aacp.table_from_results(folder).reference == aacp.table_from_results(timed / "results.json").reference


@pytest.mark.parametrize("manifest", [None, "{", "{}"])
def test_results_without_their_folder_are_to_be_put_there(timed: Path, tmp_path: Path, manifest: str | None) -> None:
    (tmp_path / "results.json").write_bytes((timed / "results.json").read_bytes())
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    put = r"manifest.json( is damaged: .*)?\. Put results.json into the folder that was exported and timed: "
    with pytest.raises(aacp.UnreadableFile, match=put):
        aacp.table_from_results(tmp_path / "results.json")


def test_results_of_another_folder_are_to_be_put_into_their_own(timed: Path, tmp_path: Path) -> None:
    results = changed(timed, tmp_path / "other", {})
    (results.parent / "manifest.json").write_text((timed / "manifest.json").read_text() + "\n")
    with pytest.raises(aacp.RunMismatch, match=r"belongs to another manifest.json than .*\. Put results.json into"):
        aacp.table_from_results(results)


@pytest.mark.parametrize("given", ["", "results.json"])
def test_results_that_are_not_there_are_named(tmp_path: Path, given: str) -> None:
    with pytest.raises(aacp.MissingFile) as found:
        aacp.table_from_results(tmp_path / given)
    missing = tmp_path / "results.json"
    words = f"There is no file {missing}. Copy results.json from the device again, or run runner.py there."
    assert str(found.value) == words


def test_times_of_another_file_are_rejected(timed: Path, tmp_path: Path) -> None:
    networks = json.loads((timed / "results.json").read_text())["networks"]
    networks["structure-003.macs"]["sha256"] = "0" * 64
    with pytest.raises(aacp.RunMismatch, match=r"times of another structure-003.macs"):
        aacp.table_from_results(changed(timed, tmp_path / "other", {"networks": networks}))


@pytest.mark.slow
def test_the_runner_stops_at_a_file_that_was_changed(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks")
    (folder / "structure-000.macs").write_text("1")
    ended = run_on_device(folder)
    assert ended.returncode != 0
    assert "structure-000.macs is not the file of the manifest" in ended.stderr


@pytest.mark.slow
def test_a_noisy_device_gets_no_table_unless_it_is_accepted(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks")
    assert run_on_device(folder, noise=1000.0).returncode == 0
    with pytest.raises(aacp.InconclusiveMeasurement, match=r"Remove results.json on the device"):
        aacp.table_from_results(folder / "results.json")
    assert aacp.table_from_results(folder / "results.json", accept_noise=True).problem


@pytest.mark.slow
def test_samples_are_long_enough_for_a_coarse_clock(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks")
    assert run_on_device(folder, step=1e-3).returncode == 0
    results = json.loads((folder / "results.json").read_text())
    assert results["clock_resolution"] == pytest.approx(1e-3)
    aacp.table_from_results(folder / "results.json", accept_noise=True)


def test_a_call_that_is_interrupted_once_is_repeated_as_often_as_others() -> None:
    now = [0.0]
    lengths = iter([0.02, *[0.001] * 100])

    def call() -> None:
        now[0] += next(lengths)

    assert runner.repeats_of(call, lambda: now[0], sample=0.01) == pytest.approx(10, abs=1)


def test_the_runner_says_which_runtimes_it_does_not_know(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks")
    ended = subprocess.run(
        [sys.executable, "-I", str(folder / "runner.py")], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("runner.py cannot run files of file_simulator. Call its function measure")


@pytest.mark.slow
def test_a_shell_script_times_files_by_the_tool_of_a_runtime(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks")
    tool = tmp_path / "bench"
    tool.write_text('#!/bin/sh\nawk \'{ printf "%.9f\\n", 1e-4 + 1e-9 * $1 }\' "$1"\n')
    tool.chmod(0o755)
    environment = {**os.environ, "BENCH": str(tool), "VERSION": "7", "TURNS": "3", "RESOLUTION": "1e-9"}
    ended = subprocess.run(["sh", str(folder / "runner.sh")], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    table = aacp.table_from_results(folder / "results.json")
    assert table.conditions.version == "7"
    true = SECONDS_PER_BATCH + SECONDS_PER_MAC * count_macs(MODEL, EXAMPLE)
    assert table.reference == pytest.approx(true, rel=1e-3)


def test_a_runtime_without_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="has no files that could be timed elsewhere"):
        aacp.export_networks(MODEL, GRAPH, SPACE, aacp.Deployment("torch"), example=EXAMPLE, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_runtime_without_files_is_rejected_before_the_network_is_traced(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(job, "trace", lambda *_, **__: pytest.fail("traced"))
    arguments = ["measure", "digits_resnet", "--runtime", "torch", "--export-only", str(tmp_path / "new")]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 1
    assert "The runtime torch has no files that could be timed elsewhere. Use onnxruntime" in found.stderr


@pytest.mark.parametrize("arguments", [[], ["digits_resnet", "--from", "x"], ["--from", "x", "--export-only", "y"]])
def test_a_model_and_results_exclude_each_other(arguments: list[str]) -> None:
    found = CliRunner().invoke(main, ["measure", *arguments])
    assert found.exit_code == 2
    assert "Give either MODEL" in found.output
