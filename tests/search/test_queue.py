"""Scores by an ordered map: in the order of submission, and each structure evaluated when its batch begins."""

from collections.abc import Iterator

import pytest

from aacp.channels.structure import Structure
from aacp.search.queue import Estimate, MapQueue

STRUCTURES = [Structure((number, 2)) for number in range(1, 7)]


def tenfold(structure: Structure) -> float:
    return 10.0 * structure.counts[0]


class EagerMap:
    """A map that notes its batches, as that of an executor begins all at once."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, estimate: Estimate, structures: list[Structure]) -> Iterator[float]:
        self.batches.append(len(structures))
        return iter([estimate(structure) for structure in structures])


@pytest.mark.parametrize("mapped", [map, EagerMap()])
def test_scores_come_in_the_order_of_submission(mapped) -> None:
    queue = MapQueue(tenfold, mapped)
    for structure in STRUCTURES[:3]:
        queue.submit(structure)
    scores = [queue.next_score()]
    for structure in STRUCTURES[3:]:
        queue.submit(structure)
    scores += [queue.next_score() for _ in range(5)]
    assert scores == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]


def test_what_was_submitted_meanwhile_is_one_batch() -> None:
    mapped = EagerMap()
    queue = MapQueue(tenfold, mapped)
    for structure in STRUCTURES:
        queue.submit(structure)
        if structure.counts[0] in (2, 3):
            queue.next_score()
    assert [queue.next_score() for _ in range(4)] == [30.0, 40.0, 50.0, 60.0]
    assert mapped.batches == [2, 4]


def test_what_is_forgotten_is_not_evaluated() -> None:
    seen: list[Structure] = []
    queue = MapQueue(lambda structure: seen.append(structure) or tenfold(structure))
    for structure in STRUCTURES[:3]:
        queue.submit(structure)
    assert queue.next_score() == 10.0
    queue.clear()
    queue.submit(STRUCTURES[5])
    assert queue.next_score() == 60.0
    assert seen == [STRUCTURES[0], STRUCTURES[5]]
