"""What the process that searches costs, and what batches of proposals cost, with 64 and 512 workers.

Workers are simulated: an estimate takes 1 or 60 virtual seconds (with a spread of 20 %), and scores are those of a
synthetic problem. The search and the pool are the real ones, and their time is measured.

- driver: real time of the search and the pool for one candidate.
- idle: the share of the time of all workers in which they wait, for the end of a batch or for the driver.
- wasted: evaluations that were handed out and never used.

The second table compares the default search with 1 and 8 proposals at once on synthetic problems: the true score, in
points, of the structure that is recommended after 200 evaluations with one proposal, and the difference to it after 200
and 220 evaluations with eight. ± is the standard error over problems.

    PYTHONPATH=src:tests python benchmarks/workers_simulated.py [--parts pool proposals] [--seeds 20] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

import aacp
from aacp.bench.compare import problem_of
from aacp.bench.problems import Problem, knapsack
from aacp.search.loop import run_search
from aacp.search.searcher import Searcher
from aacp.workers.pool import WorkerPool
from workers.simulated import SimulatedEngine

FAMILIES = ("additive", "neighbour", "random", "knapsack")
EVALUATIONS = 200
MORE = 220  # 10 % more evaluations


def guided(problem: Problem, seed: int, batch: int) -> Searcher[Any]:
    settings = aacp.GuidedEvolutionSettings(batch=batch)
    return aacp.GuidedEvolution(problem.space, problem.budget, seed, settings)


# -- the pool ---------------------------------------------------------------------------------------------------------


def simulated(workers: int, seconds: float, proposals: int, method: str) -> dict[str, Any]:
    """One search on simulated workers.

    Args:
        workers: the number of workers.
        seconds: the mean time of an estimate.
        proposals: structures that are proposed at once.
        method: "default" or "random", whose proposals cost nothing.
    """
    problem = knapsack(seed=0)
    spread = np.random.default_rng(0).uniform(0.8, 1.2, 100_000)
    engine = SimulatedEngine(workers, problem.estimate, lambda ticket: seconds * float(spread[ticket]))
    pool = WorkerPool(engine)
    evaluations = max(EVALUATIONS, 4 * proposals)
    search = aacp.searcher(method, problem.space, problem.budget, proposals=proposals)
    begun = time.perf_counter()
    found = run_search(search, problem.estimate, evaluations=evaluations, map=lambda _, batch: pool.map(batch))
    driver = time.perf_counter() - begun
    pool.close()
    count = len(found.history)
    return {
        "method": method, "workers": workers, "seconds": seconds, "proposals": proposals, "evaluations": count,
        "driver_milliseconds": 1e3 * driver / count,
        "idle": 1 - engine.busy / (workers * (engine.now + driver)),
        "wasted": len(engine.submitted) - count,
        "hours": (engine.now + driver) / 3600,
    }  # fmt: skip


def measure_pool() -> list[dict[str, Any]]:
    rows = []
    print("| method | workers | s per estimate | proposals | evaluations | driver, ms per candidate | idle | wasted |")
    print("|---|---|---|---|---|---|---|---|")
    for method in ("default", "random"):
        for workers in (64, 512):
            for seconds in (1.0, 60.0):
                for proposals in (8, workers, 4 * workers) if method == "random" else (8, workers):
                    row = simulated(workers, seconds, proposals, method)
                    rows.append(row)
                    print(
                        f"| {method} | {workers} | {seconds:.0f} | {proposals} | {row['evaluations']} | "
                        f"{row['driver_milliseconds']:.2f} | {row['idle']:.1%} | {row['wasted']} |",
                        flush=True,
                    )
    return rows


# -- proposals --------------------------------------------------------------------------------------------------------


def true_scores(problem: Problem, seed: int, batch: int, marks: Sequence[int]) -> list[float]:
    """The true score of the recommended structure after each number of evaluations, in points."""
    search = guided(problem, seed, batch)
    structures = [run_search(search, problem.estimate, evaluations=mark).recommended.structure for mark in marks]
    return [100 * float(problem.true([list(structure)])[0]) for structure in structures]


def measure_proposals(seeds: int) -> list[dict[str, Any]]:
    rows = []
    print("| problems | 1 proposal, 200 | 8 proposals, 200 above it | 8 proposals, 220 above it |")
    print("|---|---|---|---|")
    for family in FAMILIES:
        problems = [problem_of(family, seed) for seed in range(seeds)]
        one = [true_scores(problem, seed, 1, [EVALUATIONS])[0] for seed, problem in enumerate(problems)]
        eight = [true_scores(problem, seed, 8, [EVALUATIONS, MORE]) for seed, problem in enumerate(problems)]
        cells = []
        for mark in (0, 1):
            apart = [scores[mark] - alone for scores, alone in zip(eight, one, strict=True)]
            cells.append(f"{fmean(apart):+.2f} ± {stdev(apart) / len(apart) ** 0.5:.2f}")
        print(f"| {family} | {fmean(one):.2f} | {' | '.join(cells)} |", flush=True)
        rows.append({"family": family, "one": one, "eight": eight})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=["pool", "proposals"], default=["pool", "proposals"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {
        "command": f"PYTHONPATH=src:tests python benchmarks/workers_simulated.py --seeds {options.seeds}",
        "versions": f"python {platform.python_version()}, numpy {np.__version__}, aacp {aacp.__version__}",
        "hardware": platform.machine(),
    }
    if "pool" in options.parts:
        result["pool"] = measure_pool()
    if "proposals" in options.parts:
        result["proposals"] = measure_proposals(options.seeds)
    if options.out is not None:
        for part in options.parts:
            kept = {key: value for key, value in result.items() if key == part or not isinstance(value, list)}
            (options.out / f"workers_{part}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
