"""Table: MobileNetV2 and ResNet20 in every runtime and precision. Does it convert, how far is it from torch, how good
is its latency table on 20 unseen structures, and is a limit of -30 % met end to end with 3 seeds?

Every row is written to a file of its own as soon as it is complete, and its latency table is resumed after an
interruption: the same command continues. A row that fails is recorded with its message. Rows can be chosen, so that a
noisy machine can run them one at a time. Weights are untrained, since training does not change the latency;
int8_accuracy.py compares the outputs of trained networks with torch.

    python benchmarks/runtimes.py --out FOLDER [--networks resnet20] [--runtimes openvino] [--precisions float32]
        [--step auto] [--device cuda]

With --step auto the widths are in the steps that are found by timing, and the names of the files end with _steps.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import traceback
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

import aacp
from aacp.latency.calibration import PredictionError
from aacp.latency.runtimes.registry import BUILT_IN, UNSUPPORTED
from aacp.latency.timers import NetworkTimer
from halving import circumstances
from psae_speed import likeness

NETWORKS = {"torchvision:mobilenet_v2": (1, 3, 224, 224), "resnet20": (1, 3, 32, 32)}
RATE = 0.3  # the limit on latency: 30 % less than the original
IMAGES = 32  # random images in each part of the data, which only rank structures here


class Row:
    """One network in one runtime and precision.

    Args:
        name: the name of the network.
        where: the deployment.
        options: the arguments of the command.
    """

    def __init__(self, name: str, where: aacp.Deployment, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.name = name
        self.where = where
        self.options = options
        self.model = aacp.build_model(name).eval()
        self.example = torch.randn(NETWORKS[name])
        # Otherwise the outputs of MobileNetV2 are so small that int8 rounds them to 0.
        aacp.recalibrate(self.model, torch.randn(IMAGES, *self.example.shape[1:]))
        self.graph = aacp.trace(self.model, self.example)
        self.steps = self._discovered_steps() if options.step == "auto" else 1 / 8
        self.space = aacp.SearchSpace(self.graph, self.steps)
        self.table_file = options.out / f"{row_name(name, where.runtime, where.precision, options)}.table.json"

    def _discovered_steps(self) -> dict[str, int]:
        return aacp.discover_steps(
            self.model, self.graph, self.where, example=self.example, seconds_per_structure=self.options.seconds
        )

    def converted(self) -> dict[str, Any]:
        """The largest difference of the converted network from torch; None for a runtime without files."""
        runtime = self.where.resolved_runtime
        if runtime.suffix is None:
            return {"largest_difference": None, "file_bytes": None}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"network{runtime.suffix}"
            file = runtime.export(aacp.shrink(self.model, self.graph, self.graph.full).eval(), path, self.example)
            return {"largest_difference": file.largest_difference, "file_bytes": file.file_bytes}

    def predicted(self) -> dict[str, Any]:
        """The error of the latency table on structures that it was not made from."""
        with aacp.show_progress():
            table = aacp.measure_latency(
                self.model, self.graph, self.space, self.where, example=self.example, file=self.table_file,
                structures=self.options.learn, seconds_per_structure=self.options.seconds,
            )  # fmt: skip
        bench = NetworkTimer(self.model, self.graph, self.example, self.where, self.options.seconds)
        generator = np.random.default_rng(2026)
        runs = [bench(self.space.sample(generator)) for _ in range(self.options.unseen)]
        predicted = table.seconds([run.structure for run in runs]) / table.reference
        measured = np.array([run.whole / run.reference for run in runs])
        noise = float(np.median([run.noise for run in runs]))
        error = PredictionError.of(predicted, measured, noise)
        return {
            "seconds_unpruned": table.reference,
            "setting": asdict(table.conditions),
            "error": asdict(error),
            "predicted": predicted.tolist(),
            "measured": measured.tolist(),
        }

    def limited(self, seed: int) -> dict[str, Any]:
        """The time of a network that was pruned to the limit, as a share of the original's, in new measurements."""
        images = [torch.randn(IMAGES, *self.example.shape[1:]) for _ in range(3)]
        with torch.no_grad():
            parts = [TensorDataset(part, self.model(part)) for part in images]
        plan = aacp.Plan(
            evaluations=self.options.evaluations, recipe=None, reconstruction=None, calibration_images=IMAGES,
            seed=seed, deployment=self.where, latency_table=str(self.table_file), pruning_step=self.steps,
        )  # fmt: skip
        data = aacp.Data(*parts, name="random images")
        with tempfile.TemporaryDirectory() as folder:
            found = aacp.prune(
                self.model, data, {"latency": RATE}, Path(folder) / "run", plan=plan, score=likeness, name=self.name
            )
        limit = aacp.Limit("latency", pruning_rate=RATE)
        (checked,) = aacp.check_latency(
            self.model, self.graph, [found.choice.structure], self.where, example=self.example, turns=40, limit=limit
        )
        (own,) = found.choice.limits
        return {
            "seed": seed,
            "structure": list(found.choice.counts),
            "ratio_in_its_run": own.reached / own.full,
            "ratio": asdict(checked.ratio),
            "verdict": checked.verdict(limit).value,
        }


def row_name(name: str, runtime: str, precision: str, options: argparse.Namespace) -> str:
    suffix = "_steps" if options.step == "auto" else ""
    return f"{name.rpartition(':')[2]}_{runtime}_{precision}{suffix}"


def written_row(name: str, runtime: str, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a file or, if there is none, of new measurements."""
    path = options.out / f"{row_name(name, runtime, precision, options)}.json"
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text())
        return known
    row = {**circumstances(), "network": name, "runtime": runtime, "precision": precision}
    try:
        where = aacp.Deployment(runtime, options.device, threads=options.threads, precision=precision)
        where.resolved_runtime.require_installed()
        measured = Row(name, where, options)
        row["steps"] = measured.steps
        row["undecided_steps"] = getattr(measured.steps, "undecided", ())
        row |= measured.converted()
        row |= measured.predicted()
        row["seeds"] = [measured.limited(seed) for seed in range(options.seeds)]
    except aacp.AACPError as error:
        row["failure"] = str(error)
        print(traceback.format_exc(), flush=True)
    path.write_text(json.dumps(row, indent=1) + "\n")
    return row


def table_line(row: dict[str, Any]) -> str:
    """A row of the table in Markdown."""
    start = f"| {row['network'].rpartition(':')[2]} | {row['runtime']} | {row['precision']} |"
    if "failure" in row:
        return f"{start} {row['failure']} | | | | | |"
    far = "the module itself" if row["largest_difference"] is None else f"{row['largest_difference']:.2g}"
    error = row["error"]
    ratios = ", ".join(f"{seed['ratio']['median']:.2f}" for seed in row["seeds"])
    met = sum(seed["ratio"]["upper"] <= 1 - RATE for seed in row["seeds"])
    missed = sum(seed["ratio"]["lower"] > 1 - RATE for seed in row["seeds"])
    return f"{start} {far} | {error['median']:.1%} | {error['rank_correlation']:.2f} | {met} | {missed} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    runtimes = [*BUILT_IN, *UNSUPPORTED]
    parser.add_argument("--runtimes", nargs="+", choices=runtimes, default=runtimes)
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--step", choices=["default", "auto"], default="default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--learn", type=int, default=48, help="structures that the table is fitted to")
    parser.add_argument("--unseen", type=int, default=20, help="structures that the table is tested with")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each structure")
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [written_row(*choice, options) for choice in product(options.networks, options.runtimes, options.precisions)]
    print("| network | runtime | precision | from torch | error | rank correlation | -30 % met | missed | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(table_line(row))


if __name__ == "__main__":
    main()
