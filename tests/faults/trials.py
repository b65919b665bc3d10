"""Trials: every fault of the suite as a named call that returns a verdict, in the groups of the generated table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults import damage, links, system, workers
from faults.cases import Case, Verdict, tried
from faults.catalogue import ALL
from faults.forker import Forker
from faults.kills import killed_and_resumed
from faults.scenarios import Prepared

Act = Callable[[Path, Forker], Verdict]  # what a trial does in a new folder
BAD_INPUT = "bad input"
KILL = "kill"
SYSTEM = "error of the system"
DAMAGE = "damaged run folder"
LINK = "planted link"


@dataclass(frozen=True)
class Trial:
    """One fault."""

    kind: str  # the first column of the table
    group: str  # the second
    name: str
    act: Act


def of_catalogue(world: Path) -> Iterator[Trial]:
    """A trial for every bad input of the catalogue."""
    for case in ALL:
        yield Trial(BAD_INPUT, case.group, case.name, partial(_in_copy, case, world))


def _in_copy(case: Case, world: Path, place: Path, forker: Forker) -> Verdict:
    damage.copy_world(world, place)
    return tried(case, place, forker)


def of_kills(prepared: Prepared, most: int) -> Iterator[Trial]:
    """A trial for at most this number of calls of a scenario."""
    for at in prepared.calls(most):
        name = f"call {at} of {len(prepared.events)}: {prepared.event(at)}"
        yield Trial(KILL, prepared.scenario.name, name, partial(killed_and_resumed, prepared, at))


def of_system(prepared: Prepared, most: int, disks: bool) -> Iterator[Trial]:
    """Trials of errors at the calls of a scenario, of limits on the size of files, and of small disks.

    Args:
        prepared: the scenario.
        most: the number of calls that get an error, evenly spread.
        disks: whether to mount small disks.
    """
    name = prepared.scenario.name
    calls = [at for at in prepared.calls(most) if not prepared.events[at - 1].startswith("after ")]
    for number, at in enumerate(calls):
        error, lasting = system.ERRORS[number % len(system.ERRORS)]
        act = partial(system.failed_and_resumed, prepared, error, lasting, at)
        yield Trial(SYSTEM, name, f"{error} at call {at}: {prepared.event(at)}", act)
    for size in system.FILE_SIZES:
        yield Trial(SYSTEM, name, f"no file above {size} bytes", partial(system.too_large_and_resumed, prepared, size))
    yield Trial(SYSTEM, name, "no right to write", partial(system.forbidden_and_resumed, prepared))
    for size in system.DISK_SIZES if disks else ():
        yield Trial(SYSTEM, name, f"a disk of {size} KiB", partial(system.full_disk_and_resumed, prepared, size))


def of_damage(world: Path) -> Iterator[Trial]:
    """Trials of damage to every file of the runs of a world; a third of them also for commands that only read."""
    for number, each in enumerate(damage.damages(world)):
        state = damage.STATES[each.run]
        again = partial(damage.damaged_and_repeated, each, world)
        yield Trial(DAMAGE, f"{state}: the command again", each.name, again)
        for command in damage.readers(each.run) if number % 3 == 0 else ():
            reading = partial(damage.damaged_and_read, each, command, world)
            yield Trial(DAMAGE, f"{state}: {command[0]}", f"{' '.join(command)}, {each.name}", reading)


def of_links(world: Path) -> Iterator[Trial]:
    """Trials of links that are planted at every name of a run."""
    for run, file, command in links.planted(world):
        act = partial(links.linked_and_repeated, run, file, command, world)
        yield Trial(LINK, command[0], f"{run}/{file}", act)


def of_workers() -> Iterator[Trial]:
    """Trials in which one of several processes ends."""
    for name, act in workers.TRIALS.items():
        yield Trial(KILL, "several processes", name, act)
