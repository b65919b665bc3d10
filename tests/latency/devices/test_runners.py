"""The programs that are copied to a device run the files of each runtime, in all their parts."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.devices import runner
from latency.device_process import run_on_device
from latency.simulator import SECONDS_PER_BATCH, SECONDS_PER_MAC, FileSimulator, SimulatorFile, count_macs
from sampling import sampled

MODEL = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 4, 3)).eval()
EXAMPLE = torch.zeros(1, 3, 16, 16)
GRAPH = aacp.trace(MODEL, EXAMPLE)
SPACE = aacp.SearchSpace(GRAPH, 1 / 8)


class TwoParts(FileSimulator):
    """A runtime whose networks consist of two files."""

    name = "two_parts"

    def export(self, network: nn.Module, path: Path, example: Any) -> SimulatorFile:
        path.with_suffix(".weights").write_text(str(sum(value.numel() for value in network.parameters())))
        return super().export(network, path, example)


def exported(folder: Path, where: aacp.Deployment) -> Path:
    aacp.export_networks(MODEL, GRAPH, SPACE, where, example=EXAMPLE, folder=folder, structures=2, held_out=1)
    return folder


def exported_as(folder: Path, runtime: str) -> Path:
    """Files of a simulator under the name of another runtime, for a tool that reads them."""
    exported(folder, aacp.Deployment(FileSimulator(), "npu", threads=1))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "runtime": runtime}, indent=1))
    return folder


def run_shell(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "VERSION": "7", "TURNS": "3", **variables}
    return subprocess.run(["sh", str(folder / "runner.sh")], env=environment, capture_output=True, text=True)


def test_every_part_of_a_network_is_exported_and_hashed(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks", aacp.Deployment(TwoParts(), "npu", threads=1))
    manifest = json.loads((folder / "manifest.json").read_text())
    listed = {}
    for network in (manifest["original"], *manifest["networks"]):
        assert len(network["beside"]) == 1
        listed |= {network["file"]: network["sha256"], **network["beside"]}
    parts = [file for file in folder.iterdir() if file.suffix in (".macs", ".weights")]
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in parts} == listed
    assert len(parts) == 8


@pytest.mark.parametrize("run", [run_on_device, run_shell])
def test_both_runners_stop_at_a_part_that_was_changed(tmp_path: Path, run: Callable[[Path], Any]) -> None:
    folder = exported(tmp_path / "networks", aacp.Deployment(TwoParts(), "npu", threads=1))
    (folder / "structure-001.weights").write_text("1")
    ended = run(folder) if run is run_on_device else run_shell(folder, BENCH="echo 1")
    assert ended.returncode == 1
    assert "structure-001.weights" in ended.stderr
    assert "Copy the whole folder again." in ended.stderr


# What each tool prints about a file, given its seconds.
TOOLS = {
    "onnxruntime": ("onnxruntime_perf_test", 'echo "Session creation time cost: 1 s"; echo "P50 Latency: $seconds s"'),
    "openvino": ("benchmark_app", 'echo "[ INFO ]    Median:        $(awk "BEGIN { print 1e6 * $seconds }") us"'),
    "executorch": (
        "executor_runner",
        'echo "I x.cpp] Model executed successfully 50 time(s) in $(awk "BEGIN { print 5e4 * $seconds }") ms." >&2',
    ),
}


@pytest.mark.parametrize("runtime", sampled(TOOLS, 3, pytest.mark.slow))
def test_the_shell_script_reads_the_report_of_a_benchmark_tool(tmp_path: Path, runtime: str) -> None:
    folder = exported_as(tmp_path / "networks", runtime)
    name, report = TOOLS[runtime]
    finding = 'for argument; do case "$argument" in *.macs) file=${argument#--model_path=};; esac; done'
    seconds = f'seconds=$(awk \'{{ printf "%.9f", {SECONDS_PER_BATCH} + {SECONDS_PER_MAC} * $1 }}\' "$file")'
    tool = tmp_path / name
    tool.write_text(f"#!/bin/sh\n{finding}\n{seconds}\n{report}\n")
    tool.chmod(0o755)
    ended = run_shell(folder, PATH=f"{tmp_path}:{os.environ['PATH']}", RESOLUTION="1e-8")
    assert ended.returncode == 0, ended.stderr
    table = aacp.table_from_results(folder / "results.json", accept_noise=True)
    assert (table.conditions.runtime, table.conditions.version) == (runtime, "7")
    true = SECONDS_PER_BATCH + SECONDS_PER_MAC * count_macs(MODEL, EXAMPLE)
    assert table.reference == pytest.approx(true, rel=1e-4)


def test_the_shell_script_names_what_it_cannot_do(tmp_path: Path) -> None:
    folder = exported_as(tmp_path / "networks", "ncnn")
    ended = run_shell(folder)
    assert ended.returncode == 1
    assert ended.stderr == (
        "runner.sh knows no benchmark tool of ncnn. Give a command that prints the seconds of one batch as BENCH.\n"
    )
    ended = run_shell(exported_as(tmp_path / "others", "openvino"), TOOL="true")
    assert ended.returncode == 1
    assert "The tool printed no time for original.macs or structure-000.macs. Try it by hand" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "executorch", "ncnn"])
def test_the_runner_times_files_of_a_runtime(tmp_path: Path, runtime: str) -> None:
    if importlib.util.find_spec(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    where = aacp.Deployment(runtime, threads=1)
    folder = exported(tmp_path / "networks", where)
    program = [sys.executable, "-I", str(folder / "runner.py"), "--seconds", "0.01"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    table = aacp.table_from_results(folder / "results.json")
    assert (table.conditions.runtime, table.conditions.version) == (runtime, where.resolved_runtime.version)
    assert [run.structure for run in table.measured] == [SPACE.full.counts, SPACE.smallest.counts]
    assert all(run.whole > 0 for run in (*table.measured, *table.held_out))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [("7767517", "1", "ncnn cannot read"), ("out0", "result", "ncnn cannot run")],
    ids=["another format", "another output"],
)
def test_the_runner_stops_at_a_file_that_ncnn_cannot_run(tmp_path: Path, before: str, after: str, message: str) -> None:
    pytest.importorskip("ncnn")
    file = tmp_path / "network.param"
    aacp.Deployment("ncnn").resolved_runtime.export(MODEL, file, EXAMPLE)
    file.write_text(file.read_text().replace(before, after))
    with pytest.raises(SystemExit, match=message):
        runner.load_ncnn(str(file), [{"shape": list(EXAMPLE.shape), "dtype": "float32"}], 1)
