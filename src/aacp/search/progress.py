"""Progress: how far a search is, as a bar on a terminal and as lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aacp.search.history import Candidate
from aacp.user.progress import MAX_SILENCE, progress_bar, report_progress
from aacp.user.values import counted, score_text


@dataclass(frozen=True)
class Progress:
    """The progress of a search; `str` gives one line of text."""

    evaluations: int
    total: int | None  # the number of evaluations at which the search ends; None if other bounds end it
    generation: int
    best: Candidate
    costs: tuple[str, ...]  # what the best structure reaches of each limit, as text
    seconds: float  # since this call began
    seconds_left: float | None  # None if it is not known

    def is_news_after(self, earlier: Progress) -> bool:
        """Whether to print it: the best structure has changed, or MAX_SILENCE seconds have passed."""
        return self.best != earlier.best or self.seconds - earlier.seconds >= MAX_SILENCE

    @property
    def outcome(self) -> str:
        """The best structure so far and what it costs."""
        best = ", ".join((f"number {self.best.number}", *self.costs))
        return f"generation {self.generation}, best {score_text(self.best.score)} ({best})"

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {_duration(self.seconds_left)} left"
        done = counted(self.evaluations, "evaluation")
        count = done if self.total is None else f"{self.evaluations}/{self.total} evaluations"
        return f"{count}, {self.outcome}, {_duration(self.seconds)} so far{left}"


Show = Callable[[Progress], None]


@contextmanager
def showing(total: int | None) -> Iterator[Show]:
    """Report progress: a bar on a terminal, lines elsewhere.

    Args:
        total: the number of evaluations at which the search ends; None if other bounds end it.
    """
    with progress_bar(total, "first evaluation") as update:
        if update is not None:
            yield lambda now: update(now.evaluations, now.outcome)
            return
        lines = _Lines()
        yield lines.show
        lines.finish()


class _Lines:
    """Reports a line for the first evaluation, for the last, and for everything that is news in between."""

    def __init__(self) -> None:
        self.printed: Progress | None = None
        self.latest: Progress | None = None

    def show(self, progress: Progress) -> None:
        self.latest = progress
        if self.printed is None or progress.is_news_after(self.printed):
            self._print(progress)

    def finish(self) -> None:
        """Print the last evaluation, if it was not news."""
        if self.latest is not None and self.latest is not self.printed:
            self._print(self.latest)

    def _print(self, progress: Progress) -> None:
        report_progress(str(progress))
        self.printed = progress


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
