"""What the process that searches costs, and what batches of proposals cost, with 64 and 512 workers.

Workers are simulated: an estimate takes 1 or 60 virtual seconds (with a spread of 20 %), and scores are those of a
synthetic problem. The search and the pool are the real ones; the time that they take passes for the workers too. It is
the time of the process on its core, so that other processes do not matter.

- driver: the time of the search and the pool for one candidate.
- idle: the share of the time of all workers in which they wait.
- between: the same, from the first structure that is chosen by scores to the last structure. It leaves out the first
  generation of the default search, which is smaller than the number of workers, and the end of the search.
- wasted: evaluations that were handed out and never used.

The second table compares the default search with 1 and 8 proposals at once on synthetic problems: the true score, in
points, of the structure that is recommended after 200 evaluations with one proposal, and the difference to it after 200
and 220 evaluations with eight. ± is the standard error over problems.

The third table, which needs a GPU, does the same for ResNet56 at -50 % MACs with the real estimate: 4,096 images to
recalibrate, 5,000 to score. Its numbers are estimated accuracies on 10,000 other images of the training data, which no
search has seen. `--smoke` tries it with a small network on the digits.

    PYTHONPATH=src:tests python benchmarks/workers_simulated.py [--parts pool proposals] [--seeds 20] [--out FOLDER]
        [--first 0] [--earlier workers_proposals.json]
    PYTHONPATH=src:tests python benchmarks/workers_simulated.py --parts resnet56 --seeds 3 --weights FILE
        --data cifar10:FOLDER [--out FOLDER]
    PYTHONPATH=src:tests python benchmarks/workers_simulated.py --parts resnet56 --seeds 2 --smoke
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
import torch

import aacp
from aacp.bench.compare import problem_of
from aacp.bench.problems import Problem, knapsack
from aacp.runs.provenance import machine
from aacp.search.loop import run_search
from aacp.workers.pool import WorkerPool
from workers.simulated import SimulatedEngine

FAMILIES = ("neighbour", "random", "knapsack", "additive")
EVALUATIONS = 200
MORE = 220  # 10 % more evaluations
FIRST = 10  # structures of the first generation of the default search
ROUNDS = 8  # evaluations for each worker, if there are as many proposals as workers
PARTS = {"resnet56": (4096, 5000, 10_000), "digits_resnet": (256, 256, 400)}  # images to calibrate, score and compare


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
    engine = SimulatedEngine(
        workers, problem.estimate, lambda ticket: seconds * float(spread[ticket]), driver=time.process_time
    )
    pool = WorkerPool(engine)
    evaluations = EVALUATIONS if proposals < workers else ROUNDS * workers
    search = aacp.searcher(method, problem.space, problem.budget, proposals=proposals)
    begun = time.process_time()
    found = run_search(search, problem.estimate, evaluations=evaluations, queue=pool)
    driver = time.process_time() - begun
    pool.close()
    count = len(found.history)
    return {
        "method": method, "workers": workers, "seconds": seconds, "proposals": proposals, "evaluations": count,
        "driver_milliseconds": 1e3 * driver / count,
        "idle": 1 - engine.busy / (workers * engine.now),
        "between": idle_between(engine.times, workers, FIRST if method == "default" else 0),
        "wasted": len(engine.submitted) - count,
        "hours": engine.now / 3600,
    }  # fmt: skip


def idle_between(times: Sequence[tuple[float, float]], workers: int, first: int) -> float:
    """The idle share from the beginning of an estimate, by its number, to that of the last."""
    begin, end = times[first][0], times[-1][0]
    busy = sum(max(0.0, min(end, ended) - max(begin, begun)) for begun, ended in times)
    return 1 - busy / (workers * (end - begin))


def measure_pool() -> list[dict[str, Any]]:
    rows = []
    print("| method | workers | s per estimate | proposals | evaluations | driver, ms each | idle | between | wasted |")
    print("|---|---|---|---|---|---|---|---|---|")
    for method in ("default", "random"):
        for workers in (64, 512):
            for seconds in (1.0, 60.0):
                for proposals in (8, workers, 2 * workers) if workers == 64 else (workers, 2 * workers):
                    row = simulated(workers, seconds, proposals, method)
                    rows.append(row)
                    print(
                        f"| {method} | {workers} | {seconds:.0f} | {proposals} | {row['evaluations']} | "
                        f"{row['driver_milliseconds']:.2f} | {row['idle']:.1%} | "
                        f"{row['between']:.1%} | {row['wasted']} |",
                        flush=True,
                    )
    return rows


# -- proposals --------------------------------------------------------------------------------------------------------


def true_scores(problem: Problem, seed: int, proposals: int, marks: Sequence[int]) -> list[float]:
    """The true score of the recommended structure after each number of evaluations, in points."""
    search = aacp.searcher("default", problem.space, problem.budget, seed, proposals=proposals)
    structures = [run_search(search, problem.estimate, evaluations=mark).recommended.structure for mark in marks]
    return [100 * float(problem.true([list(structure)])[0]) for structure in structures]


def header(problems: str, marks: Sequence[int]) -> None:
    few, more = marks
    print(f"| {problems} | 1 proposal, {few} | 8 proposals, {few} above it | 8 proposals, {more} above it |")
    print("|---|---|---|---|")


def line(name: str, one: list[float], eight: list[list[float]]) -> None:
    """A line of the table: the mean with one proposal, and the paired differences with eight."""
    cells = []
    for mark in (0, 1):
        apart = [scores[mark] - alone for scores, alone in zip(eight, one, strict=True)]
        cells.append(f"{fmean(apart):+.2f} ± {stdev(apart) / len(apart) ** 0.5:.2f}")
    print(f"| {name} | {fmean(one):.2f} | {' | '.join(cells)} |", flush=True)


def measure_proposals(seeds: range, earlier: Path | None) -> list[dict[str, Any]]:
    rows = []
    known = (
        {} if earlier is None else {row["family"]: row["one"] for row in json.loads(earlier.read_text())["proposals"]}
    )
    header("problems", (EVALUATIONS, MORE))
    for family in FAMILIES:
        problems = {seed: problem_of(family, seed) for seed in seeds}
        one = known.get(family, [])[seeds.start : seeds.stop] or [
            true_scores(problem, seed, 1, [EVALUATIONS])[0] for seed, problem in problems.items()
        ]
        eight = [true_scores(problem, seed, 8, [EVALUATIONS, MORE]) for seed, problem in problems.items()]
        line(family, one, eight)
        rows.append({"family": family, "seeds": list(seeds), "one": one, "eight": eight})
    return rows


# -- a real network ---------------------------------------------------------------------------------------------------


class RealNetwork:
    """A network with its estimate, and another estimate on images that no search sees."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.name = "digits_resnet" if options.smoke else "resnet56"
        device = "cpu" if options.smoke else options.device
        torch.manual_seed(0)
        model = aacp.build_model(self.name).eval()
        if options.weights is not None:
            aacp.load_weights(model, options.weights)
        graph = aacp.trace(model, aacp.example_input(model))
        images = aacp.load_data("digits" if options.smoke else options.data).train
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        sizes = PARTS[self.name]
        calibration, holdout, others = (images.subset(part) for part in order[: sum(sizes)].split(sizes))
        inheritance = aacp.Inheritance(model, graph, calibration, device=device)
        self.estimate = aacp.PSAE(inheritance, holdout)
        self.compare = aacp.PSAE(inheritance, others, execution="sliced")
        self.space = aacp.SearchSpace(graph)
        self.budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=0.5))

    def search(self, seed: int, proposals: int, marks: Sequence[int]) -> dict[str, Any]:
        """One search: what it recommends after each number of evaluations, and every score."""
        begun = time.perf_counter()
        self.estimate.scores.clear()
        method = aacp.searcher("default", self.space, self.budget, seed, proposals=proposals)
        found = [aacp.run_search(method, self.estimate, evaluations=mark) for mark in marks]
        seconds = time.perf_counter() - begun
        return {
            "seed": seed, "proposals": proposals, "marks": list(marks), "seconds": seconds,
            "recommended": [list(each.recommended.structure) for each in found],
            "estimated": [100 * each.recommended.score for each in found],
            "others": [100 * self.compare(each.recommended.structure) for each in found],
            "scores": [candidate.score for candidate in method.history],
        }  # fmt: skip


def measure_resnet56(options: argparse.Namespace) -> list[dict[str, Any]]:
    network = RealNetwork(options)
    few, more = (20, 22) if options.smoke else (EVALUATIONS, MORE)
    rows = []
    for seed in range(options.seeds):
        rows += [network.search(seed, 1, [few]), network.search(seed, 8, [few, more])]
        seconds = sum(row["seconds"] for row in rows[-2:])
        print(f"{network.name}, seed {seed}: {few} and {more} evaluations in {seconds:.1f} s", flush=True)
    header(network.name, (few, more))
    for name, images in (("others", "other images"), ("estimated", "images of the search")):
        line(images, [row[name][0] for row in rows[::2]], [row[name] for row in rows[1::2]])
    return rows


def circumstances(options: argparse.Namespace) -> dict[str, Any]:
    """The command (without the places of files), the versions and the hardware of a result."""
    chosen = (f" --first {options.first}" if options.first else "") + (" --earlier FILE" if options.earlier else "")
    files = " --weights FILE --data cifar10:FOLDER" if options.data else " --smoke" if options.smoke else ""
    parts = " ".join(options.parts)
    gpu = f"{torch.cuda.get_device_name()}, " if options.data and options.device.startswith("cuda") else ""
    versions = f"python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}"
    return {
        "command": f"python benchmarks/workers_simulated.py --parts {parts} --seeds {options.seeds}{chosen}{files}",
        "versions": f"{versions}, aacp {aacp.__version__}",
        "hardware": f"{gpu}{machine()}",
        "note": options.note,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=["pool", "proposals", "resnet56"], default=["pool", "proposals"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed of the synthetic problems")
    parser.add_argument("--earlier", type=Path, help="a result whose scores with one proposal are taken over")
    parser.add_argument("--weights", help="of ResNet56")
    parser.add_argument("--data", help="of ResNet56, as cifar10:FOLDER")
    parser.add_argument("--device", default="cuda", help="for ResNet56")
    parser.add_argument("--smoke", action="store_true", help="a small network on the digits in place of ResNet56")
    parser.add_argument("--note", default="", help="a sentence about the machine, for the result")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if "resnet56" in options.parts and not options.smoke and (options.weights is None or options.data is None):
        parser.error("ResNet56 needs --weights and --data. Give both, or --smoke.")
    measures = {
        "pool": measure_pool,
        "proposals": lambda: measure_proposals(range(options.first, options.first + options.seeds), options.earlier),
        "resnet56": lambda: measure_resnet56(options),
    }
    for part in options.parts:
        result = circumstances(options) | {part: measures[part]()}
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"workers_{part}.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
