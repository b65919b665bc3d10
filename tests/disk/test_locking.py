"""One process at a time holds a folder, it is named, and its death frees the folder at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aacp.disk.locking import locked
from aacp.errors import DiskError, RunLocked

HOLD = """
import os, sys, time
from aacp.disk.locking import locked
reader, writer = os.pipe()
with locked(sys.argv[1]):
    if sys.argv[2] == "fork":
        if os.fork() == 0:
            os.write(writer, b"x")
            time.sleep(60)
            os._exit(0)
        os.read(reader, 1)  # the forked process runs
    print("locked", flush=True)
    time.sleep(60)
"""


def holder(folder: Path, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), how], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_the_holder_is_named_with_its_host_its_command_and_its_time(tmp_path: Path) -> None:
    process = holder(tmp_path, "alone")
    try:
        expected = rf"{tmp_path}: process {process.pid} on \S+ since 20\d\d-\S+\+00:00, -c {tmp_path} alone\. Wait for"
        with pytest.raises(RunLocked, match=expected), locked(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_was_forked_off_keeps_no_lock_after_its_parent_is_killed(tmp_path: Path) -> None:
    process = holder(tmp_path, "fork")
    try:
        with pytest.raises(RunLocked), locked(tmp_path):
            pass
        process.kill()
        process.wait()
        with locked(tmp_path):  # the forked process sleeps for a minute
            pass
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_program_that_the_holder_starts_inherits_no_lock(tmp_path: Path) -> None:
    with locked(tmp_path):
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with locked(tmp_path):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()


def test_the_end_of_a_forked_process_does_not_free_the_lock_of_its_parent(tmp_path: Path) -> None:
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(RunLocked), locked(tmp_path):
            pass


def test_a_free_lock_file_says_nothing_about_earlier_holders(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert f'"pid": {os.getpid()}' in (tmp_path / ".lock").read_text()
    assert (tmp_path / ".lock").read_text() == ""


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b"{}", b'{"pid": 1}', b"[" * 4000])
def test_a_holder_that_cannot_be_read_is_not_needed(tmp_path: Path, content: bytes) -> None:
    with locked(tmp_path):
        (tmp_path / ".lock").write_bytes(content)
        with pytest.raises(RunLocked, match="has not recorded which one it is"), locked(tmp_path):
            pass


def test_signs_that_control_a_terminal_are_not_printed(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / ".lock").write_text('{"pid": 1, "host": "\\u001b[31m", "started": "", "command": "\\u0007"}')
        with pytest.raises(RunLocked) as raised, locked(tmp_path):
            pass
    assert str(raised.value).isprintable()


def test_a_link_a_folder_or_a_pipe_in_the_place_of_the_lock_is_rejected_and_left(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name, make in {
        "link": lambda path: path.symlink_to(precious),
        "folder": Path.mkdir,
        "pipe": os.mkfifo,
    }.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / ".lock")
        with pytest.raises(DiskError, match=re.escape(str(tmp_path / name / ".lock"))), locked(tmp_path / name):
            pass
    assert precious.read_text() == "mine"


def test_another_name_of_the_lock_file_keeps_its_content(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    os.link(precious, tmp_path / "run" / ".lock")
    with locked(tmp_path / "run"):
        assert precious.read_text() == "mine"
    assert precious.read_text() == "mine"


def test_an_error_in_the_block_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):  # which does not wait: it would be rejected
        pass


@pytest.mark.parametrize("inside", ["run", "deep/er/run"])
def test_a_folder_in_which_nothing_was_written_is_removed_again(tmp_path: Path, inside: str) -> None:
    with locked(tmp_path / inside):
        assert (tmp_path / inside).is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / inside).mkdir(parents=True)
    with locked(tmp_path / inside):
        pass
    assert (tmp_path / inside).is_dir()
    with locked(tmp_path / "other" / "run"):
        (tmp_path / "other" / "run" / "file").write_text("x")
        (tmp_path / "other" / "mine").write_text("x")
    assert (tmp_path / "other" / "run" / "file").exists()


def test_a_linked_folder_inside_a_locked_one_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "run" / "training").symlink_to(tmp_path / "other")
    with locked(tmp_path / "run"), pytest.raises(DiskError, match="a link stands"), locked(tmp_path / "run/training"):
        pass
    assert list((tmp_path / "other").iterdir()) == []
