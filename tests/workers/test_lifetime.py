"""A process that must not outlive its parent ends with it, whether the system or the watching thread sees to it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aacp.workers.lifetime import Launcher

CHILD = """
import ctypes, os, sys, time
import aacp.workers.lifetime
if sys.argv[2] == "the thread":
    ctypes.CDLL = lambda name: None  # as on a system without prctl
aacp.workers.lifetime.end_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2]])
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("means", ["the system", "the thread"])
def test_the_child_of_a_killed_process_ends(means: str) -> None:
    command = [sys.executable, "-c", PARENT, CHILD, means]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 180
        while is_running(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_running(child)


def test_a_child_whose_parent_has_ended_already_ends() -> None:
    found = subprocess.run([sys.executable, "-c", CHILD, "1", "the system"], stdout=subprocess.DEVNULL, timeout=180)
    assert found.returncode == -9


RECEIVER = """
import pickle, sys, time
pickle.loads(bytes.fromhex(sys.argv[1]))
time.sleep(60)
"""


def test_a_process_that_receives_a_launcher_which_has_ended_ends() -> None:
    """It may have its arguments, and wait for another process that never got any."""
    launcher = pickle.dumps(Launcher(1)).hex()
    found = subprocess.run([sys.executable, "-c", RECEIVER, launcher], stdout=subprocess.DEVNULL, timeout=180)
    assert found.returncode == -9


def is_running(process: int) -> bool:
    """Whether a process is there and not a zombie that nobody waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
