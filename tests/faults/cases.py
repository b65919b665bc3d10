"""Case: a bad input as data, with what aacp must answer, and the judgement of an answer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faults.forker import EXPLAINED, Attempt, Ending, Forker
from faults.plants import Plant
from faults.trees import differences, snapshot

USAGE = "Usage"  # the answer of a command that cannot be parsed: exit code 2
NOISE = re.compile(r"Warning\b", re.IGNORECASE)
MOST_WARNINGS = 2


@dataclass(frozen=True)
class Case:
    """A bad input and the expected answer.

    Args:
        group: the kind of fault: a row of the table in docs/reliability.md.
        call: a command of aacp, or a piece of Python if it does not start with the word aacp.
        error: the names of the error classes that are right, separated by |; USAGE for exit code 2.
        words: what the message must name: the bad value, the file or the function; alternatives are separated by |.
        given: what is planted first, by path in the current folder.
        adds: folders in which new files may appear, since the error comes after the first stages of a run.
        seconds: the time after which the attempt counts as a hang.
    """

    group: str
    call: str
    error: str
    words: tuple[str, ...] = ()
    given: Mapping[str, Plant] = field(default_factory=dict)
    adds: tuple[str, ...] = ()
    seconds: float = 180.0

    @property
    def name(self) -> str:
        planted = ", ".join(f"{place}: {plant.name}" for place, plant in self.given.items())
        return f"{self.call} [{planted}]" if planted else self.call

    @property
    def is_command(self) -> bool:
        return self.call.startswith("aacp ")

    def attempt(self, folder: Path) -> Attempt:
        if self.is_command:
            return Attempt(str(folder), command=tuple(shlex.split(self.call)[1:]), seconds=self.seconds)
        return Attempt(str(folder), code=self.call, seconds=self.seconds)


@dataclass(frozen=True)
class Verdict:
    """What was wrong with an answer, in a word for the table and a sentence; both empty if nothing was."""

    word: str = ""
    detail: str = ""
    message: str = ""  # the message that aacp gave


def tried(case: Case, folder: Path, forker: Forker) -> Verdict:
    """Plant what is given, make the attempt in this folder, and judge the answer."""
    for name, plant in case.given.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        plant(place)
    before = snapshot(folder)
    ending = forker.run(case.attempt(folder))
    return judged(case, ending, differences(before, snapshot(folder)))


def judged(case: Case, ending: Ending, changes: list[str]) -> Verdict:
    """Judge an answer: class, exit code, message, files, and the absence of tracebacks, hangs and floods."""
    if ending.timed_out:
        return Verdict("hang", f"no answer within {case.seconds:g} s")
    if ending.code is None:
        return Verdict("crash", f"a signal ended the process: {ending.err[-300:]}")
    if "Traceback (most recent call last)" in ending.err:
        return Verdict("traceback", ending.err.strip().splitlines()[-1])
    if ending.code == 3 or "InternalError: " in ending.err:
        return Verdict("internal error", ending.err.strip().splitlines()[-1][:300])
    if ending.code == 0:
        return Verdict("silent", f"exit code 0: {(ending.out or ending.err)[-300:]!r}")
    name, message = _answer(case, ending)
    wrong = [
        *_wrong_class(case, ending, name),
        *_wrong_message(case, name, message),
        *([f"{len(NOISE.findall(ending.err))} warnings"] if len(NOISE.findall(ending.err)) > MOST_WARNINGS else []),
    ]
    if wrong:
        return Verdict("unclear", f"{'; '.join(wrong)}. Message: {name}: {message}", message)
    touched = [change for change in changes if not _is_allowed(change, case)]
    if touched:
        return Verdict("files touched", f"{'; '.join(touched[:5])}. Message: {name}: {message}", message)
    return Verdict(message=f"{name}: {message}")


def _answer(case: Case, ending: Ending) -> tuple[str, str]:
    """The class and the message of the error."""
    if not case.is_command:
        found = ending.error or {}
        return found.get("class", ""), found.get("message", "")
    if ending.code == 2:
        return USAGE, ending.err.partition("Error: ")[2].strip()
    lines = re.findall(r"^([A-Z]\w+): (.*)$", ending.err, re.MULTILINE)
    return lines[-1] if lines else ("", ending.err[-300:])


def _wrong_class(case: Case, ending: Ending, name: str) -> list[str]:
    expected = case.error.split("|")
    bases = (ending.error or {}).get("bases", [name])
    if case.is_command and ending.code not in (1, 2):
        return [f"exit code {ending.code}"]
    if not case.is_command and ending.code != EXPLAINED:
        return [f"ended with {ending.code}"]
    return [] if {*expected} & {*bases} else [f"{name} instead of {case.error}"]


def _wrong_message(case: Case, name: str, message: str) -> list[str]:
    missing = [word for word in case.words if not any(each.lower() in message.lower() for each in word.split("|"))]
    wrong = [f"{word!r} is not named" for word in missing]
    if name != USAGE and not re.search(r"[.!?)][\"']? +\S", message):
        wrong.append("the message has one sentence")
    return wrong


def _is_allowed(change: str, case: Case) -> bool:
    path, _, what = change.rpartition(" ")
    return what == "added" and any(path == place or path.startswith(f"{place}/") for place in case.adds)
