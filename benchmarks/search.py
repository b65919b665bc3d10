"""Claim: at 200 evaluations the default search is better than the paper's and every rival on each family of problems.

Regret in points after 100 / 200 evaluations, mean of 50 problems (spread, hardware and versions: results/search_*.md):
additive 1.05 / 0.81 (paper 8.03 / 6.37, best rival 1.43 at 200), neighbour-coupled 1.39 / 0.74 (paper 23.25 / 21.46,
best rival 1.93), randomly coupled 1.07 / 0.86 (paper 16.18 / 13.97, best rival 1.46), knapsack without noise
0.16 / 0.05 (paper 3.55 / 3.03, best rival 0.53).

    python benchmarks/search.py
"""

from pathlib import Path

from aacp.bench.commands import search

if __name__ == "__main__":
    search(["--out", str(Path(__file__).parent / "results")])
