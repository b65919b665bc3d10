"""Scenarios: commands whose results must be the same whatever happened to an earlier attempt."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from faults.forker import Attempt, Ending, Forker
from faults.subjects import MEASURE, MIMIC, PRUNE, SEARCH, TRAINING
from faults.trees import results

NET = "faults.subjects:net"
DATA = ["--data", "faults.subjects:data"]
NAMED = ["--model", NET, *DATA]  # what the command line names is trusted
SWEEP = [*["0.2,0.4" if word == "0.4" else word for word in SEARCH]]
DROP = [word for word in SEARCH if word not in ("--prune-macs", "0.4")]


@dataclass(frozen=True)
class Scenario:
    """A command under attack, and the commands that prepare its folder.

    Args:
        name: for the table.
        command: what is killed or gets the errors of the system; the folder `new` below the current one is its place.
        before: what has to be run first.
        kills: how many calls of it `make faults` attacks at most, evenly spread.
        seconds: the time after which an attempt counts as a hang.
    """

    name: str
    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    kills: int = 40
    seconds: float = 180.0

    def run(self, forker: Forker, folder: Path, fault: str = "", at: int = 0, lasting: bool = False) -> Ending:
        """Run the command in a folder, with a fault at one of its calls."""
        return forker.run(
            Attempt(
                str(folder),
                command=self.command,
                seconds=self.seconds,
                fault=fault,
                at=at,
                lasting=lasting,
                below=str(folder),
            )
        )


SCENARIOS = (
    Scenario("prune and fine-tune", (*PRUNE, "--run", "new"), kills=80),
    Scenario("search", ("search", *SEARCH, "--run", "new"), kills=30),
    Scenario("repair without training", ("prune", *SEARCH, "--no-training", "--no-export", "--run", "new")),
    Scenario("mimic", (*MIMIC, "--run", "new")),
    Scenario("sweep with training", ("sweep", *SWEEP, "--train", *TRAINING, "--run", "new"), kills=50),
    Scenario(
        "prune to a largest drop",
        ("prune", *DROP, "--max-drop", "50", "--probe-epochs", "1", *TRAINING, "--run", "new"),
        kills=50,
    ),
    Scenario("measure", (*MEASURE, "--out", "new/table.json"), kills=40),
    Scenario("train", ("train", NET, *DATA, *TRAINING[:-1], "--device", "cpu", "--run", "new"), kills=30),
    Scenario(
        "fine-tune after a search",
        ("finetune", "new", *NAMED, *TRAINING, "--device", "cpu"),
        (("search", *SEARCH, "--run", "new"),),
        kills=30,
    ),
    Scenario(
        "train from scratch after a search",
        ("scratch", "new", *NAMED, *TRAINING, "--device", "cpu"),
        (("search", *SEARCH, "--run", "new"),),
        kills=30,
    ),
    Scenario("report", ("report", "new"), (("search", *SEARCH, "--run", "new"),), kills=6),
    Scenario("prune and export", (*PRUNE[:-1], "--run", "new"), ((*PRUNE, "--run", "new"),), kills=16),
)


@dataclass(frozen=True)
class Prepared:
    """A scenario with its folder before the command, the calls of an attempt without faults, and its results."""

    scenario: Scenario
    template: Path
    events: list[str]
    results: dict[str, str]

    @classmethod
    def of(cls, scenario: Scenario, folder: Path, forker: Forker) -> Prepared:
        template = folder / "template"
        template.mkdir(parents=True)
        for command in scenario.before:
            _require_success(forker.run(Attempt(str(template), command=command, seconds=scenario.seconds)))
        place = folder / "undisturbed"
        shutil.copytree(template, place, symlinks=True)
        ending = scenario.run(forker, place)
        _require_success(ending)
        return cls(scenario, template, ending.events, results(place))

    def copy(self, place: Path) -> Path:
        """A new folder in the state before the command."""
        shutil.copytree(self.template, place, symlinks=True)
        return place

    def event(self, number: int) -> str:
        """A call by its number, from 1, without the random part of temporary names."""
        return re.sub(r"\.(\S+)\.[0-9a-f]{16}\.part", r"\1 (temporary)", self.events[number - 1])

    def calls(self, most: int) -> list[int]:
        """The numbers of at most this many calls, evenly spread, the first and the last among them."""
        count = len(self.events)
        if count <= most:
            return list(range(1, count + 1))
        return sorted({1 + round(place * (count - 1) / (most - 1)) for place in range(most)})


def _require_success(ending: Ending) -> None:
    if ending.code != 0:
        raise AssertionError(f"exit code {ending.code}\n{ending.out}\n{ending.err}")
