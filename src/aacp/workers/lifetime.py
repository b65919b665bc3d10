"""Processes that end with the process that started them, also if that one is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1  # of prctl, in Linux: the signal that a process gets when its parent ends
WATCH_SECONDS = 1.0  # between two looks whether the parent still runs


def end_with(parent: int) -> None:
    """End this process when its parent ends, since a worker of a killed command must not keep its folder locked.

    In Linux the system does that at once; elsewhere a thread does it within about a second.

    Args:
        parent: the pid that the parent sent, since the parent may have ended while this process started.
    """
    with suppress(OSError, AttributeError):  # a system without prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


class Launcher:
    """Stands for the process that starts others: a process that receives it, as a pickle, ends with its launcher.

    That holds as soon as the process has its arguments, so that it cannot wait for processes that were never started.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.pid,)


def _received(pid: int) -> Launcher:
    end_with(pid)
    return Launcher(pid)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
