"""Claim: after two-sided rescaling no step fits; at -50 % MACs it leaves 0.19 points on VGG16, 0.09 on ResNet56.

Mean of 1,000 random vectors, step c/8; Algorithm 1, which only shrinks, leaves 18.7 and 18.8. A proposal for 51 groups
takes 0.03 ms (paper), 0.20 ms (ide+), 18 ms (default at 200 observations) of one Xeon thread. Versions and
hardware: results/slack.md.

    python benchmarks/slack.py [--out FOLDER]
"""

import sys
from pathlib import Path

from aacp.bench.commands import slack

if __name__ == "__main__":
    slack(["--out", str(Path(__file__).parent / "results"), *sys.argv[1:]])
