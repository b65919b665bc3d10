"""Small problems that every search test can afford."""

import pytest

from aacp.bench.networks import resnet
from aacp.bench.problems import Problem, pruning_problem
from aacp.cost.budget import Budget, Limit
from aacp.space import SearchSpace


@pytest.fixture(scope="session")
def problem() -> Problem:
    """ResNet20 with coupled damage and a noisy estimate, two limits."""
    one = pruning_problem("neighbour", "resnet20", seed=3)
    network = resnet(20)
    budget = Budget(Limit(network.macs(), pruning_rate=0.5), Limit(network.params(), pruning_rate=0.4))
    return Problem("test", one.space, budget, one.true, one.images, one.seed)


@pytest.fixture(scope="session")
def space(problem: Problem) -> SearchSpace:
    return problem.space


@pytest.fixture(scope="session")
def budget(problem: Problem) -> Budget:
    return problem.budget
