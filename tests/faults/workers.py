"""Kills of one of several processes: a worker of a training, the launcher of workers, a run with loader workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from faults.cases import Verdict
from faults.forker import Attempt, Forker
from faults.kills import compared
from faults.scenarios import NAMED, Prepared, Scenario
from faults.subjects import SEARCH, TRAINING

TWO = Scenario(
    "two processes",
    ("finetune", "new", *NAMED, *TRAINING, "--device", "cpu", "--processes", "2"),
    (("search", *SEARCH, "--run", "new"),),
    seconds=240,
)
LOADERS = ["faults.subjects:data_with_workers" if word == "faults.subjects:data" else word for word in SEARCH]
WITH_LOADERS = Scenario("loader workers", ("prune", *LOADERS, *TRAINING, "--run", "new"), seconds=120)
CALLS_OF_A_WORKER = (1, 4, 8, 12, 16, 19)
CALLS_WITH_LOADERS = (45, 52, 60, 66)


def worker_killed(at: int, place: Path, forker: Forker) -> Verdict:
    """Kill the first worker at one of its calls: the launcher says so and ends, and the same command resumes."""
    prepared = Prepared.of(TWO, place / "scenario", forker)
    folder = prepared.copy(place / "attempt")
    first = forker.run(Attempt(str(folder), command=TWO.command, seconds=TWO.seconds, worker_kill=at))
    if first.timed_out:
        return Verdict("hang", "the launcher waits for a worker that was killed")
    if first.code != 1 or "WorkerFailed: " not in first.err:
        return Verdict("unclear", f"exit code {first.code}: {first.err[-300:]}")
    return compared(prepared, TWO.run(forker, folder), folder)


def run_with_loaders_killed(at: int, place: Path, forker: Forker) -> Verdict:
    """Kill a run whose loaders have worker processes: they must not keep the folder locked."""
    prepared = Prepared.of(WITH_LOADERS, place / "scenario", forker)
    folder = prepared.copy(place / "attempt")
    first = WITH_LOADERS.run(forker, folder, "kill", min(at, len(prepared.events)))
    if first.code is not None:
        return Verdict("not killed", first.err[-200:])
    verdict = compared(prepared, WITH_LOADERS.run(forker, folder), folder)
    shutil.rmtree(folder)
    return verdict


def _bound(act: Callable[[int, Path, Forker], Verdict], at: int) -> Callable[[Path, Forker], Verdict]:
    return lambda place, forker: act(at, place, forker)


TRIALS: dict[str, Callable[[Path, Forker], Verdict]] = {
    **{f"the first of two workers at its call {at}": _bound(worker_killed, at) for at in CALLS_OF_A_WORKER},
    **{f"a run with loader workers at call {at}": _bound(run_with_loaders_killed, at) for at in CALLS_WITH_LOADERS},
}
