"""Finalists: the best structures of a search, which are compared by short trainings, in rungs (successive halving).

Every finalist is trained for the epochs of the first rung. The best by their hold-out scores go on to the next rung,
whose trainings are longer; the best of the last rung wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aacp.disk.records import Record
from aacp.runs.chosen import ChosenStructure
from aacp.user.values import counted, score_text

# Subtracted before rounding up, since the root of a whole power may come out a little above a whole number.
ROUNDING = 1e-9


def rung_sizes(count: int, rungs: int) -> tuple[int, ...]:
    """How many structures each rung trains: count ** (1 - r / rungs) for r = 0, 1, ..., rounded up.

    The numbers fall evenly in logarithm, down to the one winner after the last rung: 16 structures and three rungs
    give 16, 7 and 3. From two structures on, every rung compares two or more.
    """
    return tuple(math.ceil(count ** (1 - rung / rungs) - ROUNDING) for rung in range(rungs))


def rungs_text(rungs: Sequence[int]) -> str:
    """Rungs for people: "one rung of 1 epoch", "rungs of 1, 30 epochs"."""
    if len(rungs) == 1:
        return f"one rung of {counted(rungs[0], 'epoch')}"
    return f"rungs of {', '.join(map(str, rungs))} epochs"


@dataclass(frozen=True)
class Finalist(Record):
    """A structure that is compared with others by short trainings."""

    choice: ChosenStructure  # as it would be written to structure.json
    is_uniform: bool = False  # whether it has the widths of the method "uniform"
    holdout: tuple[float, ...] = ()  # its score on the hold-out after the training of each rung that it took part in


@dataclass(frozen=True)
class Finalists(Record):
    """finalists.json: the choice of the search, the other finalists by their estimates, and the uniform one last."""

    rungs: tuple[int, ...]  # the epochs of the trainings of each rung
    finalists: tuple[Finalist, ...]
    notes: tuple[str, ...] = ()  # how the finalists were chosen, if it was not as requested

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many structures each rung trains."""
        return rung_sizes(len(self.finalists), len(self.rungs)) if len(self.finalists) > 1 else ()

    def members(self, rung: int) -> list[int]:
        """The positions of the finalists that a rung trains, in their order; all rungs before it must be finished.

        Of equal scores the earlier finalist goes on.

        Args:
            rung: the rung, counted from 0; the one after the last has the winner alone.
        """
        if rung == 0:
            return list(range(len(self.finalists)))
        left = self.members(rung - 1)
        size = self.sizes[rung] if rung < len(self.sizes) else 1
        best = sorted(left, key=lambda position: -self.finalists[position].holdout[rung - 1])
        return sorted(best[:size])

    def untrained(self, rung: int) -> list[int]:
        """The positions of the finalists whose training in a rung is not finished."""
        return [position for position in self.members(rung) if len(self.finalists[position].holdout) <= rung]

    @property
    def winner(self) -> Finalist | None:
        """The finalist that is delivered; None until the last rung is finished."""
        if any(self.untrained(rung) for rung in range(len(self.sizes))):
            return None
        return self.finalists[self.members(len(self.sizes))[0]]

    def with_score(self, position: int, score: float) -> Finalists:
        """The same with the score of one more training of the finalist at a position."""
        changed = list(self.finalists)
        changed[position] = replace(changed[position], holdout=(*changed[position].holdout, score))
        return replace(self, finalists=tuple(changed))

    def name(self, position: int) -> str:
        """A finalist for people."""
        if self.finalists[position].is_uniform:
            return "the uniform structure"
        return "the choice of the search" if position == 0 else f"finalist {position + 1}"

    def __str__(self) -> str:
        winner = self.winner
        if winner is None or not self.sizes:
            return f"{len(self.finalists)}, {'not finished' if winner is None else 'which needs no training'}"
        scored = [self._scored(each) for each in self.finalists if each is winner or each.is_uniform]
        return f"{len(self.finalists)} in {rungs_text(self.rungs)}; {'; '.join(scored)}"

    def _scored(self, finalist: Finalist) -> str:
        verb = "won" if finalist is self.winner else "left"
        length = counted(self.rungs[len(finalist.holdout) - 1], "epoch")
        name = self.name(self.finalists.index(finalist))
        return f"{name} {verb} with {score_text(finalist.holdout[-1])} on the hold-out after {length}"
