"""Errors of the operating system at any call that changes files: full disk, quota, input and output, permission."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.cases import Verdict
from faults.forker import Attempt, Ending, Forker
from faults.kills import compared
from faults.scenarios import Prepared

# The name of an errno, and whether all later calls fail too.
ERRORS = (("ENOSPC", True), ("EDQUOT", True), ("EIO", False), ("EROFS", True), ("EACCES", False), ("EMFILE", False))
FILE_SIZES = (64, 700, 3_000, 20_000, 1_000_000)  # largest files that the system allows: each stage hits one of them
DISK_SIZES = (16, 48, 96, 160, 1_000, 2_000)  # sizes of full disks in KiB; the report alone takes 2 MB
ANSWERS = ("DiskError", "InvalidOption", "UnreadableFile", "RunLocked", "RunMismatch")


def failed_and_resumed(prepared: Prepared, error: str, lasting: bool, at: int, place: Path, forker: Forker) -> Verdict:
    """Let calls of a scenario fail with an error, judge the answer, and run it again without the fault.

    Args:
        prepared: the scenario with its undisturbed results.
        error: the name of an errno.
        lasting: whether all later calls fail too.
        at: the number of the first call that fails, from 1.
        place: a new folder.
        forker: makes the processes.
    """
    prepared.copy(place)
    first = prepared.scenario.run(forker, place, error, at, lasting)
    wrong = answer_to_error(first)
    return wrong if wrong.word else compared(prepared, prepared.scenario.run(forker, place), place)


def too_large_and_resumed(prepared: Prepared, size: int, place: Path, forker: Forker) -> Verdict:
    """Let the system reject files above a size, which is a real failure in the middle of a write."""
    prepared.copy(place)
    scenario = prepared.scenario
    limited = Attempt(str(place), command=scenario.command, seconds=scenario.seconds, file_bytes=size)
    wrong = answer_to_error(forker.run(limited))
    return wrong if wrong.word else compared(prepared, scenario.run(forker, place), place)


def full_disk_and_resumed(prepared: Prepared, kilobytes: int, place: Path, forker: Forker) -> Verdict:
    """Run a scenario on a small disk, then enlarge the disk and run it again; needs the right to mount."""
    place.mkdir()
    with mounted(place, kilobytes):
        subprocess.run(["cp", "-a", f"{prepared.template}/.", str(place)], check=True)
        first = forker.run(Attempt(str(place), command=prepared.scenario.command, seconds=prepared.scenario.seconds))
        wrong = answer_to_error(first)
        if wrong.word:
            return wrong
        subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
        return compared(prepared, prepared.scenario.run(forker, place), place)


def forbidden_and_resumed(prepared: Prepared, place: Path, forker: Forker) -> Verdict:
    """Run a scenario as a user who may not write to its folder, then as one who may."""
    prepared.copy(place)
    _set_rights(place, folders=0o555, files=0o444)
    scenario = prepared.scenario
    first = forker.run(Attempt(str(place), command=scenario.command, seconds=scenario.seconds, as_nobody=True))
    _set_rights(place, folders=0o755, files=0o644)
    wrong = answer_to_error(first)
    if wrong.word:
        return wrong
    if first.code == 0:
        return Verdict("silent", "a folder without the right to write was accepted")
    return compared(prepared, scenario.run(forker, place), place)


def _set_rights(place: Path, folders: int, files: int) -> None:
    for each in [place, *place.rglob("*")]:
        each.chmod(folders if each.is_dir() else files)


@contextmanager
def mounted(place: Path, kilobytes: int) -> Iterator[None]:
    """A disk of this size at a place."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def can_mount(place: Path) -> bool:
    """Whether this process may mount disks."""
    if os.getuid() != 0:
        return False
    place.mkdir(parents=True, exist_ok=True)
    tried = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(place)], capture_output=True)
    if tried.returncode == 0:
        subprocess.run(["umount", str(place)], check=True)
    return tried.returncode == 0


def answer_to_error(ending: Ending) -> Verdict:
    """An error of the system must be explained, or stand in the way of nothing but the report."""
    if ending.timed_out:
        return Verdict("hang", "no answer")
    if ending.code is None:
        return Verdict("crash", ending.err[-300:])
    if "Traceback (most recent call last)" in ending.err:
        return Verdict("traceback", ending.err.strip().splitlines()[-1])
    if ending.code == 0:
        return Verdict()  # the results are compared after the second attempt
    last = ending.err.strip().splitlines()[-1] if ending.err.strip() else ""
    if not last.startswith(ANSWERS) or ". " not in last:
        return Verdict("unclear", f"exit code {ending.code}: {last[-300:]}")
    return Verdict()
