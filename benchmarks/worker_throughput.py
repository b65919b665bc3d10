"""How many structures one process, and 1, 2 and 4 Ray workers that share a GPU, estimate in a second.

A random search for ResNet56 at -50 % MACs proposes all structures at once, so that no worker waits for another one. The
rate is that of the second half of the evaluations, when all workers are ready; the start is the time until the first
score. GPU use is the mean that `nvidia-smi` tells in that half, and CPU use that of the whole machine, in cores.
Numbers: results/worker_throughput.json.

    python benchmarks/worker_throughput.py --weights FILE --data FOLDER [--evaluations 400] [--workers 0 1 2 4]
        [--out FOLDER]
    python benchmarks/worker_throughput.py --smoke
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import torch

import aacp
from halving import circumstances

POLL_SECONDS = 0.2


class Load:
    """The use of the GPU and the CPUs between `begin` and `end`."""

    def __init__(self) -> None:
        self._gpu: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def begin(self) -> None:
        self._begun = time.perf_counter(), _busy_cpu_seconds()
        self._thread.start()

    def end(self) -> dict[str, float | None]:
        self._ended.set()
        self._thread.join()
        seconds, busy = time.perf_counter() - self._begun[0], _busy_cpu_seconds() - self._begun[1]
        gpu = round(sum(self._gpu) / len(self._gpu), 1) if self._gpu else None
        return {"gpu_use_percent": gpu, "busy_cores": round(busy / seconds, 2)}

    def _watch(self) -> None:
        line = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while torch.cuda.is_available() and not self._ended.wait(POLL_SECONDS):
            self._gpu.append(float(subprocess.run(line, capture_output=True, text=True).stdout.split()[0]))


def _busy_cpu_seconds() -> float:
    """The seconds that all cores of the machine have worked since it started."""
    user, nice, system = (int(word) for word in Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def measured(options: argparse.Namespace, workers: int) -> dict[str, Any]:
    """The rate of one search; 0 workers is this process."""
    name, source = ("digits_resnet", "digits") if options.smoke else ("resnet56", f"cifar10:{options.data}")
    model = aacp.build_model(name).eval()
    if options.weights:
        aacp.load_weights(model, options.weights)
    count = options.evaluations
    plan = aacp.Plan(
        method="random", evaluations=count, proposals=count, recipe=None, reconstruction=None, workers=workers or None
    )
    stamps: list[float] = []
    load = Load()

    def note(event: aacp.Event) -> None:
        if event.kind == "evaluation":
            stamps.append(time.perf_counter())
            if event.step == count // 2:
                load.begin()

    begun = time.perf_counter()
    with aacp.listen(note):
        aacp.find(model, aacp.load_data(source), {"macs": 0.5}, plan=plan)
    used = load.end()
    rate = (count - count // 2) / (stamps[-1] - stamps[count // 2 - 1])
    return {"workers": workers, "per_second": round(rate, 2), "start_seconds": round(stamps[0] - begun, 1), **used}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="the checkpoint of ResNet56")
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--smoke", action="store_true", help="an untrained network on the digits, to see that it runs")
    parser.add_argument("--note", default="", help="words for the result, such as how the GPU is shared")
    parser.add_argument("--name", default="worker_throughput", help="of the result")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not options.smoke and not (options.weights and options.data):
        parser.error("Give --weights and --data, or --smoke.")
    rows = []
    for workers in options.workers:
        rows.append(measured(options, workers))
        print(json.dumps(rows[-1]), flush=True)
        if options.out is not None:
            result = {**circumstances(), "cores": os.cpu_count(), "note": options.note, "seed": 0, "rows": rows}
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{options.name}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
