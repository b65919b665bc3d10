"""Options with odd values end with one sentence and exit code 1 or 2, and write nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from aacp.cli import main

LONG = "9" * 5000
TASK = ("digits_resnet", "--data", "digits", "--prune-macs", "0.5")
NUMBERS = ("nan", "inf", "-inf", "1e400", "-1", "", "x", LONG, "☃")


@pytest.mark.parametrize(
    "option",
    [
        "--step", "--holdout", "--evaluations", "--calibration", "--seed", "--batch", "--threads", "--epochs", "--lr",
        "--batch-size", "--processes", "--max-drop", "--prune-params", "--max-params", "--prune-macs", "--as",
        "--run", "--method", "--importance", "--scope", "--device", "--metric", "--loss", "--data",
    ],
)  # fmt: skip
def test_prune_rejects_odd_values(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in [""] if option in ("--as", "--run") else NUMBERS:  # all others are names of folders
        result = CliRunner().invoke(main, ["prune", *TASK, "--run", "run", f"{option}={value}"])
        assert result.exit_code in (1, 2), (value[:10], result.stderr)
        assert "Traceback" not in result.stderr, value[:10]
        assert max(map(len, result.stderr.split())) < 300, value[:10]
        assert not list(tmp_path.rglob("*.json")), value[:10]


def test_prune_rejects_a_zero_where_it_makes_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = (
        "--step", "--evaluations", "--proposals", "--screening", "--calibration", "--batch", "--threads", "--epochs",
        "--lr", "--batch-size", "--processes", "--finalists", "--max-params", "--max-latency",
    )  # fmt: skip
    for option in options:
        result = CliRunner().invoke(main, ["prune", *TASK, "--run", "run", f"{option}=0"])
        assert result.exit_code in (1, 2), option
        assert "0" in result.stderr.splitlines()[-1], option
        assert not list(tmp_path.rglob("*.json")), option


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "1e400", "1e9"])
def test_measure_rejects_a_time_that_is_not_one(value: str) -> None:
    result = CliRunner().invoke(main, ["measure", "digits_resnet", f"--seconds={value}"])
    assert (result.exit_code, "is not a number from" in result.stderr) == (2, True)


@pytest.mark.parametrize("value", ["99999999999x1", f"{10**400}x1x8x8", "1x1x99999x99999", "0x1", "", "1xx2"])
def test_an_input_that_does_not_fit_into_memory_is_rejected(value: str) -> None:
    result = CliRunner().invoke(main, ["trace", "digits_resnet", f"--input={value}"])
    assert (result.exit_code, "Traceback" in result.stderr) == (2, False)


@pytest.mark.parametrize(
    "command", [("fig3", "--seeds", "0"), ("fig3", "--iterations", "0"), ("search", "--seeds", "-1")]
)
def test_benchmarks_need_something_to_run(command: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, ["bench", *command]).exit_code == 2


@pytest.mark.parametrize("seeds", ["-1", "", "0.5", "nan", "0,,1", "0,0", str(2**80), LONG])
def test_repeat_rejects_odd_seeds(seeds: str, tmp_path: Path) -> None:
    given = ["repeat", f"--seeds={seeds}", "--run", str(tmp_path / "run"), "--", "search", *TASK]
    assert CliRunner().invoke(main, given).exit_code == 2
    assert not (tmp_path / "run").exists()


def test_a_folder_in_the_place_of_a_file_is_rejected_before_anything_is_done(tmp_path: Path) -> None:
    for command in (("measure", "digits_resnet"), ("export", str(tmp_path))):
        result = CliRunner().invoke(main, [*command, "--out", str(tmp_path)])
        assert (result.exit_code, "is a directory" in result.stderr) == (2, True)
