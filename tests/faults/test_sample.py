"""A sample of the faults of `make faults`: bad inputs, kills, errors of the system, damage and links."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from faults.catalogue import ALL
from faults.forker import Forker
from faults.scenarios import SCENARIOS, Prepared
from faults.trials import Trial, of_catalogue, of_damage, of_kills, of_links, of_system

EVERY = 14  # bad inputs of which one is tried here
SLOW = (
    "a pipe",
    "/dev/zero",
    "endless",
    "GiB",
    "export",
    "bench",
    "measure faults",
    "imagefolder",
    "repeat",
)  # seconds each
# Names that lead to no function: an option with one has a class of its own, which the sample of bad inputs may miss.
NO_FUNCTION = ("nomodule:", "faults.subjects:nothing", "faults.subjects:CLASSES")
NewPlace = Callable[[], Path]

pytestmark = pytest.mark.slow


def outcomes(trials: Iterable[Trial], new_place: NewPlace, forker: Forker) -> list[str]:
    """What was not as promised, a line for each."""
    found = []
    for trial in trials:
        verdict = trial.act(new_place(), forker)
        if verdict.word:
            found.append(f"{trial.name}: {verdict.word}: {verdict.detail}")
    return found


@pytest.mark.parametrize("group", sorted({case.group for case in ALL}))
def test_bad_inputs_are_explained_and_change_no_file(
    group: str, world: Path, new_place: NewPlace, forker: Forker
) -> None:
    quick = [
        trial for trial in of_catalogue(world) if trial.group == group and not any(text in trial.name for text in SLOW)
    ]
    sample = quick[::EVERY]
    assert len(sample) >= 2
    assert not outcomes(sample, new_place, forker)


def test_names_that_lead_to_no_function_are_explained_for_every_option(
    world: Path, new_place: NewPlace, forker: Forker
) -> None:
    trials = [trial for trial in of_catalogue(world) if any(text in trial.name for text in NO_FUNCTION)]
    assert len(trials) >= 10
    assert not outcomes(trials, new_place, forker)


def test_killed_runs_resume_to_the_same_bytes(new_place: NewPlace, forker: Forker) -> None:
    prepared = Prepared.of(SCENARIOS[0], new_place(), forker)
    assert len(prepared.events) > 50
    assert not outcomes(of_kills(prepared, 6), new_place, forker)


def test_errors_of_the_system_are_explained_and_cost_nothing(new_place: NewPlace, forker: Forker) -> None:
    prepared = Prepared.of(SCENARIOS[1], new_place(), forker)
    trials = list(of_system(prepared, 12, disks=False))
    assert not outcomes(trials[1::4], new_place, forker)


def test_damaged_run_folders_are_mended_or_explained(world: Path, new_place: NewPlace, forker: Forker) -> None:
    trials = [trial for trial in of_damage(world) if "a pipe" not in trial.name]
    assert not outcomes(trials[5::97], new_place, forker)


def test_nothing_is_written_through_planted_links(world: Path, new_place: NewPlace, forker: Forker) -> None:
    trials = [trial for trial in of_links(world) if "report.html" in trial.name or "history.jsonl" in trial.name]
    assert not outcomes(trials[::4], new_place, forker)


def test_the_catalogue_is_large() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 400
