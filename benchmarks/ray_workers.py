"""Claim: a search on Ray has the same history with 1, 2 and 4 workers, after a node is killed, and after the driver is.

A local Ray cluster of three nodes (a head without CPUs and two nodes with two CPUs each) on one machine, and a search
for `digits_resnet` at -50 % MACs with 8 proposals at once. The reference runs in one process with one thread. The
killed driver is `aacp search --workers 2`, ended with SIGKILL in mid-search and started again; its history is compared
with that of a whole run of the same command. Seconds include the start of the workers, which import torch.
Numbers: results/ray_workers.json.

    python benchmarks/ray_workers.py [--evaluations 40] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

import aacp
from aacp.search.saving import recorded
from halving import circumstances


def digest_of(history: Any) -> str:
    """A digest of the structures and the scores of a history, in order."""
    lines = [json.dumps([list(candidate.structure), candidate.score]) for candidate in history]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def searched(options: argparse.Namespace, workers: int | str | None) -> tuple[str, int, float]:
    """The digest and the length of the history, and the seconds of a search."""
    torch.manual_seed(0)
    plan = aacp.Plan(
        evaluations=options.evaluations, recipe=None, reconstruction=None, calibration_images=256, proposals=8,
        workers=workers,
    )  # fmt: skip
    begun = time.perf_counter()
    model = aacp.build_model("digits_resnet").eval()
    found = aacp.find(model, aacp.load_data("digits"), {"macs": 0.5}, plan=plan, device="cpu")
    return digest_of(found.history), len(found.history), time.perf_counter() - begun


def with_killed_node(options: argparse.Namespace, cluster: Cluster, node: Any) -> tuple[str, int, float]:
    """A search in which a node is killed after a quarter of the evaluations."""

    def kill(event: aacp.Event) -> None:
        if event.kind == "evaluation" and event.step == options.evaluations // 4:
            cluster.remove_node(node, allow_graceful=False)

    with aacp.listen(kill):
        return searched(options, "auto")


def with_killed_driver(options: argparse.Namespace) -> tuple[str, int, float]:
    """`aacp search` on two workers, killed after a quarter of the evaluations and started again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        line = [sys.executable, "-m", "aacp.cli", "search", "digits_resnet", "--data", "digits", "--prune-macs", "0.5"]
        line += ["--evaluations", str(options.evaluations), "--calibration", "256", "--workers", "2", "--device", "cpu"]
        line += ["--run", str(folder)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        begun = time.perf_counter()
        first = subprocess.Popen(line, start_new_session=True, **quiet)
        while not (folder / "history.jsonl").exists() or _lines(folder) < options.evaluations // 4:
            if first.poll() is not None:
                sys.exit("The first driver ended before it was killed. Use more evaluations.")
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)  # Ray's own processes end too, as with a machine
        first.wait()
        subprocess.run(line, check=True, **quiet)
        history = recorded(folder)
        seconds = time.perf_counter() - begun
        whole = Path(name) / "whole"
        subprocess.run([*line[:-1], str(whole)], check=True, **quiet)
        assert digest_of(recorded(whole)) == digest_of(history), "the history differs from that of a whole run"
        return digest_of(history), len(history), seconds


def _lines(folder: Path) -> int:
    return len((folder / "history.jsonl").read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}

    def measure(name: str, run: Callable[[], tuple[str, int, float]]) -> None:
        digest, evaluations, seconds = run()
        rows[name] = {"history": digest, "evaluations": evaluations, "seconds": round(seconds, 1)}
        print(f"{name}: {evaluations} evaluations in {seconds:.1f} s, history {digest}", flush=True)

    torch.set_num_threads(1)
    measure("one process", lambda: searched(options, None))
    measure("driver killed and restarted, 2 workers", lambda: with_killed_driver(options))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False, configure_logging=False)
    for workers in (1, 2, 4):
        measure(f"{workers} workers on three nodes", lambda workers=workers: searched(options, workers))  # type: ignore[misc]
    measure("a node killed in mid-search", lambda: with_killed_node(options, cluster, nodes[1]))
    ray.shutdown()
    cluster.shutdown()
    same = len({row["history"] for name, row in rows.items() if not name.startswith("driver")}) == 1
    print(f"all searches from Python have the same history: {same}")
    if options.out is not None:
        result = {**circumstances(), "ray": ray.__version__, "seed": 0, "rows": rows, "same": same}
        (options.out / "ray_workers.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
