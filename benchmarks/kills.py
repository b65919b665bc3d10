"""Claim: killed at ten random moments, `aacp prune` on the digits ends with the same bytes as an uninterrupted run.

Each run has its own folder. After every kill -9 the same command is started again. Numbers: results/kills.json.

    python benchmarks/kills.py [--kills 10] [--seed 0] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file

import aacp
from aacp.runs.provenance import Provenance
from aacp.train.recipe import DIGITS


def command(base: Path, folder: Path) -> list[str]:
    limits = ["--prune-macs", "0.5", "--prune-params", "0.33"]
    sizes = ["--evaluations", "40", "--epochs", "10", "--calibration", "512", "--device", "cpu"]
    start = [sys.executable, "-m", "aacp.cli", "prune", "digits_resnet", "--weights", str(base), "--data", "digits"]
    return [*start, *limits, *sizes, "--run", str(folder)]


def run(line: list[str], seconds: float | None) -> bool:
    """Whether the command finished before it was killed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        subprocess.run(line, check=True, capture_output=True, env=environment, timeout=seconds)  # a timeout kills
    except subprocess.TimeoutExpired:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        base, once, killed = (Path(scratch) / name for name in ("base.safetensors", "once", "killed"))
        model = aacp.build_model("digits_resnet")
        aacp.fit(model, aacp.load_data("digits").train, DIGITS.scaled(10))
        save_file(model.state_dict(), base)
        begun = time.perf_counter()
        run(command(base, once), None)
        whole = time.perf_counter() - begun
        moments: list[float] = []
        while len(moments) < options.kills:
            moment = generator.uniform(0.1, 0.3) * whole  # kill early, so that a run needs many starts
            if run(command(base, killed), moment):
                break  # enough was on disk for the command to finish
            moments.append(round(moment, 2))
            print(
                f"killed after {moment:.1f} s; in the folder: {sorted(p.name for p in killed.glob('[!.]*'))}",
                flush=True,
            )
        run(command(base, killed), None)
        trained = "trainings/finetuned"
        names = (f"{trained}/pruned.safetensors", "structure.json", f"{trained}/evaluation.json", "history.jsonl")
        digests = {n: [hashlib.sha256((f / n).read_bytes()).hexdigest() for f in (once, killed)] for n in names}
    same = {name: one == other for name, (one, other) in digests.items()}
    print(f"{len(moments)} kills, uninterrupted run {whole:.1f} s; the same bytes: {same}")
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    result |= {"kills": moments, "uninterrupted_seconds": whole, "sha256": digests, "same": same}
    if options.out:
        (options.out / "kills.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
