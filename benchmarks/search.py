"""Claim: with 200 evaluations the default search is better than the released search of the authors with 2,000, than the
search as printed in the paper and than every rival, on average on each family of problems.

Regret in points, mean of 50 problems (spread, hardware and versions: results/search_*.md), default after 200 / released
after 200 and 2,000 / paper as printed after 200 / best rival after 200: additive 0.81 / 3.73 and 1.96 / 6.37 / 1.43,
neighbour-coupled 0.74 / 11.15 and 4.06 / 21.46 / 1.93, randomly coupled 0.86 / 7.76 and 3.03 / 13.97 / 1.46, knapsack
without noise 0.05 / 2.45 and 0.23 / 3.03 / 0.53.

    python benchmarks/search.py [--processes 16]
"""

import sys
from pathlib import Path

from aacp.bench.commands import search

if __name__ == "__main__":
    search(["--out", str(Path(__file__).parent / "results"), *sys.argv[1:]])
