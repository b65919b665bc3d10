"""The programs that are copied to a device run the files of each runtime, in all their parts."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
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


def written_tool(path: Path, script: str) -> Path:
    """A benchmark tool that is a shell script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


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
    "ncnn": (
        "benchncnn",
        'echo "  timed.param  min =  0.01  max =  99.00  avg = $(awk "BEGIN { print 1e3 * $seconds }")" >&2',
    ),
}


@pytest.mark.parametrize("runtime", sampled(TOOLS, 4, pytest.mark.slow))
def test_the_shell_script_reads_the_report_of_a_benchmark_tool(tmp_path: Path, runtime: str) -> None:
    folder = exported_as(tmp_path / "networks", runtime)
    name, report = TOOLS[runtime]
    finding = 'for argument; do case "$argument" in *.macs | *.param) file=${argument#*=};; esac; done'
    seconds = f'seconds=$(awk \'{{ printf "%.9f", {SECONDS_PER_BATCH} + {SECONDS_PER_MAC} * $1 }}\' "$file")'
    written_tool(tmp_path / name, f"{finding}\n{seconds}\n{report}")
    ended = run_shell(folder, PATH=f"{tmp_path}:{os.environ['PATH']}", RESOLUTION="1e-8")
    assert ended.returncode == 0, ended.stderr
    table = aacp.table_from_results(folder / "results.json", accept_noise=True)
    assert (table.conditions.runtime, table.conditions.version) == (runtime, "7")
    true = SECONDS_PER_BATCH + SECONDS_PER_MAC * count_macs(MODEL, EXAMPLE)
    assert table.reference == pytest.approx(true, rel=1e-4)


PARAM = """7767517
4 4
Input            in0       0 1 in0 0=224 1=112 2=3
Input            in1       0 1 in1 0=9 1=8 11=7 2=6
Convolution      conv_0    1 1 in0 1 0=16 1=3 5=1
BinaryOp         add_0     2 1 1 in1 out0 0=0
"""


def test_the_shell_script_calls_benchncnn_with_shapes_and_without_numbers_of_16_bits(tmp_path: Path) -> None:
    folder = exported_as(tmp_path / "networks", "ncnn")
    manifest = json.loads((folder / "manifest.json").read_text())
    for network in (manifest["original"], *manifest["networks"]):
        (folder / network["file"]).write_text(PARAM)
    digest = hashlib.sha256(PARAM.encode()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  original.macs\n")
    tool = written_tool(tmp_path / "bench", f'echo "$@" > {tmp_path}/arguments\necho "x  avg =    2.50" >&2')
    ended = run_shell(folder, TOOL=str(tool), BATCHES="60")
    assert ended.returncode == 0, ended.stderr
    # Loops, threads, all cores, no GPU, no pauses: the order in which benchncnn's README lists them.
    arguments = "60 1 0 -1 0 param=timed.param shape=[224,112,3],[9,8,7,6]\n"
    assert (tmp_path / "arguments").read_text() == arguments
    head, rest = PARAM.splitlines()[:2], PARAM.splitlines()[2:]
    assert (folder / "timed.param").read_text().splitlines() == [*head, *(f"{line} 31=7" for line in rest)]
    timed = json.loads((folder / "results.json").read_text())["networks"]["structure-000.macs"]
    assert timed["turns"] == [[0.0025, 0.0025]] * 3


def test_the_shell_script_needs_only_the_commands_that_the_page_lists(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "devices.md").read_text()
    listed = re.findall(r"a POSIX shell and `([a-z0-9 ]+)`", page)[0].split()
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in listed:
        (commands / name).symlink_to(str(shutil.which(name)))
    folder = exported_as(tmp_path / "networks", "ncnn")
    assert all(re.search(rf"\b{name} ", (folder / "runner.sh").read_text()) for name in listed)
    tool = written_tool(folder / "bench", 'echo "x  avg =    2.50" >&2')
    environment = {"PATH": str(commands), "VERSION": "7", "TURNS": "2", "TOOL": f"./{tool.name}"}
    program = [str(shutil.which("sh")), str(folder / "runner.sh")]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert aacp.table_from_results(folder / "results.json", accept_noise=True).reference == 0.0025


@pytest.mark.slow
def test_ncnn_runs_what_the_shell_script_gives_to_benchncnn_in_float32(tmp_path: Path) -> None:
    ncnn = pytest.importorskip("ncnn")
    pytest.importorskip("pnnx")
    folder = exported(tmp_path / "networks", aacp.Deployment("ncnn", threads=1))
    tool = written_tool(tmp_path / "bench", 'echo "x  avg =    2.50" >&2')
    assert run_shell(folder, TOOL=str(tool), TURNS="1").returncode == 0
    image = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0)).numpy()

    def output(name: str, **options: bool) -> Any:
        net = ncnn.Net()
        for option, value in options.items():
            setattr(net.opt, option, value)
        assert net.load_param(str(folder / name)) == 0
        assert net.load_model(str(folder / "structure-002.bin")) == 0  # the last one that was timed
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(image).clone())
        return torch.tensor(extractor.extract("out0")[1].numpy().copy())

    halves = {f"use_{name}": True for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage")}
    exact = output("structure-002.param", **dict.fromkeys(halves, False))
    assert (output("structure-002.param", **halves) - exact).abs().max() > 1e-4 * exact.abs().max()
    assert torch.equal(output("timed.param", **halves), exact)


def turns_in(folder: Path) -> list[list[list[float]]]:
    """The turns of every network in the results."""
    return [found["turns"] for found in json.loads((folder / "results.json").read_text())["networks"].values()]


def test_the_shell_script_times_a_folder_anew_that_replaces_another(tmp_path: Path) -> None:
    def bench(seconds: str) -> str:
        return str(written_tool(tmp_path / "bench", f"echo {seconds}"))

    folder = exported(tmp_path / "networks", aacp.Deployment(FileSimulator(), "npu", threads=1))
    assert run_shell(folder, BENCH=bench("1"), TURNS="1").returncode == 0
    assert run_shell(folder, BENCH=bench("2"), TURNS="2").returncode == 0
    assert all(turns == [[1, 1], [2, 2]] for turns in turns_in(folder))  # the same networks: one more turn
    (folder / "results.json").unlink()
    assert run_shell(folder, BENCH=bench("3"), TURNS="2").returncode == 0
    assert all(turns == [[3, 3], [3, 3]] for turns in turns_in(folder))  # to be measured again
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")  # that of another folder
    assert run_shell(folder, BENCH=bench("4"), TURNS="2").returncode == 0
    assert all(turns == [[4, 4], [4, 4]] for turns in turns_in(folder))
    assert run_shell(folder, BENCH=bench("5"), TURNS="2", VERSION="8").returncode == 0
    assert all(turns == [[5, 5], [5, 5]] for turns in turns_in(folder))


def test_the_shell_script_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks", aacp.Deployment(FileSimulator(), "npu", threads=1))
    once = written_tool(
        tmp_path / "bench", "n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count; [ $n -lt 4 ] && echo 1"
    )
    assert run_shell(folder, BENCH=str(once), TURNS="2").returncode != 0
    assert not (folder / "results.json").exists()
    assert run_shell(folder, BENCH=str(written_tool(tmp_path / "bench", "echo 2")), TURNS="2").returncode == 0
    assert turns_in(folder)[0] == [[1, 1], [1, 1]]


def test_both_runners_name_the_machine_alike(tmp_path: Path) -> None:
    folder = exported(tmp_path / "networks", aacp.Deployment(FileSimulator(), "npu", threads=1))
    assert run_shell(folder, BENCH=str(written_tool(tmp_path / "bench", "echo 1")), TURNS="1").returncode == 0
    by_shell = json.loads((folder / "results.json").read_text())["machine"]
    (folder / "results.json").unlink()
    assert run_on_device(folder, machine=None).returncode == 0
    assert json.loads((folder / "results.json").read_text())["machine"] == by_shell


def test_the_shell_script_names_what_it_cannot_do(tmp_path: Path) -> None:
    folder = exported_as(tmp_path / "networks", "litert")
    ended = run_shell(folder)
    assert ended.returncode == 1
    assert ended.stderr == (
        "runner.sh knows no benchmark tool of litert. Give a command that prints the seconds of one batch as BENCH.\n"
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
