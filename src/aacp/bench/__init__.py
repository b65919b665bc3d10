"""Measurements behind what is claimed about the search, and problems with known answers."""

FAMILIES = ("additive", "neighbour", "random", "knapsack")  # of synthetic problems
ITERATIONS = 1000  # of each run of Fig. 3, in which the paper's DE and ABC do not arrive
