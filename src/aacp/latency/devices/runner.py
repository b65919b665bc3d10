"""Times the networks of this folder on this device, and writes results.json; it needs Python 3.8 and the runtime.

Usage: python runner.py [--seconds S] [FOLDER]

Each network is timed in turns with the unpruned network; in the folder of a check, until the limit is decided.
results.json is replaced as a whole after each network: if the program is stopped, the same command continues. Take
results.json back to the machine that made the folder.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

FORMAT = 1
WARMUP = 2  # turns that are not counted
MIN_TURNS = 7  # the fewest turns, even if they take longer than the requested seconds
MAX_TURNS = 60  # the most turns before turns are added because of noise
MAX_EXTENSION = 4  # a noisy network is timed up to this many times as long
QUIET_NOISE = 0.015  # relative uncertainty above which turns are added
SAMPLE_SECONDS = 0.005  # a shorter run is repeated, so that a sample takes about this long
SAMPLE_TICKS = 100  # a sample takes at least this many ticks of the clock
MAX_REPEATS = 100000
TRIES = 3  # the fastest one counts, because a call that another process interrupts takes longer
CHECK_TURNS = 20  # the turns of a check at first; they are doubled until the limit is decided
MAX_CHECK_TURNS = 320
CHECK_SECONDS = 60.0  # a check takes about this long at most
CONFIDENCE = 0.98  # the probability with which the median lies in its interval, as in a check by aacp itself
# Where Linux names the board or the processor: a file, and the label of its line, if it has several.
NAMES = (("/proc/device-tree/model", ""), ("/proc/cpuinfo", "model name"))
MAX_READINGS = 2000000  # the most readings of the clock to find its smallest step; they take about a second


# -- runtimes ---------------------------------------------------------------------------------------------------------


def load_onnxruntime(path: str, inputs: Sequence[Mapping[str, Any]], threads: int) -> Callable[[], object]:
    """Return a call that runs one batch of an ONNX file on the CPU."""
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [taken.name for taken in session.get_inputs()]
    arrays = dict(zip(names, random_arrays(inputs)))  # noqa: B905 - Python 3.8 has no strict
    return lambda: session.run(None, arrays)


def load_openvino(path: str, inputs: Sequence[Mapping[str, Any]], threads: int) -> Callable[[], object]:
    """Return a call that runs one batch of an OpenVINO file on the CPU; its weights lie in the .bin file beside it."""
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,
    }
    core = importlib.import_module("openvino").Core()
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    arrays = random_arrays(inputs)
    return lambda: request.infer(arrays, share_inputs=True)


def load_executorch(path: str, inputs: Sequence[Mapping[str, Any]], threads: int) -> Callable[[], object]:
    """Return a call that runs one batch of an ExecuTorch program; its Python runtime takes tensors of torch."""
    pool = importlib.import_module("executorch.extension.pybindings.portable_lib")
    if pool._threadpool_get_thread_count() != threads:  # programs that were loaded before must not run again
        pool._unsafe_reset_threadpool(threads)
    program = importlib.import_module("executorch.runtime").Runtime.get().load_program(path)
    method = program.load_method("forward")
    from_numpy = importlib.import_module("torch").from_numpy
    tensors = [from_numpy(array) for array in random_arrays(inputs)]

    def run(_: Any = program) -> object:  # a method does not keep its program
        return method.execute(tensors)

    return run


def load_ncnn(path: str, inputs: Sequence[Mapping[str, Any]], threads: int) -> Callable[[], object]:
    """Return a call that runs one input of an ncnn file in float32; its weights lie in the .bin file beside it."""
    ncnn = importlib.import_module("ncnn")
    net = ncnn.Net()
    net.opt.num_threads = threads
    for option in ("vulkan_compute", "fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
        setattr(net.opt, "use_" + option, False)
    for read, file in ((net.load_param, path), (net.load_model, os.path.splitext(path)[0] + ".bin")):
        if read(file):
            sys.exit(f"ncnn cannot read {file}. Install the version that it was exported with.")
    arrays = [array[0] for array in random_arrays(inputs)]  # without the batch, which ncnn does not have
    given = [ncnn.Mat(array).clone() for array in arrays]
    outputs = [f"out{place}" for place in range(len(net.output_names()))]

    def run() -> list[int]:  # the codes of failures
        extractor = net.create_extractor()
        for place, value in enumerate(given):
            extractor.input(f"in{place}", value)
        return [extractor.extract(name)[0] for name in outputs]

    if any(run()):
        sys.exit(f"ncnn cannot run {path}. Install the version that it was exported with.")
    return run


def random_arrays(inputs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return inputs of the given shapes and types: random numbers, or zeros if the type is not floating-point."""
    numpy = importlib.import_module("numpy")
    generator = numpy.random.default_rng(0)
    found = []
    for given in inputs:
        is_float = given["dtype"].startswith("float")
        values = generator.standard_normal(given["shape"]) if is_float else numpy.zeros(given["shape"])
        found.append(values.astype(given["dtype"]))
    return found


# The function that loads the files of each runtime, and the module that states its version.
RUNTIMES: dict[str, Any] = {
    "onnxruntime": (load_onnxruntime, "onnxruntime"),
    "openvino": (load_openvino, "openvino"),
    "executorch": (load_executorch, "executorch.version"),
    "ncnn": (load_ncnn, "ncnn"),
}


# -- measuring --------------------------------------------------------------------------------------------------------


def measure(
    folder: str,
    load: Any = None,
    version: str = "",
    clock: Callable[[], float] = time.perf_counter,
    seconds: float = 1.0,
    machine: str = "",
) -> str:
    """Time every network of a folder that results.json does not hold yet.

    Args:
        folder: the folder of manifest.json.
        load: returns a call that runs a file, given its path, the inputs and the threads; by default the function for
            the runtime of the manifest.
        version: the version of the runtime; by default that of the installed package.
        clock: the current time in seconds.
        seconds: about how long to time each network; it takes longer if the machine is busy.
        machine: a name for this machine; by default the processor, the cores and the system.
    """
    manifest = read_json(os.path.join(folder, "manifest.json"))
    if load is None and manifest["runtime"] not in RUNTIMES:
        sys.exit(
            f"runner.py cannot run files of {manifest['runtime']}. Call its function measure with your own load, or "
            "use runner.sh."
        )
    if load is None:
        load, module = RUNTIMES[manifest["runtime"]]
        version = str(importlib.import_module(module).__version__).partition("-")[0]
    if manifest.get("version", version) != version:
        sys.exit(
            f"The latency table is of {manifest['runtime']} {manifest['version']}, but this is {version}. Install that "
            "version, or measure a new table with this one."
        )
    header = {
        "format": FORMAT,
        "kind": manifest["kind"],
        "manifest": sha256_of(os.path.join(folder, "manifest.json")),
        "runtime": manifest["runtime"],
        "version": version,
        "machine": machine or machine_name(),
        "clock_resolution": resolution_of(clock),
    }
    file = os.path.join(folder, "results.json")
    timed = known_results(file, header)
    original = None
    limit = manifest.get("limit")
    for number, network in enumerate(manifest["networks"], 1):
        known = timed.get(network["file"])
        if known is not None and (limit is None or is_decided(known["turns"], limit)):
            continue
        if original is None:
            require_same(folder, manifest["original"])
            original = load(path_in(folder, manifest["original"]), manifest["inputs"], manifest["threads"])
        require_same(folder, network)
        subject = load(path_in(folder, network), manifest["inputs"], manifest["threads"])
        found = time_in_turns(original, subject, clock, seconds, header["clock_resolution"], limit)
        timed[network["file"]] = dict(found, sha256=network["sha256"])
        write_json(file, dict(header, networks=timed))
        print(f"{number}/{len(manifest['networks'])} networks", file=sys.stderr)
    return file


def time_in_turns(
    original: Callable[[], object],
    subject: Callable[[], object],
    clock: Callable[[], float],
    seconds: float,
    resolution: float,
    limit: Any = None,
) -> dict[str, Any]:
    """Time two calls in turns; turns are added while the ratio is uncertain or the limit is not decided.

    Args:
        original: runs the unpruned network.
        subject: runs the pruned network.
        clock: the current time in seconds.
        seconds: about how long to measure.
        resolution: the smallest step of the clock.
        limit: the limit of a check; None for the networks of a table.
    """
    calls = (original, subject)
    for _ in range(WARMUP):
        for call in calls:
            call()
    sample = max(SAMPLE_SECONDS, SAMPLE_TICKS * resolution)
    repeats = [repeats_of(call, clock, sample) for call in calls]

    def add(found: list[list[float]], turns: int) -> None:
        add_turns(found, turns, calls, repeats, clock)

    if limit is not None:
        return {"repeats": repeats, "turns": turns_of_check(add, clock, max(seconds, CHECK_SECONDS), limit)}
    first: list[list[float]] = []
    start = clock()
    add(first, 1)
    turns = min(MAX_TURNS, max(MIN_TURNS, int(seconds / max(clock() - start, 1e-9)) + 1))
    found: list[list[float]] = []
    while not found or (noise_of(found) > QUIET_NOISE and len(found) < MAX_EXTENSION * turns):
        add(found, turns)
    return {"repeats": repeats, "turns": found}


def turns_of_check(
    add: Callable[[list[list[float]], int], None],
    clock: Callable[[], float],
    seconds: float,
    limit: Mapping[str, Any],
) -> list[list[float]]:
    """Measure turns, and double them until a limit is decided or the time is up.

    Args:
        add: adds a number of turns to a list.
        clock: the current time in seconds.
        seconds: about how long to measure at most.
        limit: the limit of the check.
    """
    found: list[list[float]] = []
    start = clock()
    add(found, CHECK_TURNS)
    while not is_decided(found, limit) and len(found) < MAX_CHECK_TURNS and clock() - start < seconds:
        add(found, len(found))
    return found


def add_turns(
    found: list[list[float]],
    turns: int,
    calls: Sequence[Callable[[], object]],
    repeats: Sequence[int],
    clock: Callable[[], float],
) -> None:
    """Measure further turns; the two calls take turns in going first.

    Args:
        found: the turns so far, to which the new ones are added.
        turns: how many turns to add.
        calls: the calls that run the unpruned and the pruned network.
        repeats: how often each call is repeated in a sample.
        clock: the current time in seconds.
    """
    for _ in range(turns):
        pair = [0.0, 0.0]
        for place in (0, 1) if len(found) % 2 == 0 else (1, 0):
            pair[place] = sample_of(calls[place], repeats[place], clock)
        found.append(pair)


def is_decided(turns: Sequence[Sequence[float]], limit: Mapping[str, Any]) -> bool:
    """Whether the interval that holds the median lies on one side of a limit on seconds or on the ratio."""
    if limit["at_most"] is not None:
        values = sorted(turn[1] / limit["at_most"] for turn in turns)
    else:
        values = sorted(turn[1] / turn[0] / (1 - limit["pruning_rate"]) if turn[0] else 0.0 for turn in turns)
    rank = interval_rank(len(values))
    return bool(values[-rank] <= 1 or values[rank - 1] > 1)


def interval_rank(count: int) -> int:
    """Return k such that the median lies between the k-th smallest and the k-th largest of `count` values."""
    rank = 0
    ways = 1
    while ways / 2**count <= (1 - CONFIDENCE) / 2:
        rank += 1
        ways += math.comb(count, rank)
    return max(1, rank)


def repeats_of(call: Callable[[], object], clock: Callable[[], float], sample: float) -> int:
    """Return how often to repeat a call so that all repetitions together take the given time."""
    count = 1
    while count < MAX_REPEATS:
        taken = min(sample_of(call, count, clock) for _ in range(TRIES)) * count
        if taken >= sample:
            break
        needed = int(count * sample / taken) + 1 if taken > 0 else 0
        count = min(MAX_REPEATS, max(2 * count, needed))
    return count


def sample_of(call: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    """Return the mean seconds of a call that is repeated."""
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def noise_of(turns: Sequence[Sequence[float]]) -> float:
    """Return the relative uncertainty of the ratio of the second time to the first."""
    ratios = sorted(turn[1] / turn[0] if turn[0] else 0.0 for turn in turns)
    lower, median, upper = (ratios[int(share * (len(ratios) - 1))] for share in (0.25, 0.5, 0.75))
    return (upper - lower) / median / len(ratios) ** 0.5 if median else float("inf")


def resolution_of(clock: Callable[[], float]) -> float:
    """Return the smallest step of a clock, as stated by the system or as seen in readings, whichever is longer."""
    stated = time.get_clock_info("perf_counter").resolution if clock is time.perf_counter else 0.0
    seen: list[float] = []
    last = clock()
    for _ in range(MAX_READINGS):  # a coarse clock shows the same time again and again
        now = clock()
        if now > last:
            seen.append(now - last)
            last = now
        if len(seen) == 20:
            break
    return max(stated, 1e-9, min(seen) if seen else 1.0)


# -- files ------------------------------------------------------------------------------------------------------------


def path_in(folder: str, network: Mapping[str, Any]) -> str:
    """Return the path of a network in the folder, even if the manifest names a path outside of it."""
    return os.path.join(folder, os.path.basename(network["file"]))


def require_same(folder: str, network: Mapping[str, Any]) -> None:
    """Stop if a file is not the one that the manifest lists."""
    listed = dict(network["beside"])
    listed[network["file"]] = network["sha256"]
    for name, digest in listed.items():
        path = os.path.join(folder, os.path.basename(name))
        if not os.path.exists(path) or sha256_of(path) != digest:
            sys.exit(f"{name} is not the file of the manifest. Copy the whole folder again.")


def known_results(file: str, header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the networks that were timed before, under the same conditions."""
    if not os.path.exists(file):
        return {}
    known = read_json(file)
    for name in ("manifest", "runtime", "version", "machine"):
        if known.get(name) != header[name]:
            sys.exit(
                f"results.json has the {name} {known.get(name)!r}, but this is {header[name]!r}. Remove results.json, "
                "or finish it under the earlier conditions."
            )
    return dict(known["networks"])


def read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path: str, data: Any) -> None:
    """Replace a file as a whole."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def machine_name() -> str:
    """Return the processor, the number of cores and the system; runner.sh and `aacp measure` give the same name."""
    processor = platform.machine()
    if platform.system() != "Linux":
        processor = platform.processor() or processor
    for path, label in NAMES:
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line for line in file if line.startswith(label)]
            if lines:
                processor = lines[0].partition(":")[2].strip() if label else lines[0].strip("\0\n ")
                break
    name = f"{processor}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    return name.replace('"', "").replace("\\", "")


def main(arguments: list[str]) -> None:
    seconds = 1.0
    if arguments[:1] == ["--seconds"]:
        seconds = float(arguments[1])
        arguments = arguments[2:]
    folder = arguments[0] if arguments else os.path.dirname(os.path.abspath(__file__))
    print(f"results: {measure(folder, seconds=seconds)}")


if __name__ == "__main__":
    main(sys.argv[1:])
