"""Where the time of `aacp.trace` goes: seconds of its parts for some networks, medians of several traces.

    python benchmarks/trace_speed.py [--out benchmarks/results/trace_speed.json] [--networks NAME ...] [--repeats 3]

All traces run in one process with one thread, after a trace of a small network that is not counted: imports and torch's
own caches are then warm. A part's seconds do not include those of the parts that it calls. The seconds of the parts and
their sum, `cpu`, are processor time of the process, which other programs change little; `wall` is what a user waits.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import aacp
from aacp.graph.assembly import assemble
from aacp.graph.program import to_program
from aacp.graph.slicing import cut
from aacp.graph.unverified import propagate, run_example
from aacp.graph.verification import Verifier, randomised_copy
from aacp.pytorch.modules import copy_module, private_copy
from aacp.runs.provenance import machine
from aacp.zoo.models import build_model, example_input
from repair_treatments import commit

WARM_UP = "timm:resnet18"
NETWORKS = ["timm:mobilenetv3_large_100", "timm:resnet50", "timm:efficientnet_b0", "timm:hrnet_w18"]
# Part of the table -> functions of aacp that belong to it, wherever they are called.
PARTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "copies": (copy_module, private_copy),
    "example": (run_example,),
    "export": (to_program,),
    "rules": (propagate,),
    "groups": (assemble,),
    "weights": (randomised_copy,),
    "slicing": (cut,),
    "masked runs": (Verifier._run_masked,),
    "cut runs": (Verifier._run,),
}


class Stopwatch:
    """Processor seconds of named parts; while one part runs inside another, the outer one is stopped."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running = ["rest"]
        self._since = time.process_time()

    def stop(self) -> None:
        """Give the seconds since the last stop to the part that is running."""
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose seconds are added to a part."""

        def called(*args: Any, **kwargs: Any) -> Any:
            self.stop()
            self._running.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.stop()
                self._running.pop()

        return called


def names_of(function: Callable[..., Any]) -> list[tuple[Any, str]]:
    """The modules of aacp, and the class, in which a function has a name: callers look it up there."""
    owners = [Verifier, *(module for name, module in sys.modules.items() if name.startswith("aacp."))]
    return [(owner, name) for owner in owners for name, value in vars(owner).items() if value is function]


def seconds_of(name: str) -> dict[str, float]:
    """The seconds of the parts of one trace, their sum, and the seconds on the clock."""
    torch.manual_seed(0)
    model = build_model(name).eval()
    example = example_input(model)
    with ExitStack() as stack:
        watch = Stopwatch()
        for part, functions in PARTS.items():
            for function in functions:
                for place in names_of(function):
                    stack.enter_context(patch.object(*place, watch.timed(part, function)))
        start = time.perf_counter()
        aacp.trace(model, example)
        watch.stop()
    if unused := PARTS.keys() - watch.seconds.keys():
        raise SystemExit(f"aacp.trace calls no function of {', '.join(sorted(unused))}. Follow its change in PARTS.")
    parts = {part: watch.seconds[part] for part in (*PARTS, "rest")}
    return parts | {"cpu": sum(parts.values()), "wall": time.perf_counter() - start}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {part: round(statistics.median(row[part] for row in rows), 2) for part in rows[0]}


def printed(name: str, row: dict[str, float]) -> str:
    return f"{name:30s}" + "".join(f"{value:12.2f}" for value in row.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--machine", default=machine(), help="the machine, in words")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    small = build_model(WARM_UP).eval()
    aacp.trace(small, example_input(small))  # imports all modules of aacp in which names are replaced
    print(" " * 30 + "".join(f"{part:>12s}" for part in (*PARTS, "rest", "cpu", "wall")))
    traces = {}
    for name in options.networks:
        traces[name] = [seconds_of(name) for _ in range(options.repeats)]
        print(printed(name, medians(traces[name])), flush=True)
    if options.out:
        result = {
            "command": "python benchmarks/trace_speed.py",
            "commit": commit(),
            "machine": f"{options.machine}, 1 thread",
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "medians": {name: medians(rows) for name, rows in traces.items()},
            "traces": traces,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
