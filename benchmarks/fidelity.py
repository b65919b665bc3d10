"""What a search on few images gives, if its most promising structures are scored on all, and what it costs.

The default search with all images is stopped after several numbers of evaluations. With screening it has as
many as the longest of these on a share of the images, and then scores the structures of
`aacp.search.screening.to_confirm` on all. The cost of a search is counted in estimates on all images.

- synthetic: problems with the binomial noise of 5,000 images, of which few are a part. The noise of one structure says
  nothing about that of another, which is less favourable than images are. Compared by the true score.
- network: the real estimate, with its seconds; those of recalibration and of scoring are separate. Calibration images
  are a share too. Compared by estimates on images that no search has used. Without `--network` it is digits_resnet,
  trained on half of the training digits; searches use the other half, and the test digits compare.

    python benchmarks/fidelity.py --parts synthetic --seeds 4 [--first 300] [--out FOLDER]
    python benchmarks/fidelity.py --parts network --seeds 5 --evaluations 100 [--out FOLDER]
    python benchmarks/fidelity.py --parts network --seeds 5 --network resnet56 --weights FILE --data cifar10:FOLDER
        --device cuda [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

import aacp
from aacp.bench.compare import problem_of
from aacp.bench.problems import Problem
from aacp.data.splits import sampled
from aacp.runs.provenance import machine
from aacp.search.correlation import spearman
from aacp.search.screening import sample, to_confirm
from aacp.search.searcher import Searcher
from aacp.train.recipe import DIGITS

FAMILIES = ("additive", "neighbour", "random")
MARKS = (30, 40, 60, 80, 100, 200)  # evaluations after which the search with all images is looked at
SHARES = (0.1, 0.2)
IMAGES = 5000  # of a synthetic problem
PARTS = {"resnet56": (4096, 5000, 10_000)}  # images to calibrate, score and compare
Row = dict[str, Any]


def plain(method: Searcher[Any], estimate: Any, marks: list[int]) -> list[tuple[aacp.Structure, float]]:
    """What a search recommends after numbers of evaluations, and the seconds until then."""
    begun = time.perf_counter()
    found = []
    for mark in marks:
        result = aacp.run_search(method, estimate, evaluations=mark)
        found.append((result.recommended.structure, time.perf_counter() - begun))
    return found


def screened(method: Searcher[Any], few: Any, whole: Any, evaluations: int, share: float) -> Row:
    """A search on few images, whose most promising structures are scored on all: what it chooses, and its error."""
    begun = time.perf_counter()
    history = aacp.run_search(method, few, evaluations=evaluations).history
    scores = {structure: whole(structure) for structure in to_confirm(method)}
    seconds = time.perf_counter() - begun
    pairs = [(each.score, scores[each.structure]) for each in sample(history)]
    differences = [small - full for small, full in pairs]
    return {
        "share": share, "evaluations": evaluations, "confirmed": len(scores), "seconds": seconds,
        "cost": share * evaluations + len(scores), "chosen": max(scores, key=lambda each: scores[each]),
        "mean": fmean(differences), "deviation": stdev(differences),
        "correlation": spearman(*map(list, zip(*pairs, strict=True))),
    }  # fmt: skip


def compared(
    name: str, seed: int, searches: Callable[[], Searcher[Any]], estimates: Row, marks: list[int]
) -> list[Row]:
    """The rows of one seed: the search with all images at each mark, and the screened ones."""
    judge = estimates["judge"]
    rows = [
        {"problem": name, "seed": seed, "share": 1.0, "evaluations": mark, "cost": float(mark), "seconds": seconds,
         "score": 100 * judge(structure)}
        for mark, (structure, seconds) in zip(marks, plain(searches(), estimates["whole"], marks), strict=True)
    ]  # fmt: skip
    for share, few in estimates["few"].items():
        found = screened(searches(), few, estimates["whole"], marks[-1], share)
        score = 100 * judge(found.pop("chosen"))
        rows.append({"problem": name, "seed": seed, **found, "score": score})
    print(f"{name}, seed {seed}: " + ", ".join(f"{row['cost']:g}: {row['score']:.2f}" for row in rows), flush=True)
    return rows


def table(rows: list[Row]) -> None:
    """The difference to the longest search with all images, mean ± standard error over problems and seeds."""
    print("| images of a search | evaluations | cost | difference, points | seconds |\n|---|---|---|---|---|")
    last = max(row["evaluations"] for row in rows)
    base = {
        (row["problem"], row["seed"]): row["score"] for row in rows if (row["share"], row["evaluations"]) == (1, last)
    }
    for share, evaluations in dict.fromkeys((row["share"], row["evaluations"]) for row in rows):
        part = [row for row in rows if (row["share"], row["evaluations"]) == (share, evaluations)]
        gains = [row["score"] - base[row["problem"], row["seed"]] for row in part]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        cost, seconds = (fmean(row[name] for row in part) for name in ("cost", "seconds"))
        images = "all" if share == 1 else f"{share:.0%}, then all"
        print(f"| {images} | {evaluations} | {cost:.0f} | {fmean(gains):+.2f} ± {error:.2f} | {seconds:.1f} |")


# -- synthetic problems ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting:
    """The share of right answers among all images of a problem, or among few that are a part of them."""

    problem: Problem
    images: int

    def __call__(self, structure: aacp.Structure) -> float:
        generator = np.random.default_rng([self.problem.seed, *structure])
        right = int(generator.binomial(IMAGES, float(self.problem.true([list(structure)])[0])))
        return int(generator.hypergeometric(right, IMAGES - right, self.images)) / self.images


def measure_synthetic(options: argparse.Namespace) -> list[Row]:
    rows = []
    for seed in range(options.first, options.first + options.seeds):
        for family in FAMILIES:
            problem = problem_of(family, seed)
            estimates = {
                "whole": Counting(problem, IMAGES),
                "few": {share: Counting(problem, round(share * IMAGES)) for share in options.shares},
                "judge": partial(_truth, problem),
            }
            searches = partial(aacp.searcher, "default", problem.space, problem.budget, seed)
            rows += compared(family, seed, searches, estimates, marks_of(options))
    return rows


def _truth(problem: Problem, structure: aacp.Structure) -> float:
    return float(problem.true([list(structure)])[0])


def marks_of(options: argparse.Namespace) -> list[int]:
    return sorted({mark for mark in (*MARKS, options.evaluations) if mark <= options.evaluations})


# -- a real network ----------------------------------------------------------------------------------------------------


class RealNetwork:
    """A network with estimates on few and on all images, and one on images that no search uses."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        model = aacp.build_model(options.network)
        if options.network == "digits_resnet":
            data = aacp.load_data("digits", holdout=0.5)
            aacp.fit(model, data.train, DIGITS.scaled(15), device="cpu")
            parts = [data.train, data.holdout, data.test]
        else:
            aacp.load_weights(model, options.weights)
            images = aacp.load_data(options.data).train
            sizes = PARTS[options.network]
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
            parts = [images.subset(part) for part in order[: sum(sizes)].split(sizes)]
        graph = aacp.trace(model.eval(), aacp.example_input(model))
        calibration, holdout, others = parts
        inheritance = aacp.Inheritance(model, graph, calibration, device=options.device)
        self.whole = aacp.PSAE(inheritance, holdout)
        self.judge = aacp.PSAE(inheritance, others)
        self.few = {share: self._few(inheritance, calibration, holdout, share) for share in options.shares}
        self.space = aacp.SearchSpace(graph)
        self.budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=0.5))

    def _few(self, inheritance: aacp.Inheritance, calibration: Any, holdout: Any, share: float) -> aacp.PSAE:
        fewer, few = (sampled(part, round(share * len(part))) for part in (calibration, holdout))
        return aacp.PSAE(inheritance.recalibrating_on(fewer), few)

    def search(self, seed: int) -> Searcher[Any]:
        """A new search, for which no score is known."""
        for estimate in (self.whole, *self.few.values()):
            estimate.scores.clear()
        return aacp.searcher("default", self.space, self.budget, seed)

    def seconds(self, structures: list[aacp.Structure]) -> Row:
        """The seconds of an estimate on all and on few images, and of its parts: making the network, and scoring it."""
        found = {}
        for name, estimate in [("all", self.whole), *((f"{share:g}", few) for share, few in self.few.items())]:
            made = [_timed(lambda each=each, one=estimate: one._running.network(each)) for each in structures]
            estimate.scores.clear()
            both = [_timed(lambda each=each, one=estimate: one(each)) for each in structures]
            found[name] = {"network": fmean(made[1:]), "estimate": fmean(both[1:])}  # the first is a warm-up
            made_in, scored_in = found[name]["network"], found[name]["estimate"]
            print(f"images {name}: {made_in:.3f} s to make a network, {scored_in:.3f} s in all")
        return found


def _timed(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def measure_network(options: argparse.Namespace) -> list[Row]:
    network = RealNetwork(options)
    generator = np.random.default_rng(0)
    full = network.space.counts(network.space.levels - 1)
    starts = [generator.uniform(0.3, 1.0, len(full)) * full for _ in range(6)]
    structures = [aacp.rescale(start, network.space, network.budget, generator) for start in starts]
    rows: list[Row] = [{"seconds of an estimate": network.seconds(structures)}]
    estimates = {"whole": network.whole, "few": network.few, "judge": network.judge}
    for seed in range(options.first, options.first + options.seeds):
        rows += compared(options.network, seed, partial(network.search, seed), estimates, marks_of(options))
    return rows


def circumstances(options: argparse.Namespace) -> Row:
    """The command (without the places of files), the versions and the hardware of a result."""
    files = "" if options.weights is None else " --weights FILE --data cifar10:FOLDER --device cuda"
    named = f" --network {options.network}{files}" if options.network != "digits_resnet" else ""
    shares = " ".join(f"{share:g}" for share in options.shares)
    gpu = f"{torch.cuda.get_device_name()}, " if options.device.startswith("cuda") else ""
    return {
        "command": f"python benchmarks/fidelity.py --parts {' '.join(options.parts)} --seeds {options.seeds} --first "
        f"{options.first} --evaluations {options.evaluations} --shares {shares}{named}",
        "versions": f"python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}, "
        f"aacp {aacp.__version__}",
        "hardware": f"{gpu}{machine()}, {torch.get_num_threads()} threads",
        "note": options.note,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=["synthetic", "network"], default=["synthetic", "network"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--network", choices=["digits_resnet", *PARTS], default="digits_resnet")
    parser.add_argument("--weights")
    parser.add_argument("--data", help="as cifar10:FOLDER")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--note", default="", help="a sentence about the machine, for the result")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.network != "digits_resnet" and (options.weights is None or options.data is None):
        parser.error(f"{options.network} needs --weights and --data.")
    for part in options.parts:
        rows = {"synthetic": measure_synthetic, "network": measure_network}[part](options)
        table([row for row in rows if "share" in row])
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            name = part if part == "synthetic" else options.network
            (options.out / f"fidelity_{name}.json").write_text(
                json.dumps({**circumstances(options), "rows": rows}) + "\n"
            )


if __name__ == "__main__":
    main()
