"""README.md shows what the demo prints."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aacp
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency
from pipeline import tiny_run
from test_shell_blocks import commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
NUMBER = re.compile(r"[-+]?\d([\d.,]*\d)?(\+cpu)?")


def test_its_commands_trust_a_run_of_functions_of_the_user() -> None:
    """README prunes my_file:build, which later commands on the run import."""
    given = commands(ROOT / "README.md")
    (run,) = {
        arguments[arguments.index("--run") + 1] for arguments in given if {"my_file:build", "--run"} <= {*arguments}
    }
    later = [arguments for arguments in given if arguments[0] in ("finetune", "scratch", "evaluate")]
    assert later == [["finetune", run, "--trust"]]


def printed_by_the_demo() -> list[str]:
    """The lines that README shows of `make demo`."""
    found = re.search(r"`make demo` removes[^`]*```\n(.*?)\n```", README, flags=re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_the_lines_that_are_shown_are_those_that_the_demo_printed() -> None:
    """The raw output has the command, the versions and the hardware first, and the names of files that README omits."""
    printed = (ROOT / "benchmarks" / "results" / "demo.txt").read_text()
    result = printed.partition("one to three minutes\n\n")[2].splitlines()
    names = ("network: ", "ONNX: ", "report: ")
    assert printed_by_the_demo() == [line for line in result[:-1] if not line.startswith(names)]


def forms(lines: list[str]) -> list[str]:
    """Lines without their numbers, and lists of any length as the same text."""
    return [re.sub(r"#(, #)+", "#", NUMBER.sub("#", line)) for line in lines]


@pytest.mark.slow
def test_the_demo_prints_lines_of_the_form_that_is_shown(tmp_path: Path) -> None:
    found = tiny_run.pruned(tmp_path, budget={"macs": 0.4, "params": 0.3})
    times = (Latency(0.002, 0.002, 0.002), Latency(0.001, 0.001, 0.001))
    timings = tuple(
        BeforeAfter(name, "CPU", 16, 20, *times, 2, 2, 2)
        for name in ("torch 2.13.0+cpu, 1 thread", "ONNX Runtime 1.31.1, 1 thread")
    )
    timed = replace(found, exported=ExportRecord(18, 0.0, 10, 5, timings))
    lines = [line for line in str(timed).splitlines() if not line.startswith(("network:", "ONNX:", "report:"))]
    assert forms(printed_by_the_demo()) == forms(lines)


@pytest.mark.slow
def test_the_numbers_that_are_shown_are_those_of_the_kept_channels() -> None:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    network = demo.network()
    graph = aacp.trace(network, torch.zeros(1, 1, 8, 8))
    shown = dict(line.split(": ", 1) for line in printed_by_the_demo())
    kept = aacp.Structure([int(count) for count in re.findall(r"\d+", shown["kept"])])
    for name in ("macs", "params", "channel_count", "weight_bytes", "activation_bytes"):
        cost = getattr(aacp, name)(graph)
        assert shown[name].startswith(f"{cost.full:,.0f} -> {cost(kept):,.0f} {cost.unit} (")
    for name, rate in demo.BUDGET.items():
        most = float(re.search(r"at most ([\d,]+)", shown[name])[1].replace(",", ""))
        assert most == pytest.approx((1 - rate) * getattr(aacp, name)(graph).full, abs=1)
