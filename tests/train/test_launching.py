"""Several processes: they train as well as one, and the loss of one is reported and can be repaired."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner

from aacp.cli import main
from aacp.errors import InvalidData, InvalidOption, WorkerFailed
from aacp.runs.files import LOG
from aacp.runs.folder import RunFolder
from aacp.train import launching
from aacp.train.fabric import make_fabric
from aacp.train.launching import run_in_processes
from aacp.workers.lifetime import Launcher
from ranks import PATIENCE, fails_in_one, free_port
from sampling import sampled

EPOCHS = 5
SETTINGS = ["--data", "digits", "--epochs", str(EPOCHS), "--device", "cpu", "--json"]


def arguments(folder: Path, processes: int) -> list[str]:
    return ["train", "digits_resnet", *SETTINGS, "--run", str(folder), "--processes", str(processes)]


def command(folder: Path, processes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "aacp.cli", *arguments(folder, processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def learned(folder: Path) -> list[dict[str, float]]:
    """Return the log of a run without the speed, the only part that may differ between equal runs."""
    speed = {"seconds", "images_per_second", "limit"}
    return [{key: line[key] for key in line.keys() - speed} for line in RunFolder(folder).read_log(LOG)]


@pytest.mark.slow
@pytest.mark.extensive
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
def test_two_processes_train_as_well_as_one_even_if_one_of_them_is_killed_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    process = command(tmp_path / "two", 2)
    log = tmp_path / "two" / LOG
    deadline = time.monotonic() + 180
    while not (log.exists() and len(log.read_text().splitlines()) >= 2):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 1, err
    assert "WorkerFailed: Process" in err
    assert f"it resumes from the last finished epoch in {tmp_path / 'two'}" in err
    assert "Traceback" not in err
    assert out == ""

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))  # fabric would set it, and leave it set
    again = CliRunner().invoke(main, arguments(tmp_path / "two", 2))
    said = capfd.readouterr().err
    assert again.exit_code == 0, again.output + said
    assert [line["epoch"] for line in RunFolder(tmp_path / "two").read_log(LOG)] == list(range(1, EPOCHS + 1))
    assert f"epoch {EPOCHS}/{EPOCHS}" in said
    assert f"epoch 1/{EPOCHS}" not in said  # it went on, it did not begin again
    for name, processes in [("one", 1), ("undisturbed", 2)]:
        monkeypatch.setenv("MASTER_PORT", str(free_port()))
        assert CliRunner().invoke(main, arguments(tmp_path / name, processes)).exit_code == 0
    assert learned(tmp_path / "two") == learned(tmp_path / "undisturbed")
    # Batch norms see half of each batch in two processes, so that losses differ by a few per cent from those of one.
    for alone, shared in zip(learned(tmp_path / "one"), learned(tmp_path / "two"), strict=True):
        assert shared["lr"] == alone["lr"]
        assert shared["loss"] == pytest.approx(alone["loss"], rel=0.1)


def test_what_cannot_be_launched_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="processes is 0"):
        run_in_processes(print, processes=0)
    with pytest.raises(InvalidOption, match="'gpu' is not a device"):
        make_fabric(device="gpu")
    with pytest.raises(InvalidOption, match=r"no CUDA device|100 GPUs"):
        make_fabric(device="cuda:99")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("moment", sampled(["training", "starting"], 2))
def test_the_workers_of_a_killed_launcher_end(tmp_path: Path, moment: str) -> None:
    process = command(tmp_path, 2)
    deadline = time.monotonic() + 180
    while not _is_reached(moment, process.pid, tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    started = workers(process.pid)
    assert len(started) == 2
    process.kill()
    process.communicate(timeout=180)  # which waits until nobody holds its pipes any more
    while any(is_running(worker) for worker in started) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_running(worker) for worker in started)
    assert len(RunFolder(tmp_path).read_log(LOG)) < EPOCHS  # they did not finish the training
    with RunFolder(tmp_path).lock():  # nor does any process that they started keep the folder
        pass


def _is_reached(moment: str, launcher: int, folder: Path) -> bool:
    """Whether both workers are starting, before they can look for their launcher, or have trained an epoch."""
    return len(workers(launcher)) == 2 if moment == "starting" else (folder / LOG).exists()


def is_running(process: int) -> bool:
    """Whether a process is there and not a zombie that nobody waited for."""
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "error", "expected", "words"),
    sampled(
        [
            (
                1,
                KeyError("a mistake in a loss"),
                WorkerFailed,
                "^Process 1 of 2 failed: KeyError: 'a mistake in a loss'",
            ),
            (1, InvalidData("This rank cannot read its data. Correct them."), InvalidData, "^This rank cannot read"),
            (0, InvalidData("This rank cannot read its data. Correct them."), InvalidData, "^This rank cannot read"),
        ],
        2,
    ),
)
def test_an_error_in_one_process_ends_the_others_and_is_raised(
    failing: int, error: Exception, expected: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    begun = time.monotonic()
    with pytest.raises(expected, match=words):
        run_in_processes(fails_in_one, failing, error, processes=2, device="cpu")
    assert time.monotonic() - begun < PATIENCE


def test_a_process_ends_its_group_when_its_work_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise threads of Gloo may abort it, at random, while Python ends."""
    monkeypatch.setattr(launching, "end_with", lambda _: None)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        errors = torch.multiprocessing.get_context("spawn").SimpleQueue()
        work = lambda _, given: (given, dist.is_initialized())  # noqa: E731
        found = launching._result(work, (7,), errors, Launcher(0), False, None, make_fabric("auto"))
        assert found == (7, True)
        assert not dist.is_initialized()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
