"""measure_resources: the memory and the energy that a network needs in its runtime, measured in a process of its own.

A process that has only loaded the runtime is the reference, so that the memory is that of the network alone: its
weights, its activations, and what the runtime prepares for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aacp.cost.quantities import rounded
from aacp.disk.reading import read_text
from aacp.errors import AACPError, InvalidOption, WorkerFailed
from aacp.graph.examples import from_plain, to_plain, with_batch
from aacp.latency.deployment import Deployment
from aacp.latency.energy import find_counters
from aacp.latency.runtimes.torch import torch_threads
from aacp.workers.lifetime import end_with

SECONDS = 1.0  # how long batches are run: counters of energy are updated every few milliseconds
STATUS = Path("/proc/self/status")
RESET_PEAK = Path("/proc/self/clear_refs"), "5"  # Linux: the peak of the resident memory starts again from here


@dataclass(frozen=True)
class ResourceUse:
    """What a network needs in its runtime.

    Args:
        memory_bytes: how far the resident memory of the process grew at most, from before the network was loaded.
        joules: the energy of one batch, with everything else that ran on the device; None if nothing counts it.
        energy_source: what counted the energy, such as "RAPL package-0"; empty if nothing did.
    """

    memory_bytes: int
    joules: float | None = None
    energy_source: str = ""

    def __str__(self) -> str:
        memory = f"{self.memory_bytes / 1e6:.1f} MB of memory"
        if self.joules is None:
            return f"{memory}, energy is not counted here"
        return f"{memory}, {rounded(1e3 * self.joules)} mJ per batch ({self.energy_source})"


def measure_resources(
    file: str | os.PathLike[str], example: Any, where: Deployment, *, seconds: float = SECONDS
) -> ResourceUse:
    """Run a file of a runtime in a process of its own, and return the memory and energy that it needs.

    Args:
        file: a network in the file format of the runtime, such as `pruned.onnx`.
        example: an input; only its shapes and types count, at the batch size of the deployment.
        where: runtime, device, batch and threads; a runtime of your own must be given as package.module:NAME.
        seconds: how long to run batches for.
    """
    require_separate_process(where)
    request = {
        "file": os.fspath(Path(file).resolve()),
        "example": to_plain(with_batch(example, where.batch)),
        "where": where.to_json(),
        "seconds": seconds,
        "parent": os.getpid(),
    }
    return ResourceUse(**_answer_to(request))


def require_separate_process(where: Deployment) -> None:
    """Reject a deployment that another process cannot repeat, and systems without Linux's files about processes."""
    runtime = where.resolved_runtime
    runtime.require_installed()
    if runtime.suffix is None or not isinstance(where.runtime, str):
        raise InvalidOption(
            f"The memory of the runtime {runtime.name} cannot be measured: another process must find the runtime by "
            "its name and load the network from a file. Name a runtime that has files, such as onnxruntime."
        )
    if not STATUS.exists():
        raise InvalidOption("The memory of a process is only measured in Linux. Measure on such a machine.")


def _answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """Return what the process for a request prints."""
    command = [sys.executable, "-m", "aacp.latency.resources"]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, env=place)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2].rstrip(".") or f"exit code {done.returncode}"
        raise WorkerFailed(
            f"The memory of {request['file']} cannot be measured: {reason}. Check that the runtime "
            f"{request['where']['runtime']} can run this file."
        )
    answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])  # a runtime may print lines before it
    return answer


# -- the process ------------------------------------------------------------------------------------------------------


def resources_of(prepare: Callable[[], Callable[[], object]], device: str, seconds: float) -> ResourceUse:
    """Prepare a network in this process, run it for a while, and return what it needed.

    Args:
        prepare: loads the network, and returns a call that runs one batch.
        device: the device that it runs on, whose energy counts.
        seconds: how long to run batches for.
    """
    path, command = RESET_PEAK
    path.write_text(command)
    resident = _status("VmRSS")
    run = prepare()
    run()
    counters = find_counters(device)
    before = [counter.read() for counter in counters]
    batches = 0
    end = time.perf_counter() + seconds
    while batches == 0 or time.perf_counter() < end:
        run()
        batches += 1
    joules = [counter.since(start) for counter, start in zip(counters, before, strict=True)]
    return ResourceUse(
        memory_bytes=max(0, _status("VmHWM") - resident),
        joules=sum(joules) / batches if counters else None,
        energy_source=", ".join(counter.source for counter in counters),
    )


def _status(field: str) -> int:
    """Return a size in bytes from the status of this process."""
    lines = dict(line.split(":", 1) for line in read_text(STATUS).splitlines() if ":" in line)
    return 1024 * int(lines[field].split()[0])


def main() -> None:
    """Answer one request from the standard input, in JSON."""
    request = json.loads(sys.stdin.read())
    end_with(request["parent"])
    where = Deployment(**request["where"])
    runtime = where.resolved_runtime
    runtime.require_installed()  # imports its packages, which do not count
    example = from_plain(request["example"])

    def prepare() -> Callable[[], object]:
        return runtime.prepare(Path(request["file"]), example, device=where.device, threads=where.threads)

    try:
        with torch_threads(where.threads):
            found = resources_of(prepare, where.device, request["seconds"])
    except AACPError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
