"""A small synthetic problem for tests of search methods."""

from aacp.bench.networks import resnet
from aacp.bench.problems import Problem, pruning_problem
from aacp.cost.budget import Budget, Limit


def small_problem() -> Problem:
    """ResNet20 with coupled damage and a noisy estimate, under two limits."""
    one = pruning_problem("neighbour", "resnet20", seed=3)
    network = resnet(20)
    budget = Budget(Limit(network.macs(), pruning_rate=0.5), Limit(network.params(), pruning_rate=0.4))
    return Problem("test", one.space, budget, one.true, one.images, one.seed)
