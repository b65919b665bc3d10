"""Claim: to be measured.

python benchmarks/slack.py
"""

from pathlib import Path

from aacp.bench.commands import slack

if __name__ == "__main__":
    slack(["--out", str(Path(__file__).parent / "results")])
