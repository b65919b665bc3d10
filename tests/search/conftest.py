"""A small problem for all tests of search methods."""

import pytest

from aacp.bench.problems import Problem
from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget
from small_problem import small_problem


@pytest.fixture(scope="session")
def problem() -> Problem:
    return small_problem()


@pytest.fixture(scope="session")
def space(problem: Problem) -> SearchSpace:
    return problem.space


@pytest.fixture(scope="session")
def budget(problem: Problem) -> Budget:
    return problem.budget
