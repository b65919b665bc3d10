"""A device in a process of its own: files hold a number of MACs, and its clock advances by the seconds of these."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BOARD = "a small board"
PROGRAM = """
import json, random, sys
sys.path.insert(0, sys.argv[1])
import runner
options = json.loads(sys.argv[2])
now, loads, random = 0.0, 0, random.Random(0)

def load(path, inputs, threads):
    global loads
    loads += 1
    if loads > options["loads"]:
        raise SystemExit("the power was cut")
    macs = int(open(path).read())
    is_slow = path.endswith("pruned.macs")
    def run():
        global now
        seconds = options["per_batch"] + options["per_mac"] * macs
        now += seconds * (options["pruned_factor"] if is_slow else 1) * (1 + options["noise"] * random.random())
    return run

def clock():
    global now
    now += 1e-7
    step = options["step"]
    return now // step * step if step else now

runner.measure(sys.argv[1], load, options["version"], clock, seconds=0.1, machine=options["machine"])
"""
DEFAULTS: dict[str, Any] = {
    "noise": 0.0,  # the time of a batch is up to this share longer
    "step": 0.0,  # the resolution of the clock
    "loads": 1000,  # after this many files the power is cut
    "per_batch": 1e-4,
    "per_mac": 1e-9,
    "pruned_factor": 1.0,  # how much longer the pruned network of a check takes
    "version": "1.0",
    "machine": BOARD,
}


def run_on_device(folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the runner of a folder in a process that cannot import aacp."""
    given = json.dumps({**DEFAULTS, **options})
    arguments = [sys.executable, "-I", "-c", PROGRAM, str(folder), given]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120)
