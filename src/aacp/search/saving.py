"""SearchFiles: a search in its folder. Every score is a line of history.jsonl, the state of the method is search.json.

A line is appended for each evaluation, and the state does not hold the history: both take the same time however long
the search is. A search is determined by its seed and its scores. So if the state or some lines are lost, the search is
repeated with the scores that are left, and only the structures without a score are evaluated again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aacp.disk.folders import folders_in
from aacp.errors import DamagedRun, RunMismatch
from aacp.runs.files import CHECKPOINT, HISTORY
from aacp.runs.folder import RunFolder
from aacp.runs.mending import announce
from aacp.search.history import Candidate, History
from aacp.search.searcher import Searcher
from aacp.search.state import SearchState
from aacp.user.values import counted

Recorded = dict[tuple[int, ...], Candidate]  # candidates by their counts, in the order of their numbers


class SearchFiles:
    """The files of one search, written by the process that holds the lock of the folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._ahead: Recorded = {}  # candidates of the log that were not reported to the method yet
        self._highest = -1  # the highest number in the log
        self._is_out_of_order = False  # whether a candidate was recorded behind one with a higher number
        self._is_repeated = False  # whether the search had to start again, with recorded scores
        self._lacks_lines = False  # whether the method has evaluated candidates that are not in the log

    # -- writing ------------------------------------------------------------------------------------------------------

    def save(self, method: Searcher[Any]) -> None:
        """Write the state of the method, before new proposals are evaluated."""
        state = method.checkpoint()
        self.folder.write_json(CHECKPOINT, {"checksum": _checksum(state), **state})

    def record(self, method: Searcher[Any], candidate: Candidate) -> None:
        """Write the score of a candidate that was reported to the method."""
        self.folder.append(HISTORY, candidate.to_json())
        self._is_out_of_order |= candidate.number < self._highest
        self._highest = max(self._highest, candidate.number)
        self._sort(method)

    def _sort(self, method: Searcher[Any]) -> None:
        """Sort the log once no number is missing any more, so that it is that of an uninterrupted search."""
        if self._is_out_of_order and len(method.history) == self._highest + 1:
            self._write_history(method.history)
            self._is_out_of_order = False

    def _write_history(self, candidates: Iterable[Candidate]) -> None:
        self.folder.write_log(HISTORY, (candidate.to_json() for candidate in candidates))

    # -- resuming -----------------------------------------------------------------------------------------------------

    def resume(self, method: Searcher[Any]) -> None:
        """Bring the method to where the folder's search was interrupted."""
        with collection_paused():
            self._resume(method)
        while self._ahead and self.tell_recorded(method):
            pass
        if self._lacks_lines:
            self._write_history([*method.history, *method.early, *self._ahead.values()])
        if self._is_repeated:
            self.save(method)

    def _resume(self, method: Searcher[Any]) -> None:
        """Bring the method to the checkpoint, and note which candidates have been evaluated since."""
        logged = read_candidates(self.folder)
        saved = self._read_state(len(logged))
        initial = method.state()
        if saved is not None:
            method.require_same(saved)
            logged = self._with_lost(saved, logged)
        is_continued = saved is not None and self._continue(method, saved, logged)
        if not is_continued:
            method.resume(initial)
        self._is_repeated = bool(logged) and not is_continued
        self._highest = max((known.number for known in logged.values()), default=-1)
        known = method.history
        self._ahead = {each: candidate for each, candidate in logged.items() if known.find(each) is None}
        self._lacks_lines = len(known) + len(self._ahead) > len(logged)

    def tell_recorded(self, method: Searcher[Any]) -> bool:
        """Report the recorded scores of the structures that the method proposes; False if there are none."""
        if not self._ahead:
            return False
        batch = method.ask()
        known = [self._ahead.pop(each.counts) for each in batch if each.counts in self._ahead]
        if not known:
            first = next(iter(self._ahead.values()))
            if not batch or first.number < method.proposed:
                raise self._foreign(first)
            return False
        reported = method.tell([(candidate.structure, candidate.score) for candidate in known])
        for mine, theirs in zip(reported, known, strict=True):
            if mine != theirs:
                raise self._foreign(theirs)
        self._sort(method)
        return True

    def _continue(self, method: Searcher[Any], saved: SearchState, logged: Recorded) -> bool:
        """Resume from the checkpoint; False if it is damaged, or if candidates that it counts are lost."""
        try:
            counted = _counted(saved, logged)
            if saved.evaluated is not None and len(counted) < saved.evaluated:
                lost = saved.evaluated - len(counted)
                self._say(f"{HISTORY} has lost {lost} of {saved.evaluated} candidates. They are evaluated again.")
                return False
            method.resume(saved, counted)
        except DamagedRun as error:
            self._say(f"{CHECKPOINT} is damaged: the search is repeated with the scores of {HISTORY}. {error}")
            return False
        except RunMismatch:
            raise RunMismatch(
                f"{self.folder.path / HISTORY} was changed after the search had written it: it holds other candidates "
                f"than the {saved.evaluated} that {CHECKPOINT} counts. Restore it, or search in another folder."
            ) from None
        return True

    def _read_state(self, scores: int) -> SearchState | None:
        """The saved state; None if there is none, or if it cannot be used."""
        try:
            state = self.folder.read_json(CHECKPOINT)
            if state is None:
                reason = "is missing"
            elif isinstance(state, dict) and "checksum" in state and state.pop("checksum") != _checksum(state):
                reason = "is damaged (its checksum is another)"
            else:
                saved = SearchState.from_json(state)
                if saved.candidates is not None or saved.evaluated is not None:
                    return saved
                reason = "is damaged (it neither holds nor counts candidates)"
        except RunMismatch as error:
            reason = f"is damaged ({error})"
        if scores:
            self._say(f"{CHECKPOINT} {reason}: the search is repeated with {counted(scores, 'score')} of {HISTORY}.")
        return None

    def _with_lost(self, saved: SearchState, logged: Recorded) -> Recorded:
        """The recorded candidates with those that only the state holds, as older versions wrote it."""
        found = dict(logged)
        for candidate in saved.candidates or ():
            known = found.setdefault(candidate.structure.counts, candidate)
            if known != candidate:
                raise RunMismatch(
                    f"{self.folder.path / HISTORY} has candidate number {known.number} with score {known.score}, but "
                    f"{CHECKPOINT} has it as number {candidate.number} with {candidate.score}. Restore the files, or "
                    "search in another folder."
                )
        lost = len(found) - len(logged)
        if lost:
            found = _by_number(found.values())
            self._say(f"{HISTORY} had lost {counted(lost, 'candidate')}, restored from {CHECKPOINT}.")
            self._write_history(found.values())
        return found

    def _foreign(self, candidate: Candidate) -> RunMismatch:
        return RunMismatch(
            f"{self.folder.path / HISTORY} holds candidate number {candidate.number}, which this search does not "
            "propose: it belongs to a search with other arguments or data. Restore the files, or search in another "
            "folder and reuse the scores (known_from, --from)."
        )

    def _say(self, sentence: str) -> None:
        announce(self.folder.path, sentence)


def read_candidates(folder: RunFolder) -> Recorded:
    """The candidates of history.jsonl by number; a line that occurs twice counts once."""
    with collection_paused():
        return _by_number(_read_candidates(folder).values())


def _read_candidates(folder: RunFolder) -> Recorded:
    """The candidates of history.jsonl in the order of its lines."""
    found: Recorded = {}
    length = None
    for number, record in enumerate(folder.iterate_log(HISTORY), start=1):
        try:
            candidate = Candidate.from_json(record)
        except RunMismatch as error:
            raise RunMismatch(f"{folder.path / HISTORY}, line {number}: {error}") from None
        counts = candidate.structure.counts
        length = length or len(counts)
        known = found.setdefault(counts, candidate)
        if len(counts) != length:
            raise RunMismatch(
                f"{folder.path / HISTORY}, line {number} has a structure of {len(counts)} counts, but the "
                f"first line has one of {length}. Restore the file, or search in another folder."
            )
        if known is not candidate and known != candidate:
            raise RunMismatch(
                f"{folder.path / HISTORY}, line {number} has a structure with score {candidate.score}, which an "
                f"earlier line has with score {known.score}. Restore the file, or search in another folder."
            )
    return found


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's search for garbage in cycles: candidates form none, and 100,000 of them start it often."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _by_number(candidates: Iterable[Candidate]) -> Recorded:
    return {known.structure.counts: known for known in sorted(candidates, key=lambda known: known.number)}


def recorded(folder: str | os.PathLike[str]) -> History:
    """Every candidate that a run has evaluated, in its own search and in searches in folders inside its folder."""
    path = Path(folder)
    found = [path, *(each for each in folders_in(path) if each != path and (each / HISTORY).exists())]
    with collection_paused():
        histories = [History(read_candidates(RunFolder(each)).values()) for each in found]
        first, *others = histories
        is_numbered = not len(first) or first[-1].number == len(first) - 1
        return first if is_numbered and not others else History.merged(histories)


def _counted(saved: SearchState, logged: Recorded) -> Sequence[Candidate]:
    """The candidates that a state counts; those that have got their scores since then are left out."""
    if saved.candidates is not None:
        return saved.candidates
    pending = {proposal.number for proposal in saved.proposals}
    return [known for known in logged.values() if known.number < saved.asked and known.number not in pending]


def _checksum(state: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(state).encode(), digest_size=16).hexdigest()
