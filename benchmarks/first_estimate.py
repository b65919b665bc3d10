"""Measures the seconds from the call of `aacp.find` to its first score in new processes, and profiles them.

The first process finds no compiled Python files and no compiled kernels, as on a machine where nothing ran before; the
later ones find those that the first one wrote. The last process runs under a profiler, which makes it slower: its
seconds are not part of the result.

    python benchmarks/first_estimate.py --weights FILE --data FOLDER [--processes 3] [--out FOLDER]
    python benchmarks/first_estimate.py --smoke
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import re
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROWS = 40  # the number of functions in the profile
FOLDERS = re.compile(r"/\S*/(?=(torch|aacp|triton|sympy|python3\.\d+)/)")  # folders of this machine in its paths


def seconds_here(options: argparse.Namespace) -> float:
    """The seconds until the first score of a search in this process; with --profile, print a profile of the search."""
    import aacp

    name, source = ("digits_resnet", "digits") if options.smoke else ("resnet56", f"cifar10:{options.data}")
    model = aacp.build_model(name).eval()
    if options.weights:
        aacp.load_weights(model, options.weights)
    data = aacp.load_data(source)
    plan = aacp.Plan(method="random", evaluations=4, proposals=4, recipe=None, reconstruction=None)
    stamps: list[float] = []

    def note(event: aacp.Event) -> None:
        if event.kind == "evaluation":
            stamps.append(time.perf_counter())

    profile = cProfile.Profile() if options.profile else None
    begun = time.perf_counter()
    with aacp.listen(note), profile or nullcontext():
        aacp.find(model, data, {"macs": 0.5}, plan=plan)
    if profile is not None:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(ROWS)
    return stamps[0] - begun


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The seconds of each process, and the profile of the last one."""
    from halving import circumstances

    words = [sys.executable, __file__, "--here", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": f"{folder}/python", "TRITON_CACHE_DIR": f"{folder}/triton"}
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | kept
        runs = []
        for number in range(options.processes + 1):
            extra = ["--profile"] if number == options.processes else []
            runs.append(subprocess.run([*words, *extra], env=env, capture_output=True, text=True, check=True))
            print(runs[-1].stdout.strip(), flush=True)
    seconds = [float(run.stdout.split()[-1]) for run in runs]
    profile = [FOLDERS.sub("", line.rstrip()) for line in runs[-1].stderr.splitlines() if line.strip()]
    return {**circumstances(), "seconds": seconds[:-1], "profile": profile[-ROWS:]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="the checkpoint of ResNet56")
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--processes", type=int, default=3, help="processes that are timed without the profiler")
    parser.add_argument("--smoke", action="store_true", help="an untrained network on the digits, to see that it runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", action="store_true", help="measure in this process; the script calls itself so")
    parser.add_argument("--profile", action="store_true", help="with --here, print a profile")
    options = parser.parse_args()
    if not options.smoke and not (options.weights and options.data):
        parser.error("Give --weights and --data, or --smoke.")
    if options.here:
        print(f"{seconds_here(options):.2f}")
        return
    found = measured(options)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "first_estimate.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
