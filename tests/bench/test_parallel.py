"""Benchmarks in several processes."""

import os

import pytest

from aacp.bench import compare
from aacp.bench.parallel import results_of

# A function of a test module cannot be imported by the processes, but this can.
PROCESS_NUMBER = "__import__('os').getpid()"


@pytest.mark.slow
def test_several_processes_give_the_results_of_one_and_really_run_elsewhere() -> None:
    one, two = (
        compare.measure("knapsack", 2, ("uniform", "random"), (5,), own_lengths={}, processes=processes)
        for processes in (1, 2)
    )
    assert one == two
    assert os.getpid() not in results_of(eval, [PROCESS_NUMBER] * 2, processes=2)
    assert results_of(eval, [PROCESS_NUMBER] * 2) == [os.getpid()] * 2
