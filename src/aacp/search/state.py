"""SearchState: what a search method needs to continue, as it is written to search.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aacp.disk.records import Record
from aacp.errors import DamagedRun, RunMismatch, first_line
from aacp.search.history import Candidate
from aacp.search.outstanding import Proposal
from aacp.user.values import counted


@dataclass(frozen=True)
class SearchState(Record):
    """The state of a search method; it does not grow with the history, which is kept beside it."""

    method: str  # the name of its class
    settings: dict[str, Any]
    seed: int
    choices: Any  # of the search space, as SearchSpace.to_json returns them
    limits: Any  # of each limit the cost and the bound; older versions wrote the limit as text for the cost
    start: Any  # genes of structures to propose first
    lessons: tuple[Any, ...]  # candidates of earlier searches; the name is that of older versions, whose files are read
    generation: int
    asked: int  # the number of structures that were proposed; the name is that of older versions, whose files are read
    generator: Any  # the state of numpy's random generator
    trials: Any  # genes of the generations that are being evaluated
    pending: tuple[Any, ...]  # counts, number and generation of each proposal that is not in the history
    memory: Any  # what the method returned from `memory`
    evaluated: int | None = None  # the number of candidates in the history; None in files of older versions
    fingerprint: str = ""  # of these candidates
    generations: Any = None  # of each generation in `trials`, its rows and the number of the first proposal after it
    tried_in_vain: int = -1  # the number of evaluations after which nothing new could be proposed
    early: tuple[Any, ...] = ()  # in memory: proposals in `pending` that have a score
    history: tuple[Any, ...] | None = None  # all candidates, in memory and in files of older versions

    @cached_property
    def proposals(self) -> list[Proposal]:
        """The structures that were proposed and are not in the history yet."""
        try:
            return [Proposal.from_json(each, self.generation) for each in self.pending]
        except Exception as error:
            raise damaged_state(error) from None

    def require_identity(self, identity: Mapping[str, Any]) -> None:
        """Reject a state of another method, or with other settings, another seed, space or budget."""
        for name, mine in identity.items():
            theirs = self._costs_and_bounds if name == "limits" else getattr(self, name)
            if theirs != mine:
                raise RunMismatch(
                    f"The saved search has {name} {theirs!r}, but this one has {mine!r}. "
                    "Resume with the arguments that the run was started with, or choose another folder."
                )

    @property
    def _costs_and_bounds(self) -> Any:
        """The limits, with the cost alone where an older version wrote a text such as "macs -50 %"."""
        try:
            return [[text.partition(" ")[0], bound] for text, bound in self.limits]
        except (AttributeError, TypeError, ValueError) as error:
            raise damaged_state(error) from None

    def require_candidates(self, candidates: Sequence[Candidate]) -> int:
        """Reject other candidates than those that the state counts; returns their fingerprint."""
        found = fingerprint_of(candidates)
        if self.evaluated is not None and self.fingerprint != f"{found:032x}":
            raise RunMismatch(
                f"The saved search had evaluated {counted(self.evaluated, 'structure')}, but other candidates than "
                f"these are given ({len(candidates)}). Give the history that was saved with it."
            )
        return found

    @cached_property
    def candidates(self) -> tuple[Candidate, ...] | None:
        """The history that the state holds itself, if it does."""
        return None if self.history is None else tuple(map(Candidate.from_json, self.history))


def fingerprint_of(candidates: Iterable[Candidate]) -> int:
    """A number that differs if any candidate differs; their order does not matter."""
    found = 0
    for candidate in candidates:
        found ^= candidate.fingerprint
    return found


def damaged_state(error: BaseException) -> DamagedRun:
    """The error for a state that has all its fields, but not the values that a search writes."""
    return DamagedRun(
        f"The saved state of the search is damaged ({first_line(error)}). Restore the file, or remove it: the search "
        "is then repeated with the scores in history.jsonl."
    )
