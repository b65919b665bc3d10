"""The pool: scores in order, whoever computes them, and no structure lost with its worker."""

from __future__ import annotations

import logging

import pytest

from aacp.channels.structure import Structure
from aacp.errors import InvalidData, WorkerFailed
from aacp.workers.pool import MAX_LOSSES, WorkerPool
from workers.simulated import SimulatedEngine

BATCH = [Structure((number, 2)) for number in range(1, 8)]
SCORES = [10.0 * number for number in range(1, 8)]


def tenfold(structure: Structure) -> float:
    return 10.0 * structure.counts[0]


def slow_first(ticket: int) -> float:
    """Later structures are done earlier."""
    return 100.0 / (1 + ticket)


@pytest.mark.parametrize("count", [1, 2, 4, 20])
def test_scores_come_in_order_with_any_number_of_workers(count: int) -> None:
    engine = SimulatedEngine(count, tenfold, slow_first)
    assert list(WorkerPool(engine).map(BATCH)) == SCORES
    assert len({worker for worker, _ in engine.submitted}) == min(count, len(BATCH))


def test_workers_are_kept_for_the_next_batch_and_end_with_the_pool() -> None:
    engine = SimulatedEngine(2, tenfold)
    pool = WorkerPool(engine)
    assert list(pool.map(BATCH)) == SCORES
    assert list(pool.map(BATCH[:3])) == SCORES[:3]
    assert len({worker for worker, _ in engine.submitted}) == 2
    pool.close()
    assert not engine.alive


def test_all_workers_are_busy_until_nothing_is_left_to_do() -> None:
    engine = SimulatedEngine(3, tenfold)
    assert list(WorkerPool(engine).map([*BATCH, *BATCH[:2]])) == [*SCORES, *SCORES[:2]]
    assert engine.now == 3.0  # nine estimates of a second


@pytest.mark.parametrize("lost", [[2], [3], [2, 3, 5], [4, 6]])
def test_the_structure_of_a_lost_worker_is_estimated_again(lost: list[int], caplog: pytest.LogCaptureFixture) -> None:
    engine = SimulatedEngine(2, tenfold, lost=lost)
    assert list(WorkerPool(engine).map(BATCH)) == SCORES
    assert len(engine.submitted) >= len(BATCH) + 1
    assert "estimated again" in caplog.text


def test_a_structure_that_ends_every_worker_is_given_up_with_its_counts() -> None:
    engine = SimulatedEngine(1, tenfold, lost=range(1, 100, 2))
    with pytest.raises(WorkerFailed, match=rf"{MAX_LOSSES} workers ended while they estimated \[1, 2\]"):
        list(WorkerPool(engine).map(BATCH))  # a start, an estimate, a start and so on: every estimate is lost
    assert not engine.alive


def test_workers_that_never_start_are_given_up() -> None:
    engine = SimulatedEngine(1, tenfold, lost=range(100))
    with pytest.raises(WorkerFailed, match="before they were ready"):
        list(WorkerPool(engine).map(BATCH))


def test_workers_that_join_are_used() -> None:
    engine = SimulatedEngine(1, tenfold)
    scores = []
    for score in WorkerPool(engine).map(BATCH):
        scores.append(score)
        engine.count = 3
    assert scores == SCORES
    assert len({worker for worker, _ in engine.submitted}) == 3


def test_an_error_of_an_estimate_is_raised_and_ends_the_busy_workers() -> None:
    def failing(structure: Structure) -> float:
        if structure.counts[0] == 3:
            raise InvalidData("no data")
        return tenfold(structure)

    engine = SimulatedEngine(2, failing)
    pool = WorkerPool(engine)
    scores = pool.map(BATCH)
    assert [next(scores), next(scores)] == SCORES[:2]
    with pytest.raises(InvalidData):
        next(scores)
    pool.close()
    assert not engine.alive


def test_a_search_that_waits_for_workers_says_so(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr("aacp.workers.pool.PATIENCE_SECONDS", -1.0)
    with caplog.at_level(logging.WARNING):
        engine = SimulatedEngine(0, tenfold)
        scores = WorkerPool(engine).map(BATCH)
        engine.wait = lambda tickets, seconds: (
            setattr(engine, "count", 1)
            or SimulatedEngine.wait(  # type: ignore
                engine, tickets, seconds
            )
        )
        assert list(scores) == SCORES
    assert "The search waits" in caplog.text


def test_a_structure_that_is_submitted_later_gets_the_first_free_worker() -> None:
    """The first estimate takes 10 s, all others 1 s: the second worker does them all before the first is done."""
    engine = SimulatedEngine(2, tenfold, lambda ticket: 10.0 if ticket == 2 else 1.0)
    pool = WorkerPool(engine)
    pool.submit(BATCH[0])
    pool.submit(BATCH[1])
    pool.submit(BATCH[2])
    assert pool.next_score() == 10.0
    assert engine.now == 10.0
    assert pool.next_score() == 20.0
    pool.submit(BATCH[3])
    assert [pool.next_score(), pool.next_score()] == [30.0, 40.0]
    assert engine.now == 11.0
    pool.close()


def test_free_workers_get_structures_also_while_known_scores_are_returned() -> None:
    engine = SimulatedEngine(2, tenfold)
    pool = WorkerPool(engine)
    for structure in BATCH[:2]:
        pool.submit(structure)
    assert pool.next_score() == 10.0
    pool.submit(BATCH[2])
    pool.submit(BATCH[3])
    assert pool.next_score() == 20.0  # known before; it does not wait
    assert engine.now == 1.0
    assert [structure for _, structure in engine.submitted] == BATCH[:4]
    pool.close()


def test_what_is_forgotten_is_neither_returned_nor_estimated() -> None:
    engine = SimulatedEngine(2, tenfold, slow_first)
    pool = WorkerPool(engine)
    for structure in BATCH[:5]:
        pool.submit(structure)
    assert pool.next_score() == 10.0
    sent = len(engine.submitted)
    pool.clear()
    pool.submit(BATCH[6])
    assert pool.next_score() == 70.0
    assert [structure for _, structure in engine.submitted[sent:]] == [BATCH[6]]
    pool.close()
    assert not engine.alive
