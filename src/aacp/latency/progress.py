"""Progress: how far a measurement is, in lines on standard error."""

from __future__ import annotations

import sys
import time

LINES = 10  # where nobody watches, a line for each tenth of the way


class Progress:
    """A count of steps, said aloud now and then with the time that is left."""

    def __init__(self, what: str, total: int, done: int = 0, verbose: bool = False) -> None:
        self._what, self._total, self._done, self._verbose = what, total, done, verbose
        self._begun_at, self._start = done, time.monotonic()
        if verbose and done:
            print(f"{done} of {total} {what} were measured before", file=sys.stderr)

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        every = max(1, self._total // LINES)
        if self._verbose and (self._done % every == 0 or self._done in (self._begun_at + 1, self._total)):
            print(self, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        elapsed = time.monotonic() - self._start
        left = elapsed / max(1, self._done - self._begun_at) * (self._total - self._done)
        return f"{self._done}/{self._total} {self._what}, {elapsed:.0f} s so far, about {left:.0f} s left"
