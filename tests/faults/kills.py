"""Kills: the process ends inside a write, an fsync or a rename, and the same command again ends with the same bytes."""

from __future__ import annotations

from pathlib import Path

from faults.cases import Verdict
from faults.forker import Ending, Forker
from faults.scenarios import Prepared
from faults.trees import differences, leftovers, results


def killed_and_resumed(prepared: Prepared, at: int, place: Path, forker: Forker) -> Verdict:
    """Kill a scenario at one of its calls, run it again, and compare the results.

    Args:
        prepared: the scenario with its undisturbed results.
        at: the number of the call, from 1.
        place: a new folder.
        forker: makes the processes.
    """
    prepared.copy(place)
    killed = prepared.scenario.run(forker, place, "kill", at)
    if killed.timed_out:
        return Verdict("hang", "the first attempt did not end")
    if killed.code is not None:
        return Verdict("not killed", f"the attempt made fewer than {at} calls: {killed.err[-200:]}")
    return compared(prepared, prepared.scenario.run(forker, place), place)


def compared(prepared: Prepared, again: Ending, place: Path) -> Verdict:
    """Judge the attempt after a fault: it must succeed, with the results of an undisturbed one and nothing else."""
    if again.timed_out:
        return Verdict("hang", "the second attempt did not end")
    if "Traceback (most recent call last)" in again.err:
        return Verdict("traceback", again.err.strip().splitlines()[-1])
    if again.code != 0:
        return Verdict("lost", f"exit code {again.code}: {again.err.strip()[-300:]}")
    found = [change for change in differences(prepared.results, results(place)) if not _is_leftover(change)]
    if found:
        return Verdict("other bytes", "; ".join(found[:5]))
    remaining = leftovers(place)
    if remaining:
        return Verdict("leftovers", ", ".join(remaining[:5]))
    return Verdict()


def _is_leftover(change: str) -> bool:
    name = change.rpartition(" ")[0].rpartition("/")[2]
    return change.endswith(" added") and (name.startswith(".") or name.endswith(".part"))
