"""Files are written as a whole, through no link, and an error leaves everything as it was."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aacp.disk.folders import create_folder
from aacp.disk.locking import locked
from aacp.disk.writing import (
    TEMPORARY,
    append_line,
    move_file,
    remove_file,
    remove_folder,
    remove_leftovers,
    replace_file,
    replacing,
    require_place,
    temporary_folder,
)
from aacp.errors import DiskError, RunMismatch

PRECIOUS = "do not lose this"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the user, outside of the folder `run`, which exists."""
    (tmp_path / "run").mkdir()
    (tmp_path / "precious").write_text(PRECIOUS)
    return tmp_path / "precious"


# -- whole files -----------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(path.parent) == {"file"}
    assert oct(path.stat().st_mode & 0o777) == oct(0o666 & ~_umask())


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_name_as_long_as_the_system_allows_can_be_written(tmp_path: Path) -> None:
    replace_file(tmp_path / ("x" * 255), b"1")
    append_line(tmp_path / ("y" * 255), b"1")
    assert names(tmp_path) == {"x" * 255, "y" * 255}


def test_temporary_names_are_different_each_time_and_planted_ones_are_not_used(precious: Path) -> None:
    run = precious.parent / "run"
    seen = set()
    for _ in range(3):
        with replacing(run / "file") as file:
            file.write(b"1")
            (found,) = {name for name in names(run) if TEMPORARY.fullmatch(name)}
            assert re.fullmatch(r"\.file\.[0-9a-f]{16}\.part", found)
            seen.add(found)
    assert len(seen) == 3
    (run / f".file.{os.getpid()}").symlink_to(precious)  # the name that earlier versions used
    replace_file(run / "file", b"2")
    assert precious.read_text() == PRECIOUS


def test_a_link_at_the_name_of_a_file_is_replaced_and_not_followed(precious: Path) -> None:
    link = precious.parent / "run" / "file"
    link.symlink_to(precious)
    replace_file(link, b"new")
    assert not link.is_symlink()
    assert (link.read_bytes(), precious.read_text()) == (b"new", PRECIOUS)


def test_a_link_in_the_place_of_a_log_is_rejected(precious: Path) -> None:
    link = precious.parent / "run" / "log"
    link.symlink_to(precious)
    with pytest.raises(DiskError, match=r"log cannot be written: .*a link stands in its place"):
        append_line(link, b"new")
    assert precious.read_text() == PRECIOUS


def test_a_log_with_another_name_is_copied_before_it_grows(precious: Path) -> None:
    log = precious.parent / "run" / "log"
    os.link(precious, log)
    append_line(log, b"new")
    assert precious.read_text() == PRECIOUS
    assert log.read_bytes() == b"new\n"  # the text had no end of line, so it was an incomplete line


@pytest.mark.parametrize("writing", [lambda path: replace_file(path, b"x"), lambda path: append_line(path, b"x")])
def test_a_linked_folder_inside_a_locked_one_is_not_entered(precious: Path, writing: Callable[[Path], None]) -> None:
    run = precious.parent / "run"
    other = precious.parent / "other"
    other.mkdir()
    (run / "trainings").symlink_to(other)
    with locked(run):
        for inside in ("trainings/file", "trainings/deeper/file"):
            with pytest.raises(DiskError, match="a link stands in its place"):
                writing(run / inside)
    assert names(other) == set()


def test_a_pipe_or_a_folder_in_the_place_of_a_log_is_rejected_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DiskError, match="is a pipe, not a file"):
        append_line(tmp_path / "pipe", b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DiskError, match="A folder stands in the place"):
        append_line(tmp_path / "folder", b"x")
    assert names(tmp_path) == {"pipe", "folder"}


def test_a_pipe_a_device_or_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for name, kind in {"pipe": "a pipe", "folder": "a folder"}.items():
        with pytest.raises(DiskError, match=f"{name} is {kind}, not a file"):
            replace_file(tmp_path / name, b"x")
        with pytest.raises(DiskError, match=f"{name} is {kind}, not a file"):
            move_file(tmp_path / "file", tmp_path / name)
    assert names(tmp_path) == {"pipe", "folder", "file"}
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the root user could replace a device")
def test_a_device_is_not_replaced_by_the_root_user(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no right to make a device")
    with pytest.raises(DiskError, match="null is a device, not a file"):
        replace_file(device, b"x")
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_a_name_that_the_system_does_not_accept_is_a_disk_error(tmp_path: Path, name: str) -> None:
    for writing in (append_line, replace_file):
        with pytest.raises(DiskError, match="Choose "):
            writing(tmp_path / name, b"x")


def test_a_path_that_cannot_be_replaced_is_rejected_before_the_work(tmp_path: Path) -> None:
    require_place(tmp_path / "new" / "table.json")
    replace_file(tmp_path / "file", b"x")
    require_place(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x"
    os.mkfifo(tmp_path / "pipe")
    for name, kind in {"new": "a folder", "pipe": "a pipe"}.items():
        with pytest.raises(DiskError, match=f"{name} is {kind}, not a file"):
            require_place(tmp_path / name)


# -- errors of the system --------------------------------------------------------------------------------------------


def failing(number: int) -> Callable[..., Any]:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["fsync", "rename", "open", "mkdir"])
@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "No space left on device. Make room"),
        (errno.EDQUOT, "Make room"),
        (errno.EROFS, "Read-only file system. Allow writing"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_an_error_at_any_call_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, remedy: str
) -> None:
    (tmp_path / "file").write_text("old")
    target = tmp_path / "new" / "file" if call == "mkdir" else tmp_path / "file"
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(DiskError, match=remedy) as raised:
        replace_file(target, b"new")
    monkeypatch.undo()
    assert str(target) in str(raised.value)
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == {"file"}


def test_an_error_in_the_block_leaves_the_old_file_and_is_not_renamed(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file") as file:
        file.write(b"half" * (1 // 0))
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == {"file"}


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_the_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    append_line(log, b"first")
    write = os.write
    calls: list[int] = []

    def write_half(descriptor: int, content: bytes) -> int:
        calls.append(len(content))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(DiskError, match="No space left on device"):
        append_line(log, b"second")
    monkeypatch.undo()
    assert log.read_bytes() == b"first\n"


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_is_a_disk_error_of_the_real_system(tmp_path: Path) -> None:
    code = (
        "import os, resource, signal, sys\n"
        "from aacp.disk.writing import append_line, replace_file\n"
        "from aacp.errors import DiskError\n"
        "os.chdir(sys.argv[1])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "replace_file('file', b'old'); append_line('log', b'first')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "for writing in (replace_file, append_line):\n"
        "    try: writing('file' if writing is replace_file else 'log', b'x' * 100)\n"
        "    except DiskError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert found.stdout.count("File too large. Make room") == 2
    assert (tmp_path / "file").read_bytes() == b"old"
    assert (tmp_path / "log").read_bytes() == b"first\n"
    assert names(tmp_path) == {"file", "log"}


def test_file_and_folder_are_brought_to_the_disk_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def note_rename(*arguments: Any, **options: Any) -> None:
        calls.append("rename")
        rename(*arguments, **options)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    replace_file(tmp_path / "file", b"x")
    assert calls == ["file", "rename", "folder"]
    calls.clear()
    append_line(tmp_path / "log", b"x")
    append_line(tmp_path / "log", b"x")
    assert calls == ["file", "folder", "file"]


# -- logs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b"", b"half", b"x" * 3_000_000])
def test_an_incomplete_last_line_of_any_length_is_cut_off(tmp_path: Path, rest: bytes) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\n" + rest)
    append_line(log, b"three")
    assert log.read_bytes() == b"one\ntwo\nthree\n"
    log.write_bytes(rest)
    append_line(log, b"three\n")
    assert log.read_bytes() == b"three\n"


def test_a_line_is_added_without_reading_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 99 + b"\n" + b"y" * 99 + b"\n")
    os.truncate(log, 1 << 33)  # 8 GiB that take no place on the disk
    with log.open("rb+") as file:
        file.seek(-1, 2)
        file.write(b"\n")
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: read.append(arguments[1]) or pread(*arguments))
    append_line(log, b"line")
    assert log.stat().st_size == (1 << 33) + 5
    assert sum(read) <= 1 << 16


# -- folders and leftovers -------------------------------------------------------------------------------------------


def test_leftovers_of_killed_writers_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    inner = tmp_path / "trainings" / "finetuned"
    inner.mkdir(parents=True)
    (tmp_path / ".a.json.0123456789abcdef.part").write_text("dead")
    (inner / ".b.onnx.0123456789abcdef.part").mkdir()
    (inner / ".b.onnx.0123456789abcdef.part" / "half").write_text("dead")
    (tmp_path / "mine.part").write_text("of the user")
    with replacing(inner / "c") as file, temporary_folder(inner / "d") as folder:
        remove_leftovers(tmp_path)
        file.write(b"alive")
        (folder / "d").write_text("alive")
        move_file(folder / "d", inner / "d")
    assert names(tmp_path) == {"trainings", "mine.part"}
    assert names(inner) == {"c", "d"}
    assert ((inner / "c").read_text(), (inner / "d").read_text()) == ("alive", "alive")


def test_leftovers_of_earlier_versions_are_removed_and_files_of_the_user_stay(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    for name in (".run.json.4711", ".history.jsonl.4711", "training/.training.safetensors.4711", ".report.html.4711"):
        (tmp_path / name).write_text("dead")
    kept = {".notes.txt.4711", "run.json.4711", ".run.json.old", ".4711", ".json.4711"}
    for name in kept:
        (tmp_path / name).write_text("of the user")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == {"training", *kept}
    assert names(tmp_path / "training") == set()


def test_leftovers_behind_links_are_not_touched(precious: Path) -> None:
    run = precious.parent / "run"
    other = precious.parent / "other"
    other.mkdir()
    (other / ".a.0123456789abcdef.part").write_text("in another folder")
    (run / "link").symlink_to(other)
    (run / ".b.0123456789abcdef.part").symlink_to(precious)
    remove_leftovers(run)
    assert precious.read_text() == PRECIOUS
    assert names(other) == {".a.0123456789abcdef.part"}


def test_a_killed_writer_leaves_one_temporary_file_that_the_next_one_removes(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from aacp.disk.writing import replacing\n"
        "with replacing(os.path.join(sys.argv[1], 'file')) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert len(names(tmp_path)) == 1
    remove_leftovers(tmp_path)
    assert names(tmp_path) == set()


def test_a_folder_is_removed_without_following_links(precious: Path) -> None:
    run = precious.parent / "run"
    (run / "link").symlink_to(precious.parent)
    (run / "file").write_text("x")
    remove_folder(run)
    assert names(precious.parent) == {"precious"}
    remove_folder(run)
    (precious.parent / "linked").symlink_to(precious.parent)
    with pytest.raises(DiskError):
        remove_folder(precious.parent / "linked")
    assert precious.read_text() == PRECIOUS


def test_a_removed_link_leaves_what_it_led_to(precious: Path) -> None:
    link = precious.parent / "run" / "link"
    link.symlink_to(precious)
    remove_file(link)
    remove_file(link)
    assert not os.path.lexists(link)
    assert precious.read_text() == PRECIOUS


def test_a_file_in_the_place_of_a_folder_is_a_disk_error(precious: Path) -> None:
    with pytest.raises(DiskError, match="Not a directory"):
        create_folder(precious / "inside")
    with pytest.raises(DiskError, match="Not a directory"):
        replace_file(precious / "inside", b"x")


# -- a locked folder -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_written_to_a_folder_that_was_deleted_or_begun_anew_while_it_was_locked(
    tmp_path: Path, again: bool
) -> None:
    run = tmp_path / "run"
    create_folder(run)
    with locked(run):
        append_line(run / "log", b"mine")
        (run / "log").unlink()
        (run / ".lock").unlink()
        run.rmdir()
        if again:
            run.mkdir()
            (run / ".lock").touch()
        for path in (run / "log", run / "deeper" / "log"):
            for writing in (append_line, replace_file):
                with pytest.raises(RunMismatch, match=r"was deleted or replaced .* repeat the command"):
                    writing(path, b"mine")
    assert not again or names(run) == {".lock"}
    assert again or not run.exists()
