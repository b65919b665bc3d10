"""What a search finds that follows a correction of the latency table, and knows the evaluations before it.

`aacp prune` measures the best candidates of a search with a limit on latency. If they miss it, it corrects the table
and searches again, with a quarter of the evaluations. This script repeats that second search for runs that
search_pays.py has recorded, with several seeds. It reads the first search, the table and the measured latencies from
files, so nothing depends on the speed of this machine, and the structures are not timed.

For each run and seed it prints the best estimate of the first search, whose candidates missed the limit, the best one
of the second search, and how many structures of the second have an estimate below 80 %.

    python benchmarks/corrected_searches.py RECORDED --weights FILE --data FOLDER [--network mobilenet_v2]
        [--latency-rate 0.4] [--step 8] [--images 1000] [--evaluations 20] [--runs 0 1] [--seeds 0 1] [--out FOLDER]

RECORDED is a folder such as benchmarks/results/search_pays_mobilenet_v2_latency_40_0_epochs_third, with the table in
latency.json and each run in search-SEED. Rows are written when they are complete, each with the commit of aacp that it
was measured with. The same command resumes, and adds rows if it runs another commit: PYTHONPATH=CHECKOUT/src.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

import aacp
import repair_treatments as shared
from aacp.pipeline.searching import MEASURED_CANDIDATES
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.search.history import Candidate

NAME = "corrected_searches"
LOW = 0.8  # a good structure of these runs has a higher estimate


def lines_of(file: Path) -> list[dict[str, Any]]:
    """What the lines of a file hold; their checksums are those of a run folder, which this is only a part of."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def corrected(table: aacp.LatencyTable, graph: aacp.ChannelGraph, run: Path) -> aacp.LatencyTable:
    """The table after its first correction: by the upper ends of the measured shares of the unpruned latency."""
    checks = lines_of(run / "checks.jsonl")[:MEASURED_CANDIDATES]
    seconds = [checked["ratio"]["upper"] * table.reference for checked in checks]
    return table.corrected(graph, [checked["counts"] for checked in checks], seconds)


def table_of(rows: list[shared.Row]) -> str:
    """A line for each search: best estimates of the first and of the second search, in per cent."""
    lines = ["| commit | run | seed | first search | second search | below 80 % |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (row["commit"], row["run"], row["seed"])):
        low = sum(score < LOW for score in row["scores"])
        best = f"{100 * row['before']:.2f} | {100 * max(row['scores']):.2f}"
        lines.append(f"| {row['commit']} | {row['run']} | {row['seed']} | {best} | {low} of {len(row['scores'])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recorded", type=Path)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True, help="folder of the CIFAR-10 binaries")
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--latency-rate", type=float, default=0.4)
    parser.add_argument("--step", type=int, default=8)
    parser.add_argument("--images", type=int, default=1000, help="images for the recalibration")
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--runs", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = aacp.build_model(options.network).eval()
    aacp.load_weights(model, options.weights)
    data = aacp.load_data(f"cifar10:{options.data}")
    graph = aacp.trace(model, aacp.example_input(model))
    # The machine that recorded the runs may be another one.
    table = replace(aacp.LatencyTable.load(options.recorded / "latency.json"), elsewhere=True)
    space = aacp.SearchSpace(graph, options.step)
    limits = aacp.Budget.of({"latency": options.latency_rate})
    found = options.out / f"{NAME}.json" if options.out else None
    rows = json.loads(found.read_text())["rows"] if found and found.exists() else []
    for seed, run in product(options.seeds, options.runs):
        about = {"commit": shared.commit(), "run": run, "seed": seed}
        if any(about.items() <= row.items() for row in rows):
            continue
        folder = options.recorded / f"search-{run}"
        plan = aacp.Plan(seed=run, calibration_images=options.images, pruning_step=options.step, reconstruction=None)
        task = PruningTask.of(model, data, options.network, torch.device(options.device))
        estimate = SharedEstimate(task, plan).estimate(graph)
        known = aacp.History(map(Candidate.from_json, lines_of(folder / "history.jsonl")))
        budget = limits.on(graph, corrected(table, graph, folder))
        method = aacp.searcher("default", space, budget, seed=seed, known=known)
        history = aacp.run_search(method, estimate, evaluations=options.evaluations).history
        counts = [list(candidate.structure) for candidate in history]
        rows.append(about | {"before": known.best.score, "scores": history.scores.tolist(), "counts": counts})
        shared.write(options.out, NAME, shared.circumstances(options.device) | {"rows": rows})
    print(table_of(rows))


if __name__ == "__main__":
    main()
