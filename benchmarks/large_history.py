"""Claim: a search of 100,000 candidates is resumed, saved, queried and reported in bounded time, size and memory.

A random search of ResNet56 (28 genes) with a made-up score runs to the given length in a run folder, is interrupted,
and is resumed. Every number has a limit and an oracle:

- resume: the resumed method continues with the same structures as the one that was not interrupted.
- checkpoint and append: timed on the folder of the whole search; the checkpoint has the size of an early one.
- Pareto front of score, MACs and parameters, and of all costs: on random subsets it is what a double loop finds, and
  every candidate of the whole history is dominated by a member of the front or is a member.
- top, rebudget, merged, closest: what sorting and filtering with plain Python gives, on a random subset.
- report: of one run, and of a sweep whose runs share the candidates; the best candidate and every vertex of the front
  are in the page.
- memory: the peak of each step beyond what was in use when it began, by tracemalloc in a pass of its own with a tenth
  of the candidates; and the largest resident size of the process in the whole pass, with torch and plotly in it.

Raw numbers, versions, hardware and seeds: results/large_history.json.

    python benchmarks/large_history.py [--candidates 100000] [--seed 0] [--runs 10] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import aacp
from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost, macs, params
from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import computed_costs
from aacp.report.page import write_report
from aacp.runs.files import CHECKPOINT, GRAPH, HISTORY, RUN
from aacp.runs.folder import RunFolder
from aacp.runs.provenance import Provenance
from aacp.runs.requests import Request
from aacp.search.baselines import RandomSearch, RandomSearchSettings
from aacp.search.history import Candidate, History
from aacp.search.pareto import unbeaten
from aacp.search.saving import SearchFiles, recorded
from aacp.search.transfer import closest

# Seconds and megabytes that issue 17 allows for 100,000 candidates, and megabytes of memory beyond the candidates.
LIMITS = {"resume": 5.0, "checkpoint": 0.05, "append": 0.05, "front": 1.0, "report": 10.0, "report_mb": 10.0}
BATCH = 200  # structures of a generation
SUBSET = 1500  # candidates that oracles in plain Python, or with all pairs, are given
EARLY = 1000  # evaluations after which the first checkpoint is measured


class Subject:
    """A network, its budget and a made-up score: the smaller network scores less, with noise of its own counts."""

    def __init__(self, seed: int) -> None:
        network = aacp.build_model("resnet56")
        self.seed = seed
        self.graph: ChannelGraph = aacp.trace(network, aacp.example_input(network, (1, 3, 32, 32)))
        self.space = SearchSpace(self.graph, 1 / 8)
        self.budget = Budget(Limit(macs(self.graph), pruning_rate=0.3), Limit(params(self.graph), pruning_rate=0.2))
        self._full = np.asarray(self.graph.full, dtype=np.float64)
        self._weights = np.random.default_rng(seed).random(len(self._full))

    def score(self, structures: NDArray[np.int64]) -> NDArray[np.float64]:
        kept = structures / self._full
        noise = np.sin(structures @ np.arange(1, len(self._full) + 1))
        return np.asarray(0.95 - 0.3 * ((1 - kept) ** 2 @ self._weights) / self._weights.sum() + 0.003 * noise)

    def method(self) -> RandomSearch:
        settings = RandomSearchSettings(batch=BATCH)
        return RandomSearch(self.space, self.budget, self.seed, settings)

    def evaluate(self, method: RandomSearch, evaluations: int) -> list[Candidate]:
        """The candidates of the next generations, until the method has this many."""
        found = []
        while len(method.history) < evaluations:
            batch = method.ask()[: evaluations - len(method.history)]
            scores = self.score(np.array([structure.counts for structure in batch]))
            found += method.tell(zip(batch, scores.tolist(), strict=True))
        return found


def written(subject: Subject, folder: Path, candidates: int) -> tuple[RandomSearch, int]:
    """Write the folder of an interrupted search; the method, and the bytes of an early checkpoint.

    The log is written at once, since 100,000 calls of fsync take minutes; the bytes are those of `append`.
    """
    method = subject.method()
    found = subject.evaluate(method, min(EARLY, candidates // 10))
    files = SearchFiles(RunFolder(folder))
    files.save(method)
    early = (folder / CHECKPOINT).stat().st_size
    found += subject.evaluate(method, candidates - BATCH // 2)
    method.ask()
    files.save(method)
    found += subject.evaluate(method, candidates)
    files.folder.write_log(HISTORY, (candidate.to_json() for candidate in found))
    files.folder.write_json(GRAPH, subject.graph.to_json())
    return method, early


class Timer:
    """Seconds of each step by name, or its peak of memory in a pass with tracemalloc."""

    def __init__(self, traces_memory: bool) -> None:
        self.traces_memory = traces_memory
        self.found: dict[str, float] = {}
        self.cpu: dict[str, float] = {}  # seconds of this process, which other processes on the machine do not lengthen

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        if not self.traces_memory:
            begun = time.perf_counter()
            cpu_begun = time.process_time()
            result = work()
            self.cpu[name] = round(time.process_time() - cpu_begun, 4)
            self.found[name] = round(time.perf_counter() - begun, 4)
        else:
            tracemalloc.start()
            result = work()
            self.found[name] = round(tracemalloc.get_traced_memory()[1] / 1e6, 1)
            tracemalloc.stop()
        print(f"{name}: {self.found[name]} {'MB' if self.traces_memory else 's'}", file=sys.stderr, flush=True)
        return result


def steps(subject: Subject, folder: Path, method: RandomSearch, runs: int, timer: Timer) -> dict[str, Any]:
    """Carry out every step on the folder of a search, and compare its results with those of the oracles."""
    files = SearchFiles(RunFolder(folder))
    resumed = subject.method()
    timer("resume", lambda: files.resume(resumed))
    checks = {"resumed as uninterrupted": resumed.history == method.history and resumed.ask() == method.ask()}
    timer("checkpoint", lambda: files.save(resumed))
    late = (folder / CHECKPOINT).stat().st_size
    spare = RunFolder(folder.parent / "spare")
    spare.write_bytes(HISTORY, (folder / HISTORY).read_bytes())
    timer("first_append", lambda: spare.append(HISTORY, method.history[0].to_json()))  # may hash the log once
    timer("append", lambda: spare.append(HISTORY, method.history[1].to_json()))
    known = timer("recorded", lambda: recorded(folder))
    checks["recorded"] = known == method.history
    both = [macs(subject.graph), params(subject.graph)]
    front = timer("front", lambda: known.pareto(both))
    checks["front"] = is_front(known, both, front) and subsets_agree(known, both, subject.seed)
    every = computed_costs(subject.graph)
    wide = timer("front_of_all_costs", lambda: known.pareto(every))
    checks["front of all costs"] = is_front(known, every, wide) and subsets_agree(known, every, subject.seed)
    timer("top", lambda: known.top(5000))
    tight = Budget(Limit(both[0], pruning_rate=0.5), Limit(both[1], pruning_rate=0.4))
    timer("rebudget", lambda: known.rebudget(tight))
    timer("closest", lambda: closest(known, tight))
    checks["top, rebudget, closest"] = queries_agree(known, tight, subject.seed)
    parts = [History(each for each in known if each.number % runs == part) for part in range(runs)]
    merged = timer("merged", lambda: History.merged([*parts, known]))
    checks["merged"] = {each.structure for each in merged} == {each.structure for each in known}
    page = timer("report", lambda: write_report(folder))
    checks["report"] = shows(page, known, every)
    sweep = sweep_of(subject, folder, parts)
    pages = timer("report_of_sweep", lambda: write_report(sweep))
    checks["report of sweep"] = shows(pages, merged, every[:2])
    sizes = {
        "history_mb": (folder / HISTORY).stat().st_size / 1e6,
        "late_checkpoint_bytes": late,
        "report_mb": page.stat().st_size / 1e6,
        "report_of_sweep_mb": pages.stat().st_size / 1e6,
    }
    return {"front": len(front), "front_of_all_costs": len(wide), "sizes": sizes, "checks": checks}


# -- oracles ----------------------------------------------------------------------------------------------------------


def losses(candidates: Sequence[Candidate], costs: Sequence[Cost]) -> NDArray[np.float64]:
    counts = np.array([each.structure.counts for each in candidates])
    return np.stack([[-each.score for each in candidates], *(cost(counts) for cost in costs)], axis=1)


def subsets_agree(known: History, costs: Sequence[Cost], seed: int) -> bool:
    """Whether the front of random subsets is the one that comparing all pairs gives."""
    generator = np.random.default_rng(seed)
    for _ in range(3):
        chosen = generator.choice(len(known), size=min(SUBSET, len(known)), replace=False)
        rows = losses([known[int(place)] for place in chosen], costs)
        no_worse = (rows[:, None] <= rows[None]).all(axis=2)
        if not np.array_equal(unbeaten(rows), ~(no_worse & ~no_worse.T).any(axis=0)):
            return False
    return True


def is_front(known: History, costs: Sequence[Cost], front: Sequence[Candidate]) -> bool:
    """Whether no member dominates another, and every other candidate is dominated by a member."""
    rows, best = losses(list(known), costs), losses(front, costs)
    dominated = np.zeros(len(rows), dtype=bool)
    for one in best:
        dominated |= (one <= rows).all(axis=1) & (one < rows).any(axis=1)
    members = {each.number for each in front}
    return all(bool(dominated[place]) != (each.number in members) for place, each in enumerate(known))


def queries_agree(known: History, budget: Budget, seed: int) -> bool:
    """Whether queries on a random subset give what sorting and filtering in plain Python give."""
    chosen = np.random.default_rng(seed).choice(len(known), size=min(SUBSET, len(known)), replace=False)
    subset = History(known[int(place)] for place in chosen)
    ranked = sorted(subset, key=lambda each: (-each.score, each.number))

    def shares(candidate: Candidate) -> list[float]:
        return [float(limit.cost(candidate.structure.counts)) / limit.bound for limit in budget.limits]

    fits = [each for each in ranked if max(shares(each)) <= 1]
    near = sorted(subset, key=lambda each: max(abs(share - 1) for share in shares(each)))
    top = subset.top(5000) == ranked and known.top(5000)[:1] == [known.best]
    return top and subset.rebudget(budget) == next(iter(fits), None) and closest(subset, budget) == near[:200]


def shows(page: Path, known: History, costs: Sequence[Cost]) -> bool:
    """Whether a page has the best score and the exact front of score and each cost."""
    figures = re.findall(r'<script type="application/json" id="([^"]*)-data">(.*?)</script>', page.read_text(), re.S)
    drawn = {name: {trace["name"]: trace for trace in json.loads(text)["data"]} for name, text in figures}
    assert known.best is not None
    for cost in costs:
        lines = drawn.get(f"all-front-{cost.name}") or drawn[f"run0-cost-{cost.name}"]
        front = lines["Pareto front"]
        rows = losses(list(known), [cost])
        expected = rows[unbeaten(rows)]
        shown = np.stack([-np.array(front["y"]) / 100, front["x"]], axis=1)
        if not np.allclose(np.unique(expected, axis=0), np.unique(shown, axis=0), rtol=1e-12):
            return False
        if 100 * known.best.score not in lines["tried"]["y"]:
            return False
    return True


# -- folders ----------------------------------------------------------------------------------------------------------


def sweep_of(subject: Subject, folder: Path, parts: Sequence[History]) -> Path:
    """Run folders that share the candidates of a search between them."""
    whole = folder.parent / "sweep"
    for number, part in enumerate(parts):
        run = RunFolder(whole / f"{number}")
        run.write_json(RUN, request(subject, 0.2 + number / 20).to_json())
        run.write_json(GRAPH, subject.graph.to_json())
        run.write_log(HISTORY, (each.to_json() for each in History.merged([part])))
    return whole


def request(subject: Subject, rate: float) -> Request:
    limits = (Limit("macs", pruning_rate=rate),)
    return Request("aacp search", "resnet56", "made up", limits, 1 / 8, "random", 0, subject.seed, {}, "", "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=10, help="runs of the sweep that share the candidates")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    subject = Subject(options.seed)
    passes = {}
    for name, traces_memory in (("seconds", False), ("peak_mb_of_a_tenth", True)):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            candidates = options.candidates // 10 if traces_memory else options.candidates
            method, early_bytes = written(subject, folder, candidates)
            timer = Timer(traces_memory)
            outcome = steps(subject, folder, method, options.runs, timer)
            passes[name] = timer.found
            if not traces_memory:
                results = {"early_checkpoint_bytes": early_bytes, **outcome}
                cpu_seconds = timer.cpu
                load = os.getloadavg()[0]
                resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    measured = {**passes["seconds"], "report_mb": results["sizes"]["report_mb"]}
    text = json.dumps(
        {
            **asdict(Provenance.of(" ".join(["python", *sys.argv]))),
            "system": platform.platform(),
            "settings": {name: value for name, value in vars(options).items() if name != "out"},
            "genes": len(subject.space),
            **results,
            **passes,
            "cpu_seconds": cpu_seconds,
            "processes_that_wanted_to_run": load,
            "cores": os.cpu_count(),
            "resident_mb": round(resident, 1),
            "limits": LIMITS,
            "met": {name: measured[name] <= limit for name, limit in LIMITS.items()},
            "met_by_cpu_seconds": {name: cpu_seconds[name] <= LIMITS[name] for name in LIMITS if name in cpu_seconds},
        },
        indent=1,
    )
    print(text)
    if options.out is not None:
        options.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
