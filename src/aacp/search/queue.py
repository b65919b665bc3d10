"""ScoreQueue: where the search sends the structures that it proposes, and where their scores come from."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from aacp.channels.structure import Structure

Estimate = Callable[[Any], float]  # of a structure; one that scores on few images too is also called with OnFewImages
Map = Callable[[Estimate, list[Any]], Iterable[float]]


@dataclass(frozen=True, slots=True)
class OnFewImages:
    """A structure that is to be scored on few images."""

    structure: Structure


Work = Structure | OnFewImages


class ScoreQueue(Protocol):
    """Evaluates structures, several at once if it can. Scores come in the order in which structures were submitted."""

    def submit(self, structure: Any) -> None:
        """Add a structure; this does not wait for its score."""
        ...

    def next_score(self) -> float:
        """The score of the earliest structure whose score was not returned yet."""
        ...

    def clear(self) -> None:
        """Forget all structures whose scores were not returned yet."""
        ...


class MapQueue:
    """Evaluates by an ordered map, such as that of an executor: what was submitted since the last call is one batch.

    Args:
        estimate: a function from a structure to its score.
        map: any ordered map; by default structures are evaluated one after another.
    """

    def __init__(self, estimate: Estimate, map: Map = builtins.map) -> None:
        self._estimate = estimate
        self._map = map
        self._waiting: list[Work] = []
        self._scores: Iterator[float] = iter(())
        self._left = 0  # scores of the last batch that were not returned yet

    def submit(self, structure: Work) -> None:
        self._waiting.append(structure)

    def next_score(self) -> float:
        if not self._left:
            self._scores = iter(self._map(self._estimate, self._waiting))
            self._left = len(self._waiting)
            self._waiting = []
        self._left -= 1
        return next(self._scores)

    def clear(self) -> None:
        self._waiting = []
        self._scores = iter(())
        self._left = 0


class FewImagesQueue:
    """A queue that lets another one score structures on few images.

    Args:
        queue: its estimate scores on few images too.
    """

    def __init__(self, queue: ScoreQueue) -> None:
        self._queue = queue

    def submit(self, structure: Structure) -> None:
        self._queue.submit(OnFewImages(structure))

    def next_score(self) -> float:
        return self._queue.next_score()

    def clear(self) -> None:
        self._queue.clear()


def structure_of(work: Work) -> Structure:
    """The structure that is to be scored."""
    return work.structure if isinstance(work, OnFewImages) else work
