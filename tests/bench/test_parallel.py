"""Benchmarks in several processes."""

import os

import pytest

from aacp.bench import compare
from aacp.bench.parallel import results_of


def process_number(_: int) -> int:
    return os.getpid()


@pytest.mark.slow
def test_several_processes_give_the_results_of_one_and_really_run_elsewhere() -> None:
    one, two = (
        compare.measure("knapsack", 2, ("uniform", "random"), (5,), own_lengths={}, processes=processes)
        for processes in (1, 2)
    )
    assert one == two
    assert os.getpid() not in results_of(process_number, range(2), processes=2)
    assert results_of(process_number, range(2)) == [os.getpid()] * 2
