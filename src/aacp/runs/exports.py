"""The exported networks, export.json: their files, timings, memory and energy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aacp.cost.quantities import amount, rounded
from aacp.disk.records import Record
from aacp.runs.manifest import Manifest, usable_manifest

# Two networks are called equally fast if the ratio of their times is certain to lie between 1 / 1.1 and 1.1: a smaller
# difference matters to few users, and takes many turns to measure.
SAME_SPEED = 1.1
IN_INT8 = " in int8"  # part of the name of a runtime whose networks are quantised
PRUNED_ONNX = "pruned.onnx"
ORIGINAL_ONNX = "original.onnx"
# The ending of the second file, which holds the weights, by that of the first. ONNX has one only for large weights.
WEIGHTS_BESIDE = {".onnx": ".onnx.data", ".xml": ".bin", ".param": ".bin"}


@dataclass(frozen=True)
class Latency(Record):
    """The time of one batch: median and quartiles."""

    seconds: float
    low_seconds: float
    high_seconds: float


@dataclass(frozen=True)
class BeforeAfter(Record):
    """Both networks timed in the same way, in alternation."""

    runtime: str  # the name with version and threads: "ONNX Runtime 1.20, 1 thread"
    device: str
    batch_size: int
    repeats: int
    before: Latency
    after: Latency
    low_speedup: float | None = None  # the interval of the time before pruning over that after it in the same turn
    high_speedup: float | None = None  # both are None in files of versions that did not record them
    median_speedup: float | None = None  # the median of these ratios; None in files of versions that did not record it

    @property
    def times(self) -> float:
        """How many times as fast the pruned network is in the median turn; of an old file, by the two medians."""
        return self.before.seconds / self.after.seconds if self.median_speedup is None else self.median_speedup

    @property
    def measure(self) -> str:
        """Words after `times` that say what it is: on a busy machine it differs from the ratio of the two medians."""
        return "" if self.median_speedup is None else " in the median turn"

    @property
    def is_faster(self) -> bool:
        """True if the pruned network is faster beyond noise and by medians; without speedups, by quartiles."""
        if self.low_speedup is None:
            return self.after.high_seconds < self.before.low_seconds
        return self.low_speedup > 1 and self.after.seconds < self.before.seconds

    @property
    def is_slower(self) -> bool:
        """True if the pruned network is slower beyond noise and by medians; without speedups, by quartiles."""
        if self.high_speedup is None:
            return self.after.low_seconds > self.before.high_seconds
        return self.high_speedup < 1 and self.after.seconds > self.before.seconds

    @property
    def is_as_fast(self) -> bool:
        """True if the measurement is certain enough to say that pruning changed the time by a tenth at most."""
        if self.is_faster or self.is_slower:
            return False
        if self.low_speedup is None or self.high_speedup is None:
            gains_little = self.before.high_seconds <= SAME_SPEED * self.after.low_seconds
            loses_little = self.after.high_seconds <= SAME_SPEED * self.before.low_seconds
            return gains_little and loses_little
        return SAME_SPEED * self.low_speedup >= 1 and self.high_speedup <= SAME_SPEED

    @property
    def is_decided(self) -> bool:
        """True if the measurement says whether the pruned network is faster; if not, it was too noisy to tell."""
        return self.is_faster or self.is_slower or self.is_as_fast

    @property
    def verdict(self) -> str:
        """The comparison for people."""
        if self.is_faster:
            return "faster"
        if self.is_slower:
            return "SLOWER"
        return "NOT FASTER" if self.is_as_fast else "too noisy to tell"

    def described(self) -> dict[str, Any]:
        """The record as commands print it: with the comparison of both networks."""
        return {**self.to_json(), "speedup": self.times, "verdict": self.verdict}

    def __str__(self) -> str:
        return (
            f"{self.runtime}, batch {self.batch_size}: {rounded(1e3 * self.before.seconds)} -> "
            f"{amount(self.after.seconds, 's')} (x{self.times:.2f}{self.measure}: {self.verdict})"
        )


@dataclass(frozen=True)
class QuantizedScores(Record):
    """The scores of both networks in int8, as their files compute them."""

    calibration_images: int  # the training images on which the ranges of activations were found
    before_test: float | None  # score of the unpruned network on test data
    after_test: float | None  # score of the pruned network on test data
    before_likeness: float | None  # of the outputs to those in float on calibration images, 1 is equal
    after_likeness: float | None
    note: str = ""  # why there are no scores, if the score function failed


@dataclass(frozen=True)
class RuntimeFiles(Record):
    """Both networks as files of the deployment's runtime, beside those of ONNX Runtime in float."""

    file: str  # the name of the pruned network's file
    format: str
    largest_difference: float  # the largest difference between any output and that of torch
    before_bytes: int
    after_bytes: int
    precision: str = "float32"  # "int8" for files of quantised networks
    quantized: QuantizedScores | None = None  # for files in int8


@dataclass(frozen=True)
class Resources(Record):
    """The memory and energy of both exported networks, each measured in a process of the runtime."""

    runtime: str  # the name with version: "onnxruntime 1.20"
    before_bytes: int  # how far the memory of the process grew at most with the unpruned network
    after_bytes: int
    before_joules: float | None = None  # the energy of one batch; None if nothing counts it
    after_joules: float | None = None
    energy_source: str = ""  # what counted the energy: "RAPL package-0"

    def __str__(self) -> str:
        before, after = (f"{value / 1e6:.1f} MB" for value in (self.before_bytes, self.after_bytes))
        change = f" ({self.after_bytes / self.before_bytes - 1:+.1%})" if self.before_bytes else ""
        memory = f"memory in {self.runtime}: {before} -> {after}{change}"
        if self.before_joules is None or self.after_joules is None:
            return f"{memory}; energy is not counted here"
        before, after = (rounded(1e3 * value) for value in (self.before_joules, self.after_joules))
        return f"{memory}; energy of a batch: {before} -> {after} mJ ({self.energy_source})"


@dataclass(frozen=True)
class ExportRecord(Record):
    """export.json: the exported files, their largest difference from torch, and timings."""

    opset: int
    largest_difference: float  # the largest difference between any output and that of torch
    before_bytes: int  # the size of original.onnx
    after_bytes: int  # the size of pruned.onnx
    timings: tuple[BeforeAfter, ...] = ()
    others: tuple[RuntimeFiles, ...] = ()  # the files of the deployment's runtime, if it needs its own
    resources: Resources | None = None  # memory and energy in the deployment's runtime, if they were requested

    @property
    def in_int8(self) -> RuntimeFiles | None:
        """The files of the quantised networks, if there are any."""
        return next((files for files in self.others if files.quantized is not None), None)

    @property
    def float_bytes(self) -> int:
        """The size of the pruned network in float, in the format of the deployment's runtime."""
        own = [files.after_bytes for files in self.others if files.quantized is None]
        return own[0] if own else self.after_bytes

    def missing_in(self, folder: Path) -> str:
        """The first exported file that is not in a folder; empty if all are.

        A file that the manifest does not list must have its recorded size.
        """
        sizes = {ORIGINAL_ONNX: self.before_bytes, PRUNED_ONNX: self.after_bytes}
        for other in self.others:
            sizes |= {other.file: other.after_bytes, other.file.replace("pruned", "original", 1): other.before_bytes}
        listed = (usable_manifest(folder) or Manifest()).entries
        for name, size in sizes.items():
            found = sum(file.stat().st_size for file in files_of(folder / name))
            if not (folder / name).is_file() or (name not in listed and found != size):
                return name
        return ""


def files_of(path: Path) -> list[Path]:
    """The files of an exported network that are there: the one that the runtime opens, and one of weights."""
    files = [path]
    if path.suffix in WEIGHTS_BESIDE:
        files.append(path.with_suffix(WEIGHTS_BESIDE[path.suffix]))
    return [file for file in files if file.is_file()]
