"""Reading results of benchmarks/runtimes.py."""

from __future__ import annotations

import re
from typing import Any

from evidence.raw import ROOT, pct, raw

NAMES = {"resnet20": "ResNet20", "mobilenet_v2": "MobileNetV2"}
TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "executorch": "ExecuTorch",
    "cuda-graphs": "CUDA graphs",
}


def limit() -> float:
    """The largest share of the original's time that the benchmark allows."""
    (rate,) = re.findall(r"^RATE = ([\d.]+)", (ROOT / "benchmarks" / "runtimes.py").read_text(), flags=re.MULTILINE)
    return 1 - float(rate)


def row_of(network: str, runtime: str, precision: str, steps: str = "default") -> dict[str, Any]:
    """What was measured of a network in a runtime, in the default steps or in steps that were found."""
    suffix = "_steps" if steps == "found" else ""
    row: dict[str, Any] = raw(f"runtimes/{network}_{runtime}_{precision}{suffix}.json")
    return row


def ratios_of(row: dict[str, Any]) -> list[dict[str, float]]:
    """The times of the results, as shares of the original's, with their intervals."""
    return [seed["ratio"] for seed in row["seeds"]]


def medians_of(row: dict[str, Any]) -> str:
    """The medians of the results' times, as shares of the original's."""
    return ", ".join(f"{ratio['median']:.2f}" for ratio in ratios_of(row))


def error_of(row: dict[str, Any]) -> tuple[str, str]:
    """The median error of a latency table and its rank correlation."""
    return f"{pct(row['error']['median'], 1)} %", f"{row['error']['rank_correlation']:.2f}"


def fastest_share(row: dict[str, Any]) -> str:
    """The time of the fastest structure of a limit that cannot be met, as a share of the unpruned network's."""
    (share,) = re.findall(r"takes \S+ ms, (\S+) of the unpruned network's time", row["failure"])
    return str(share)


def option_of(row: dict[str, Any], option: str) -> int:
    """The number that the command of a row gives to an option."""
    words = row["command"].split()
    return int(words[words.index(option) + 1])
