"""Outstanding: the structures that a method has proposed and that are not in its history yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from aacp.channels.structure import Structure
from aacp.errors import InvalidStructure
from aacp.search.history import Candidate


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed structure: the `number`-th of the search (from 0), its `generation`, and its score once it has one."""

    number: int
    generation: int
    structure: Structure
    score: float | None = None
    images: tuple[int, int] | None = None  # how many images it was scored on, of how many; None: on all

    def to_json(self) -> list[Any]:
        """Counts, number and generation. A score is not saved here: it is in the log, or in the state of the search."""
        return [list(self.structure), self.number, self.generation]

    @classmethod
    def from_json(cls, data: Any, generation: int) -> Proposal:
        """The proposal of a list; those of older versions hold no generation, which then is the given one."""
        counts, number, *own = data
        return cls(int(number), int(own[0]) if own else generation, Structure(counts))

    @property
    def candidate(self) -> Candidate:
        assert self.score is not None
        return Candidate(self.number, self.generation, self.structure, self.score, self.images)


class Outstanding:
    """Proposals in their order, those without a score and those whose score came early."""

    def __init__(self, proposals: Iterable[Proposal] = ()) -> None:
        self._proposals = {each.structure.counts: each for each in proposals}

    def __len__(self) -> int:
        return len(self._proposals)

    def __contains__(self, counts: tuple[int, ...]) -> bool:
        return counts in self._proposals

    @property
    def first(self) -> Proposal | None:
        """The earliest of the proposals."""
        return next(iter(self._proposals.values()), None)

    @property
    def structures(self) -> list[Structure]:
        """All structures."""
        return [each.structure for each in self._proposals.values()]

    @property
    def pending(self) -> list[Structure]:
        """The structures without a score."""
        return [each.structure for each in self._proposals.values() if each.score is None]

    @property
    def early(self) -> list[Candidate]:
        """The structures whose score came before those of earlier proposals."""
        return [each.candidate for each in self._proposals.values() if each.score is not None]

    def generation_of(self, structure: Structure) -> int:
        return self._proposals[structure.counts].generation

    def add(self, proposal: Proposal) -> None:
        self._proposals[proposal.structure.counts] = proposal

    def report(self, structure: Structure, score: float, images: tuple[int, int] | None = None) -> Proposal:
        """Give a structure its score, and say how many images it was measured on, of how many."""
        known = self._proposals.get(structure.counts)
        if known is None or known.score is not None:
            raise InvalidStructure(
                f"{structure} is not awaiting a score. Report each structure that `ask` returned once."
            )
        reported = replace(known, score=score, images=images)
        self._proposals[structure.counts] = reported
        return reported

    def remove(self, proposal: Proposal) -> None:
        del self._proposals[proposal.structure.counts]

    def to_json(self) -> list[Any]:
        return [each.to_json() for each in self._proposals.values()]
