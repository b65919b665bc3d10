"""Benchmarks of the search: Fig. 3 of the paper, comparisons of search methods, problems with known optima.

They are part of the package so that a reader of the paper can repeat Fig. 3 and the comparisons of docs/search.md from
an installed wheel, with `aacp bench` and nothing else. The methods of other papers that they compare with are in
`aacp.bench.rivals`. Importing aacp does not import this package.
"""

FAMILIES = ("additive", "neighbour", "random", "knapsack")  # the families of synthetic problems
ITERATIONS = 1000  # length of each run of Fig. 3; the paper's DE and ABC do not reach the optimum in it
