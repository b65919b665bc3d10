"""Shared by benchmarks that run many commands until a deadline. The same call resumes such a benchmark.

Some commands run at once. Each ends with a file: a command whose file exists does not run again, and a command that is
interrupted at the deadline continues in the next call.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

import repair_treatments as shared

AACP = [sys.executable, "-m", "aacp.cli"]


def add_options(
    parser: argparse.ArgumentParser, *, network: str, runs: str, seeds: Sequence[int], at_once: int
) -> None:
    """Add the options that all of these benchmarks have, with their defaults."""
    parser.add_argument("--network", default=network)
    parser.add_argument("--weights", type=Path, help="the weights of the network")
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries, or data as aacp prune takes it")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(seeds))
    parser.add_argument("--at-once", type=int, default=at_once, help="commands that share the device")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds after which this call ends")
    parser.add_argument("--runs", type=Path, default=Path(runs), help="where everything is kept")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="an untrained network on the digits, to see that it runs")
    parser.add_argument("--out", type=Path)


def add_teacher(parser: argparse.ArgumentParser) -> None:
    """Add the options of another teacher than the unpruned network; `aacp` rejects one without the other."""
    parser.add_argument("--teacher", help="network to distil from instead of the unpruned one")
    parser.add_argument("--teacher-weights", help="weights of the teacher")


def teacher_of(options: argparse.Namespace) -> list[str]:
    """The words that name the teacher in a command, if one is given."""
    given = {"--teacher": options.teacher, "--teacher-weights": options.teacher_weights}
    return [word for name, value in given.items() if value for word in (name, value)]


def parsed(parser: argparse.ArgumentParser, **smallest: object) -> argparse.Namespace:
    """The options of the command line; a smoke run has other defaults, and options that are given keep their values."""
    options = parser.parse_args()
    if options.smoke:
        parser.set_defaults(network="digits_resnet", data="digits", **smallest)
        options = parser.parse_args()
    if not options.smoke and not (options.weights and options.data):
        parser.error("Give --weights and --data, or --smoke.")
    if not options.smoke and ":" not in options.data:
        options.data = f"cifar10:{options.data}"
    return options


def require_same(runs: Path, settings: dict[str, Any]) -> None:
    """Record the settings of a folder of runs. If it has runs with others, the program ends: they would be reported."""
    file = runs / "settings.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    other = [name for name, value in settings.items() if known.get(name, value) != value]
    if other:
        sys.exit(f"{runs} has runs with another {', '.join(other)}. Give another folder as --runs.")
    shared.write(runs, "settings", known | settings)


def file_name(path: object) -> str | None:
    """A file for settings: of an absolute path only the last part, since another machine may have it elsewhere."""
    return shared.without_folders(str(path)) if path else None


def run_once(options: argparse.Namespace, place: Path, file: Path, words: list[str]) -> None:
    """Run a command, unless the file that it ends with exists or the time is over. One that fails is given once more.

    The commands share a device: the first failure may be due to another command, such as too little memory.

    Args:
        options: the options of the benchmark.
        place: the file or folder that the command writes; the seconds of all its calls are added up beside it.
        file: the file that the command ends with.
        words: the command.
    """
    for _ in range(2):
        if file.exists() or is_late(options):
            return
        begun = time.monotonic()
        failure = run_until_deadline(options, words)
        add_to(seconds_of(place), time.monotonic() - begun)
        if not failure:
            return
        print(f"{' '.join(words)} failed:\n{failure}", flush=True)


def seconds_of(place: Path) -> Path:
    """The file with the seconds of all calls of a command, beside what the command writes."""
    return place.with_name(f"{place.name}.seconds")


def add_to(file: Path, amount: float) -> float:
    """Add to the number in a file, and return the sum."""
    total = amount + (float(file.read_text()) if file.exists() else 0.0)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(total))
    return total


def set_deadline(options: argparse.Namespace) -> None:
    """Count the limit from now, and let interrupts reach the commands, which background jobs of a shell ignore."""
    options.deadline = time.monotonic() + options.limit
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_late(options: argparse.Namespace) -> bool:
    """Whether too little time is left to begin a command."""
    return bool(options.deadline - time.monotonic() < 5)


def run_until_deadline(options: argparse.Namespace, words: list[str]) -> str:
    """Run a command; the same command resumes it if it is interrupted at the deadline.

    Returns:
        The end of its messages if it failed; "" if it did not, or was interrupted.
    """
    threads = max(1, (os.cpu_count() or 1) // options.at_once)  # more threads would wait for each other
    process = subprocess.Popen(
        words, env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, messages = process.communicate(timeout=max(0.0, options.deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # under MPS, killing it could stop all other processes on the GPU
        process.communicate()
        return ""
    return messages[-1500:] if process.returncode else ""


def spread(values: list[float]) -> str:
    """Mean and standard deviation in points, as text; a single value has no deviation."""
    if not values:
        return "-"
    return f"{100 * mean(values):.2f}" + (f" ± {100 * stdev(values):.2f}" if len(values) > 1 else "")
