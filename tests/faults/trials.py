"""Trials: every fault of the suite as a named call that returns a verdict, in the groups of the generated table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from faults import damage, links, system, workers
from faults.cases import Case, Verdict, tried
from faults.catalogue import ALL
from faults.forker import Forker
from faults.kills import killed_and_resumed
from faults.scenarios import SCENARIOS, Prepared, Scenario

Act = Callable[[Path, Forker], Verdict]  # what a trial does in a new folder


@dataclass(frozen=True)
class Trial:
    """One fault."""

    kind: str  # the heading of the table
    group: str  # the row of the table
    name: str
    act: Act


def of_catalogue(world: Path) -> Iterator[Trial]:
    """A trial for every bad input of the catalogue."""
    for case in ALL:
        yield Trial("bad input", case.group, case.name, _in_copy(case, world))


def _in_copy(case: Case, world: Path) -> Act:
    def act(place: Path, forker: Forker) -> Verdict:
        damage.copy_world(world, place)
        return tried(case, place, forker)

    return act


def of_kills(prepared: Prepared, most: int) -> Iterator[Trial]:
    """A trial for at most so many calls of a scenario."""
    for at in prepared.calls(most):
        name = f"call {at} of {len(prepared.events)}: {prepared.events[at - 1]}"
        yield Trial(
            "kill",
            prepared.scenario.name,
            name,
            lambda place, forker, at=at: killed_and_resumed(prepared, at, place, forker),
        )  # type: ignore[misc]


def of_system(prepared: Prepared, most: int, disks: bool) -> Iterator[Trial]:
    """Trials of errors at the calls of a scenario, of limits on the size of files, and of full disks."""
    for number, at in enumerate(at for at in prepared.calls(most) if not prepared.events[at - 1].startswith("after ")):
        error, lasting = system.ERRORS[number % len(system.ERRORS)]
        name = f"{error} at call {at}: {prepared.events[at - 1]}"
        yield Trial(
            "error of the system", prepared.scenario.name, name,
            lambda place, forker, error=error, lasting=lasting, at=at: system.failed_and_resumed(prepared, error, lasting, at, place, forker),  # type: ignore[misc]
        )  # fmt: skip
    for size in system.FILE_SIZES:
        yield Trial(
            "error of the system", prepared.scenario.name, f"no file above {size} bytes",
            lambda place, forker, size=size: system.too_large_and_resumed(prepared, size, place, forker),  # type: ignore[misc]
        )  # fmt: skip
    yield Trial(
        "error of the system", prepared.scenario.name, "no right to write",
        lambda place, forker: system.forbidden_and_resumed(prepared, place, forker),
    )  # fmt: skip
    for size in system.DISK_SIZES if disks else ():
        yield Trial(
            "error of the system", prepared.scenario.name, f"a disk of {size} KiB",
            lambda place, forker, size=size: system.full_disk_and_resumed(prepared, size, place, forker),  # type: ignore[misc]
        )  # fmt: skip


def of_damage(world: Path) -> Iterator[Trial]:
    """Trials of damage to every file of the runs of a world."""
    for number, each in enumerate(damage.damages(world)):
        yield Trial(
            "damaged run folder", f"{damage.STATES[each.run]}: the command again", each.name,
            lambda place, forker, each=each: damage.damaged_and_repeated(each, world, place, forker),  # type: ignore[misc]
        )  # fmt: skip
        for command in damage.readers(each.run) if number % 3 == 0 else ():
            yield Trial(
                "damaged run folder", f"{damage.STATES[each.run]}: {command[0]}", f"{' '.join(command)}, {each.name}",
                lambda place, forker, each=each, command=command: damage.damaged_and_read(each, command, world, place, forker),  # type: ignore[misc]
            )  # fmt: skip


def of_links(world: Path) -> Iterator[Trial]:
    """Trials of links that are planted at every name of a run."""
    for run, file, command in links.planted(world):
        yield Trial(
            "planted link", command[0], f"{run}/{file}",
            lambda place, forker, run=run, file=file, command=command: links.linked_and_repeated(run, file, command, world, place, forker),  # type: ignore[misc]
        )  # fmt: skip


def of_workers() -> Iterator[Trial]:
    """Trials in which one of several processes ends."""
    for name, act in workers.TRIALS.items():
        yield Trial("kill", "several processes", name, act)


def scenario_named(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)
