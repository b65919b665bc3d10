"""Progress: what a run reports while it works.

`with show_progress():` prints it to the standard error output, with bars on a terminal; the command line does that. The
logger "aacp" gets the same messages with the level INFO, for programs that have their own logging.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

Mode = Literal["shown", "logged", "silent"]
MAX_SILENCE = 5.0  # seconds between two lines of progress, unless there is news
Update = Callable[[int, str], None]  # shows how many are done, and a text

_logger = logging.getLogger("aacp")
_mode: ContextVar[Mode] = ContextVar("progress", default="logged")


@contextmanager
def show_progress() -> Iterator[None]:
    """Print the progress of everything that this thread runs until the block ends to the standard error output."""
    with _progress_in("shown"):
        yield


@contextmanager
def without_progress() -> Iterator[None]:
    """Report nothing until the block ends: for the many small steps of a larger one, which reports itself."""
    with _progress_in("silent"):
        yield


@contextmanager
def _progress_in(mode: Mode) -> Iterator[None]:
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def is_shown() -> bool:
    """Whether progress is printed to the standard error output."""
    return _mode.get() == "shown"


def report_progress(message: str) -> None:
    """Report one line."""
    if _mode.get() != "silent":
        _logger.info("%s", message)
    if is_shown():
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def report_warning(message: str) -> None:
    """Report one line, also to programs that do not show progress: the logger gets it as a warning there."""
    if is_shown():
        report_progress(message)
    else:
        _logger.warning("%s", message)


class Silence:
    """The time since something was reported."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether it has lasted MAX_SILENCE seconds; if so, it begins anew."""
        is_over = time.monotonic() - self._since >= MAX_SILENCE
        if is_over:
            self._since = time.monotonic()
        return is_over


@contextmanager
def progress_bar(total: int | None, text: str = "") -> Iterator[Update | None]:
    """A bar with the time left, if progress is shown on a terminal; otherwise None, and lines are reported instead.

    Args:
        total: the number at which the bar is full; None if it is not known.
        text: what stands beside the bar from the start. Without a text the bar begins with the first update: steps of
            an earlier call would distort the time left.
    """
    if not is_shown():
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    times = (bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
    description = bars.TextColumn("{task.description}")
    with bars.Progress(bars.BarColumn(), bars.MofNCompleteColumn(), *times, description, console=console) as bar:
        if text:
            bar.add_task(text, total=total)
        yield partial(_update, bar, total)


@contextmanager
def counting(total: int, what: str) -> Iterator[Callable[[str], None]]:
    """Report how many of several things are done: a bar on a terminal, elsewhere a line every few seconds.

    Args:
        total: how many things there are.
        what: their name in the plural.

    Yields:
        a function to be called with the name of each thing before it is begun.
    """
    done = -1
    silence = Silence()

    def begin(name: str) -> None:
        nonlocal done
        done += 1
        if update is not None:
            update(done, name)
        elif silence.is_over():
            report_progress(f"{done}/{total} {what}, now {name}")

    with progress_bar(total, what) as update:
        yield begin
        if update is not None:
            update(total, what)


def _update(bar: Any, total: int | None, done: int, text: str) -> None:
    if not bar.tasks:
        bar.add_task("", total=total, completed=done - 1)
    bar.update(bar.task_ids[0], completed=done, description=text)
