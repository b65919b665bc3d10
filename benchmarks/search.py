"""Claim: to be measured.

python benchmarks/search.py
"""

from pathlib import Path

from aacp.bench.commands import search

if __name__ == "__main__":
    search(["--out", str(Path(__file__).parent / "results")])
