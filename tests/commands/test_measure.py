"""aacp measure on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import aacp
from aacp.cli import main
from aacp.commands.parameters import step
from aacp.latency.job import MeasurementJob
from aacp.latency.steps import FoundSteps
from latency.device_process import BOARD, run_on_device

SMALL = ["--input", "1x1x8x8", "--structures", "8", "--threads", "1", "--accept-noise"]


@pytest.mark.slow
def test_a_table_is_measured_saved_and_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = MeasurementJob.__init__

    def hurried(self, *args, **options) -> None:
        quick(self, *args, **options)
        object.__setattr__(self, "seconds_per_structure", 0.01)

    monkeypatch.setattr(MeasurementJob, "__init__", hurried)
    file = tmp_path / "table.json"
    measure = ["measure", "digits_resnet", *SMALL, "--runtime", "torch", "--out", str(file)]
    found = CliRunner().invoke(main, [*measure, "--json"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    table = aacp.LatencyTable.load(file)
    assert said["table"] == str(file)
    assert (said["seconds"], said["warning"]) == (table.reference, table.warning)
    assert said["problem"] == table.problem
    assert "18/18 structures" in found.stderr
    again = CliRunner().invoke(main, measure)
    assert again.exit_code == 0, again.output
    assert f"table: {file}" in again.stdout
    assert "18 of 18 structures were done before" in again.stderr
    other = CliRunner().invoke(main, [*measure, "--step", "0.5"])
    assert other.exit_code == 1
    assert "another network, space or setting" in other.output


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_a_device_is_measured_pruned_for_and_checked_by_commands_alone(tmp_path: Path) -> None:
    networks, table, run = (tmp_path / name for name in ("networks", "table.json", "run"))
    runtime = ["--runtime", "latency.simulator:FileSimulator", "--threads", "1"]
    made = command(
        "measure", "digits_resnet", *runtime, "--device", "npu", "--structures", "8", "--export-only", networks
    )
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[-1].endswith(f"then aacp measure --from {networks / 'results.json'}")
    assert run_on_device(networks).returncode == 0
    made = command("measure", "--from", networks / "results.json", "--out", table)
    assert made.exit_code == 0, made.output
    limit = ["--prune-latency", "0.3", *runtime, "--runs-on", "npu", "--table", table]
    quick = ["--no-training", "--reconstruction", "none", "--evaluations", "4", "--calibration", "64"]
    found = command("prune", "digits_resnet", "--data", "digits", *limit, *quick, "--run", run)
    assert found.exit_code == 0, found.output
    advice = f"check on the device: copy {run / 'trainings/untrained/check'} there, run its runner.py, then aacp check"
    assert advice in found.stdout
    away = shutil.copytree(run / "trainings" / "untrained" / "check", tmp_path / "check")
    assert run_on_device(away, pruned_factor=0.5).returncode == 0
    checked = command("check", run, "--from", away / "results.json")
    assert checked.exit_code == 0, checked.output
    assert f"on {BOARD} (file_simulator 1.0, 20 turns): within the limit" in checked.stdout


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--runtime", "tflite"], 1, "no runtime 'tflite'"),
        (["--runtime", "torch", "--device", "tpu"], 1, "no device 'tpu'"),
        (["--step", "nonsense"], 2, "is not a step"),
        (["--step", "1.5"], 2, "is not a step"),
        (["--threads", "0"], 2, "threads"),
        (["--input", "8x1x8x8"], 1, "is a batch of 8, but the batch size is 1"),
        (["--workers", "2"], 1, "cannot share a measurement"),
        (["--workers", "1", "--step", "auto"], 1, "The step auto is found by timing here"),
        (["--workers", "1", "--export-only", "networks"], 2, "Leave one of them out"),
    ],
)
def test_bad_options_are_one_line_and_an_exit_code(options: list[str], code: int, words: str) -> None:
    found = CliRunner().invoke(main, ["measure", "digits_resnet", *options])
    assert found.exit_code == code
    assert words in found.output


OF_A_MEASUREMENT_HERE = {
    "--runtime": "ncnn", "--device": "cpu", "--batch": "1", "--threads": "4", "--precision": "int8",
    "--input": "1x3x8x8", "--step": "0.5", "--frozen": "head", "--scope": "inner", "--structures": "20",
    "--seconds": "3",
}  # fmt: skip


def test_results_of_a_device_take_no_option_that_would_be_ignored(tmp_path: Path) -> None:
    for option, value in OF_A_MEASUREMENT_HERE.items():
        found = command("measure", "--from", tmp_path / "results.json", option, value)
        assert found.exit_code == 2
        assert found.stderr.endswith(
            f"{option} would be ignored: the results say what was timed and how. Give MODEL instead of --from, or "
            f"leave out {option}.\n"
        )


@pytest.mark.parametrize("option", [("--seconds", "3"), ("--accept-noise",), ("--out", "table.json")])
def test_an_export_takes_no_option_that_would_be_ignored(option: tuple[str, ...], tmp_path: Path) -> None:
    found = command("measure", "digits_resnet", "--export-only", tmp_path / "networks", *option)
    assert found.exit_code == 2
    assert f"{option[0]} would be ignored: nothing is timed yet; runner.py takes --seconds" in found.stderr
    assert not (tmp_path / "networks").exists()


@pytest.mark.slow
def test_steps_that_timing_did_not_decide_are_named_also_if_they_were_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[FoundSteps] = []

    def discover(model: object, graph: aacp.ChannelGraph, *_: object, **__: object) -> FoundSteps:
        names = [group.name for group in graph.free]
        found.append(FoundSteps(dict.fromkeys(names, 8), names[:2]))
        return found[-1]

    monkeypatch.setattr("aacp.latency.job.discover_steps", discover)
    runtime = ["--runtime", "latency.simulator:Simulator", "--device", "npu", "--step", "auto"]
    for _ in range(2):
        said = command("measure", "digits_resnet", *SMALL, *runtime, "--out", tmp_path / "table.json")
        assert said.exit_code == 0, said.output
        assert f"table.json.steps: {found[0].note}" in said.stderr
        assert "timing did not decide the steps of 2 of " in said.stderr
    assert len(found) == 1
    steps = tmp_path / "table.json.steps"
    steps.write_text(steps.read_text().replace('"npu"', '"gpu"'))
    said = command("measure", "digits_resnet", *SMALL, *runtime, "--out", tmp_path / "table.json")
    assert said.exit_code == 1
    assert "table.json.steps holds steps of another network or setting. Remove it" in said.stderr


def test_a_step_is_a_share_channels_or_auto() -> None:
    assert [step(text) for text in ("0.125", "8", "auto")] == [0.125, 8, "auto"]
