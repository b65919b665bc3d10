"""Kills of one of several processes: a worker, the launcher of workers or seeds, a run with loader workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from faults.cases import Verdict
from faults.forker import Attempt, Forker
from faults.kills import compared, killed_and_resumed
from faults.scenarios import NAMED, Prepared, Scenario
from faults.subjects import SEARCH, TRAINING

TWO = Scenario(
    "two processes",
    ("finetune", "new", *NAMED, *TRAINING, "--device", "cpu", "--processes", "2"),
    (("search", *SEARCH, "--run", "new"),),
    seconds=240,
)
SEEDS = Scenario("seeds", ("repeat", "--seeds", "0,1", "--run", "new", "--", "search", *SEARCH), seconds=240)
LOADERS = ["faults.subjects:data_with_workers" if word == "faults.subjects:data" else word for word in SEARCH]
WITH_LOADERS = Scenario("loader workers", ("prune", *LOADERS, *TRAINING, "--run", "new"), seconds=180)
CALLS_OF_A_WORKER = (1, 4, 8, 12, 16, 19)
CALLS_BEFORE_THE_LAUNCHER_ENDS = (2, 10, 18)
CALLS_BEFORE_REPEAT_ENDS = (3, 25)
CALLS_OF_REPEAT = (2, 6, 9)
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


def launcher_killed(scenario: Scenario, at: int, place: Path, forker: Forker) -> Verdict:
    """Kill the launcher at a call of a process that it started: that process ends, and the same command resumes."""
    prepared = Prepared.of(scenario, place / "scenario", forker)
    folder = prepared.copy(place / "attempt")
    killing = Attempt(
        str(folder), scenario.command, seconds=scenario.seconds, worker_kill=at, worker_fault="kill-parent"
    )
    if forker.run(killing).code is not None:
        return Verdict("not killed", f"no process made {at} calls")
    return compared(prepared, scenario.run(forker, folder), folder)


def repeat_killed(at: int, place: Path, forker: Forker) -> Verdict:
    """Kill `aacp repeat` at one of its own calls; the same command resumes."""
    prepared = Prepared.of(SEEDS, place / "scenario", forker)
    return killed_and_resumed(prepared, min(at, len(prepared.events)), place / "attempt", forker)


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
    **{
        f"the launcher of two workers at call {at} of a worker": _bound(partial(launcher_killed, TWO), at)
        for at in CALLS_BEFORE_THE_LAUNCHER_ENDS
    },
    **{
        f"aacp repeat at call {at} of a seed": _bound(partial(launcher_killed, SEEDS), at)
        for at in CALLS_BEFORE_REPEAT_ENDS
    },
    **{f"aacp repeat at its call {at}": _bound(repeat_killed, at) for at in CALLS_OF_REPEAT},
    **{f"a run with loader workers at call {at}": _bound(run_with_loaders_killed, at) for at in CALLS_WITH_LOADERS},
}
