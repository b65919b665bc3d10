"""Events: what happens in a run, for your own logging.

`with listen(callback):` calls `callback(event)` for every stage, evaluation and epoch of what runs inside of it. It
works around `aacp.prune`, `aacp.sweep`, `aacp.run_search` and `aacp.fit` alike, which need no argument for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["stage", "evaluation", "epoch"]


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    Args:
        kind: "stage" for the begin of a stage or its result, "evaluation" for a structure that was scored, "epoch" for
            an epoch of training.
        name: the stage: "trace", "search", "finalists", "train", "evaluate", "export" or "done". Evaluations belong to
            "search" or, after a short training, to "finalists"; epochs to "train".
        step: the number of the evaluation or the epoch, counted from 1; 0 for stages.
        values: the numbers to log, such as the score and the best score so far of an evaluation, or the loss of an
            epoch. "done" has the costs and scores of both networks.
        folder: the folder that the search or the training is kept in; empty if there is none.
    """

    kind: Kind
    name: str
    step: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    folder: str = ""


Callback = Callable[[Event], None]

_callbacks: ContextVar[tuple[Callback, ...]] = ContextVar("callbacks", default=())


@contextmanager
def listen(callback: Callback) -> Iterator[None]:
    """Call `callback(event)` for every event of this thread until the block ends.

    What the callback raises ends the run, which the same call resumes. Trainings in several processes (`processes`)
    report their stages alone.
    """
    token = _callbacks.set((*_callbacks.get(), callback))
    try:
        yield
    finally:
        _callbacks.reset(token)


def emit(event: Event) -> None:
    """Pass an event to everyone who listens."""
    for callback in _callbacks.get():
        callback(event)
