"""The problem that tests of rival search methods run on."""

import pytest

from aacp.bench.problems import Problem
from small_problem import small_problem


@pytest.fixture(scope="session")
def problem() -> Problem:
    return small_problem()
