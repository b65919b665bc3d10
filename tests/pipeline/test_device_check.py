"""A search with the table of another device delivers a check, which a second process with its own clock decides."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import aacp
from aacp.cli import main
from aacp.pipeline.pruned import Pruned
from latency.device_process import BOARD, run_on_device
from pipeline.device_run import RATE, SPEED, TRAINING, WHERE, device_plan, device_table, pruned_for_device

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return device_table(tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Pruned:
    return pruned_for_device(tmp_path_factory.mktemp("run") / "run", device_plan(table))


@pytest.fixture(scope="module")
def read(delivered: Pruned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run after its check, with the results beside it."""
    folder = tmp_path_factory.mktemp("read") / "run"
    shutil.copytree(delivered.folder.path, folder)
    assert aacp.check_from_results(folder, checked(folder, pruned_factor=0.9)).is_met
    return folder


@pytest.fixture
def run(delivered: Pruned, tmp_path: Path) -> Path:
    """A copy of the run before its check."""
    shutil.copytree(delivered.folder.path, tmp_path / "run")
    return tmp_path / "run"


def checked(run: Path, **options: Any) -> Path:
    """The results of the device for the check of a run, away from the run folder."""
    away = run.parent / "device"
    shutil.copytree(run / TRAINING / "check", away)
    ended = run_on_device(away, **{**SPEED, **options})
    assert ended.returncode == 0, ended.stderr
    return away / "results.json"


def at_the_limit(run: Path) -> dict[str, float]:
    """Options of a device on which the pruned network takes just as long as it may, with noise."""
    before, after = seconds_of(run)
    return {"pruned_factor": (1 - RATE) * before / after, "noise": 1.0}


def seconds_of(run: Path) -> list[float]:
    """The seconds of the original and of the pruned network on the device."""
    macs = [int((run / TRAINING / "check" / f"{name}.macs").read_text()) for name in ("original", "pruned")]
    return [SPEED["per_batch"] + SPEED["per_mac"] * count for count in macs]


def test_a_run_says_that_its_latency_is_predicted_and_delivers_a_check(delivered: Pruned, table: Path) -> None:
    (limit,) = delivered.choice.limits
    assert (limit.measured, limit.outcome) == (False, "to be checked on the device")
    lines = str(delivered).splitlines()
    (latency,) = [line for line in lines if line.startswith("latency")]
    assert latency.endswith("predicted, to be checked on the device")
    assert any(line.startswith("check on the device: copy ") and "aacp check" in line for line in lines)
    assert not any("faster" in line.lower() for line in lines)  # nothing was timed on this machine
    page = delivered.report.read_text()
    assert "is to be checked on the device" in page
    assert "missed" not in page
    assert '<span class="good">met</span>' not in page
    folder = delivered.training.path / "check"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["limit"] == {"pruning_rate": RATE, "at_most": None}
    (network,) = manifest["networks"]
    assert network["structure"] == list(delivered.choice.counts)
    for each in (manifest["original"], network):
        content = (folder / each["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == each["sha256"]
        assert content == (delivered.training.path / each["file"]).read_bytes()
    assert {file.name for file in folder.iterdir()} == {
        "manifest.json", "original.macs", "pruned.macs", "runner.py", "runner.sh", "SHA256SUMS",
    }  # fmt: skip


def test_a_table_that_cannot_decide_is_named_in_summary_and_report(table: Path, tmp_path: Path) -> None:
    data = json.loads(table.read_text())
    for run in data["held_out"]:
        run["whole"] *= 2  # every prediction is half of what was measured
    noisy = tmp_path / "noisy.json"
    noisy.write_text(json.dumps(data))
    with pytest.raises(aacp.InconclusiveMeasurement):
        pruned_for_device(tmp_path / "run", device_plan(noisy))
    noisy.write_text(json.dumps({**data, "accepts_noise": True}))
    found = pruned_for_device(tmp_path / "run", device_plan(noisy))
    problem = r"the median error is (49|50|51)\.\d%, at most 10% is allowed"
    doubted = rf", predicted by a table that cannot decide anything \({problem}\), to be checked on the device"
    assert re.search(doubted, str(found))
    doubted = rf"is to be checked on the device\. The latency table cannot decide anything: {problem}\."
    assert re.search(doubted, found.report.read_text())
    aacp.check_from_results(tmp_path / "run", checked(tmp_path / "run", pruned_factor=0.9))
    assert "cannot decide" not in str(found)  # since the device has
    assert "cannot decide" not in found.report.read_text()


@pytest.mark.parametrize(
    ("options", "outcome", "code"),
    [
        ({"pruned_factor": 0.9, "noise": 0.01}, "met", 0),
        ({"pruned_factor": 1.5, "noise": 0.01}, "missed", 1),
        (None, "too noisy to tell", 1),
    ],
)
def test_the_device_decides_whether_the_limit_is_met(run: Path, options, outcome: str, code: int) -> None:
    results = checked(run, **(options or at_the_limit(run)))
    ended = CliRunner().invoke(main, ["check", str(run), "--from", str(results), "--json"])
    assert ended.exit_code == code, ended.output
    record = json.loads(ended.stdout)
    assert record == json.loads((run / TRAINING / "device.json").read_text())
    found = aacp.check_from_results(run, results)
    assert (found.limit.outcome, found.machine) == (outcome, BOARD)
    page = (run / "report.html").read_text()
    assert "to be checked" not in page
    words = {"met": "is within its limit on a small board", "missed": "Limit missed", "too noisy to tell": "Too noisy"}
    assert words[outcome] in page
    again = CliRunner().invoke(main, ["check", str(run)])
    assert again.exit_code == 0  # every file is whole
    limits = [line for line in again.stdout.splitlines() if "latency: " in line]
    said = {"met": [], "missed": ["over the limit. To search"], "too noisy to tell": ["too noisy to tell. Run runner"]}
    assert len(limits) == len(said[outcome])
    assert all(words in line for words, line in zip(said[outcome], limits, strict=True))
    assert json.loads(CliRunner().invoke(main, ["check", str(run), "--json"]).stdout)["limits"] == limits


def test_a_limit_that_was_not_checked_yet_is_named(run: Path) -> None:
    found = CliRunner().invoke(main, ["check", str(run)])
    assert found.exit_code == 0
    line = found.stdout.splitlines()[-1]
    assert line.startswith(f"{TRAINING}: latency: ")
    assert line.endswith("predicted, to be checked on the device.")


def test_the_command_says_what_to_do_after_a_limit_that_is_not_met(run: Path) -> None:
    def said(**options: Any) -> list[str]:
        shutil.rmtree(run.parent / "device", ignore_errors=True)
        results = checked(run, **options)
        return CliRunner().invoke(main, ["check", str(run), "--from", str(results)]).stdout.splitlines()

    (line,) = said(pruned_factor=0.9)
    assert line.endswith("within the limit")
    line, advice = said(pruned_factor=1.5)
    assert line.endswith("over the limit")
    assert "with the latency.json of this run as --table and this run as --from" in advice
    line, advice = said(**at_the_limit(run))
    assert line.endswith("too noisy to tell")
    assert advice == "Run runner.py on the device again, with nothing else running there."


def test_the_results_are_found_in_their_folder(run: Path) -> None:
    results = checked(run, pruned_factor=0.9)
    assert aacp.check_from_results(run, results.parent) == aacp.check_from_results(run, results)


def test_the_measured_ratio_is_that_of_the_device(run: Path) -> None:
    found = aacp.check_from_results(run, checked(run, pruned_factor=0.9))
    before, after = seconds_of(run)
    assert found.limit.reached / found.limit.full == pytest.approx(0.9 * after / before, rel=0.01)
    assert found.limit.full == pytest.approx(before, rel=0.01)
    assert found.limit.bound == pytest.approx((1 - RATE) * found.limit.full)


def test_a_second_reading_replaces_the_first_and_the_run_resumes_with_it(run: Path, table: Path) -> None:
    first = checked(run, pruned_factor=1.5)
    assert not aacp.check_from_results(run, first).is_met
    slow = aacp.LatencyTable.load(run / "latency.json")
    shutil.rmtree(first.parent)
    aacp.check_from_results(run, checked(run, pruned_factor=0.9))
    fast = aacp.LatencyTable.load(run / "latency.json")
    assert [len(each.corrections) for each in (slow, fast)] == [1, 1]
    assert slow.corrections[0][1] == pytest.approx(fast.corrections[0][1] * 1.5 / 0.9, rel=0.01)
    again = pruned_for_device(run, device_plan(table))
    assert again.device_check is not None
    assert again.device_check.is_met
    assert f"on {BOARD} (file_simulator 1.0, 20 turns): within the limit" in str(again)
    assert "check on the device" not in str(again)


def test_a_damaged_check_is_noticed_and_written_again(run: Path, table: Path) -> None:
    results = checked(run)
    file = run / TRAINING / "check" / "pruned.macs"
    file.write_text("1")
    ended = CliRunner().invoke(main, ["check", str(run)])
    assert ended.exit_code == 1
    assert f"{TRAINING / 'check'}: damaged; the folder is written again" in ended.output
    pruned_for_device(run, device_plan(table))
    assert file.read_bytes() == (run / TRAINING / "pruned.macs").read_bytes()
    assert aacp.check_from_results(run, results).limit.measured  # the results still belong to it


def test_a_check_on_the_device_continues_until_the_limit_is_decided(run: Path) -> None:
    results = checked(run, **at_the_limit(run))
    turns = json.loads(results.read_text())["networks"]["pruned.macs"]["turns"]
    assert len(turns) == 320
    assert run_on_device(results.parent, **SPEED, pruned_factor=0.9).returncode == 0
    assert len(json.loads(results.read_text())["networks"]["pruned.macs"]["turns"]) == 20
    assert aacp.check_from_results(run, results).is_met


def test_the_device_refuses_another_version_before_it_measures(run: Path) -> None:
    ended = run_on_device(run / TRAINING / "check", **SPEED, version="2.0")
    assert ended.returncode == 1
    assert "The latency table is of file_simulator 1.0, but this is 2.0. Install that version" in ended.stderr


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"networks": {}}, aacp.RunMismatch, r"incomplete: 1 of 1 networks were not timed, pruned.macs .* Run runner"),
        ({"manifest": "0" * 64}, aacp.RunMismatch, "the networks or the limit were others. Run runner.py"),
        ({"version": "2.0"}, aacp.DeviceMismatch, "version '1.0', but .* version '2.0'. Run the check where"),
        ({"machine": "a laptop"}, aacp.DeviceMismatch, "machine 'a small board', but .* machine 'a laptop'"),
        ({"runtime": "ncnn"}, aacp.RunMismatch, "is of the runtime 'ncnn'"),
        (
            {"clock_resolution": 0.01},
            aacp.InconclusiveMeasurement,
            "steps by 0.01 s, .* less than 50 steps. Use",
        ),
        ({"kind": "table"}, aacp.RunMismatch, "of a latency table. Read them with aacp measure --from FILE"),
        ({"kind": "other"}, aacp.DamagedFile, "kind should be table or check, but is 'other'"),
    ],
)
def test_faulty_results_are_rejected_and_nothing_is_lost(read: Path, tmp_path: Path, change, error, words: str) -> None:
    before = {path: path.read_bytes() for path in read.rglob("*") if path.is_file()}
    results = json.loads((read.parent / "device" / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({**results, **change}))
    with pytest.raises(error, match=words):
        aacp.check_from_results(read, tmp_path / "results.json")
    assert {path: path.read_bytes() for path in read.rglob("*") if path.is_file()} == before


def test_times_of_another_file_are_rejected(read: Path, tmp_path: Path) -> None:
    results = json.loads((read.parent / "device" / "results.json").read_text())
    results["networks"]["pruned.macs"]["sha256"] = "0" * 64
    (tmp_path / "results.json").write_text(json.dumps(results))
    with pytest.raises(aacp.RunMismatch, match=r"times of another pruned.macs"):
        aacp.check_from_results(read, tmp_path / "results.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe"])
def test_results_that_are_not_json_are_rejected(read: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "results.json").write_bytes(content)
    ended = CliRunner().invoke(main, ["check", str(read), "--from", str(tmp_path / "results.json")])
    assert ended.exit_code == 1
    assert "is damaged" in ended.stderr
    assert "Copy results.json from the device again, or run runner.py there." in ended.stderr
    with pytest.raises(aacp.MissingFile):
        aacp.check_from_results(read, tmp_path / "missing.json")


def test_results_of_a_check_make_no_table_and_those_of_a_table_no_check(read: Path, table: Path) -> None:
    with pytest.raises(aacp.RunMismatch, match=r"checks one network. Read them with aacp check RUN --from FILE"):
        aacp.table_from_results(read.parent / "device" / "results.json")
    with pytest.raises(aacp.RunMismatch, match=r"of a latency table. Read them with aacp measure --from FILE"):
        aacp.check_from_results(read, table.parent / "networks" / "results.json")


def test_a_run_that_was_measured_here_has_no_check(read: Path, run: Path) -> None:
    shutil.rmtree(run / TRAINING / "check")
    with pytest.raises(aacp.RunMismatch, match="has no folder check"):
        aacp.check_from_results(run, read.parent / "device" / "results.json")


def test_a_table_of_another_deployment_and_steps_by_timing_are_rejected(table: Path, tmp_path: Path) -> None:
    other = device_plan(table, pruning_step="auto")
    threads = replace(device_plan(table), deployment=replace(WHERE, threads=2))
    with pytest.raises(aacp.DeviceMismatch, match="with threads 1, but threads 2 is requested"):
        pruned_for_device(tmp_path / "threads", threads)
    with pytest.raises(aacp.InvalidOption, match="The step auto is found by timing here"):
        pruned_for_device(tmp_path / "auto", other)


def test_without_an_export_the_summary_says_that_there_is_no_check(table: Path, tmp_path: Path) -> None:
    found = pruned_for_device(tmp_path / "run", device_plan(table, export=False))
    assert "check on the device: not possible without the files of an export" in str(found)
    assert not (found.training.path / "check").exists()
