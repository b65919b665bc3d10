"""Trace networks of many tasks and libraries: exact or not, free share, ONNX, seconds; a table and its summary.

    python benchmarks/tasks.py LOG [--out benchmarks/results/tasks.json] [--only TEXT ...] [--limit SECONDS]

The networks are in benchmarks/tasks_networks.py. The libraries are not dependencies of aacp: install
segmentation_models_pytorch, monai, ultralytics and torchaudio beside it. Each network runs in a process of its own with
a time limit. LOG gets one line per network; networks that it names already are not run again, so the command resumes.

A network is exact if a cut of every free group to half computes what the masked original computes, on the example and
on inputs of another size and batch where the network accepts them. It is silently wrong if `trace` accepted a cut that
is not exact.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aacp
from aacp.graph.tracing import prepare
from tasks_networks import NETWORKS

ALONE = "--alone"  # option of the process that examines one network


def half_of(graph: aacp.ChannelGraph) -> dict[str, Any]:
    """About half of every free group, at random."""
    generator = np.random.default_rng(1)
    return {g.name: np.sort(generator.permutation(g.width)[: max(1, g.width // 2)]) for g in graph.free}


def examine(name: str) -> dict[str, Any]:
    """One row of the table."""
    entry = NETWORKS[name]
    torch.manual_seed(0)
    model = entry.build().eval()
    inputs = tuple(torch.randn(shape) for shape in entry.shapes)
    example = inputs if len(inputs) > 1 else inputs[0]
    start = time.perf_counter()
    graph = aacp.trace(model, example)
    seconds = time.perf_counter() - start
    kept = half_of(graph)
    units = graph.kept_units(kept)
    here = prepare(model, example)
    there = here.elsewhere()
    found = [place.difference_when(graph, units) for place in (here, there) if place is not None]
    differences = [text for text in found if text is not None]
    return {
        "exact": not differences,
        "reason": "; ".join(differences),
        "other_shape": None if there is None else [list(tensor.shape) for tensor in there.arguments],
        "free_share": round(graph.free_share, 4),
        "seconds": round(seconds, 1),
        "onnx": exported(aacp.shrink(model, graph, kept), example),
        "shapes": [list(shape) for shape in entry.shapes],
    }


def exported(model: torch.nn.Module, example: Any) -> str:
    """What became of the ONNX file of the cut network: "equal", or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            aacp.export_onnx(model, Path(folder) / "network.onnx", example)
        except aacp.AACPError as error:
            return str(error).replace(folder, "")[:200]
    return "equal"


def alone(name: str, limit: float) -> dict[str, Any]:
    """The row of a network, examined in a process of its own."""
    command = [sys.executable, __file__, ALONE, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"exact": False, "reason": f"took more than {limit:.0f} s"}
    try:
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]
        return {"exact": False, "reason": (lines[-1] if lines else f"exit status {done.returncode}")[:300]}
    return row


def shown(name: str, row: dict[str, Any]) -> str:
    """A row as a line of the table."""
    entry = NETWORKS[name]
    exact = "exact" if row["exact"] else "-"
    share = f"{row['free_share']:6.1%}" if "free_share" in row else "     -"
    onnx = "equal" if row.get("onnx") == "equal" else "-"
    texts = f"{entry.task:22s} {entry.library:28s} {entry.name:36s}"
    return f"{texts} {exact:6s} {share}  ONNX {onnx:6s} {row.get('seconds', 0):6.1f} s  {row['reason'][:120]}"


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The numbers below the table."""
    traced = [row for row in rows.values() if "free_share" in row]
    return {
        "networks": len(rows),
        "exact": sum(row["exact"] for row in rows.values()),
        "silently wrong": sum(not row["exact"] for row in traced),
        "not traced": len(rows) - len(traced),
        "verified at another shape": sum(row["other_shape"] is not None for row in traced),
        "equal in ONNX Runtime": sum(row["onnx"] == "equal" for row in traced),
        "median free share": statistics.median([row["free_share"] for row in traced] or [0.0]),
        "median seconds": statistics.median([row["seconds"] for row in traced] or [0.0]),
        "longest seconds": max([row["seconds"] for row in traced], default=0.0),
        "networks by library": dict(Counter(NETWORKS[name].library for name in rows)),
        "networks by task": dict(Counter(NETWORKS[name].task for name in rows)),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
    }


def read_log(log: Path) -> dict[str, dict[str, Any]]:
    """The rows of earlier runs, without those of networks that the table no longer has."""
    lines = log.read_text().splitlines() if log.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["name"]: row["row"] for row in rows if row["name"] in NETWORKS}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the networks to run")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one network")
    options = parser.parse_args()
    rows = read_log(options.log)
    for name in NETWORKS:
        wanted = not options.only or any(text in name for text in options.only)
        if name not in rows and wanted:
            rows[name] = alone(name, options.limit)
            with options.log.open("a") as file:
                file.write(json.dumps({"name": name, "row": rows[name]}) + "\n")
            print(shown(name, rows[name]), flush=True)
    numbers = summary(rows)
    print(json.dumps(numbers, indent=2))
    if options.out:
        table = {
            name: {"task": NETWORKS[name].task, "library": NETWORKS[name].library, **rows[name]}
            for name in NETWORKS
            if name in rows
        }
        options.out.write_text(json.dumps({"summary": numbers, "networks": table}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        print(json.dumps(examine(sys.argv[2])))
    else:
        main()
