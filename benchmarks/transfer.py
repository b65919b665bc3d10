"""Claim: a search that reuses the candidates of two others is, after 30 evaluations, as good as a search without them
after 100.

Synthetic problems of three families over the costs of VGG16, ResNet56 and ResNet110 in turn, 12 seeds each. Two
searches of 60 evaluations run at -35 % and -65 % MACs. The third, at -50 %, either starts with their candidates
("taught") or without them ("fresh"). The numbers are the true accuracy of the recommended structure, in per cent.
Raw numbers and versions: results/transfer.json.

    python benchmarks/transfer.py [--seeds 12] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from aacp.bench.compare import NETWORKS
from aacp.bench.problems import FAMILIES, Problem, pruning_problem
from aacp.runs.provenance import Provenance
from aacp.search.history import History
from aacp.search.loop import run_search
from aacp.search.methods import searcher

OTHERS, EARLIER, MARKS = (0.35, 0.65), 60, (30, 50, 100)
Rows = dict[str, list[list[float]]]


def problem_of(family: str, seed: int, rate: float) -> Problem:
    """The problem of a seed under a budget; seeds alternate between networks, as in `aacp bench search`."""
    return pruning_problem(family, NETWORKS[seed % len(NETWORKS)], seed, rate)


def known_of(family: str, seed: int) -> History:
    """The candidates that searches under the other budgets have evaluated."""
    problems = [problem_of(family, seed, rate) for rate in OTHERS]
    methods = [searcher("default", problem.space, problem.budget, seed) for problem in problems]
    pairs = zip(methods, problems, strict=True)
    return History.merged([run_search(one, two.estimate, evaluations=EARLIER).history for one, two in pairs])


def scores(problem: Problem, seed: int, known: History) -> list[float]:
    """The true accuracy, in per cent, of the recommended structure after each number of evaluations."""
    method, found = searcher("default", problem.space, problem.budget, seed, known=known), []
    for mark in MARKS:
        result = run_search(method, problem.estimate, evaluations=mark)
        found.append(round(100 * float(problem.true([list(result.recommended.structure)])[0]), 4))
    return found


def measured(family: str, seeds: int) -> Rows:
    """One row per seed and one column per mark, for fresh and for taught searches."""
    rows: Rows = {"fresh": [], "taught": []}
    for seed in range(seeds):
        problem = problem_of(family, seed, 0.5)
        rows["fresh"].append(scores(problem, seed, History()))
        rows["taught"].append(scores(problem, seed, known_of(family, seed)))
        print(f"{family} {seed}: {rows['fresh'][-1]} fresh, {rows['taught'][-1]} taught", file=sys.stderr, flush=True)
    return rows


def table(found: dict[str, Rows]) -> str:
    """The means over seeds; the last column is the paired difference of the claim, with its standard error."""
    lines = ["| damage | search | " + " | ".join(f"after {mark}" for mark in MARKS) + " | at 30, less fresh at 100 |"]
    lines.append("|---" * (3 + len(MARKS)) + "|")
    for family, rows in found.items():
        for kind, values in rows.items():
            apart = np.array(values)[:, 0] - np.array(rows["fresh"])[:, -1]
            error = apart.std(ddof=1) / len(apart) ** 0.5
            means = " | ".join(f"{mean:.2f}" for mean in np.mean(values, axis=0))
            lines.append(f"| {family} | {kind} | {means} | {apart.mean():+.2f} ± {error:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {family: measured(family, options.seeds) for family in FAMILIES}
    print(table(found))
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    result |= {"others": OTHERS, "earlier evaluations": EARLIER, "marks": MARKS, "accuracy in per cent": found}
    if options.out:
        (options.out / "transfer.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
