"""Reading results of benchmarks/search_pays.py and benchmarks/untrained.py."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from evidence.claims import Row
from evidence.raw import pct, raw, spread

WIDTHS = {
    "uniform": "uniform",
    "uniform-repaired": "uniform, repaired",
    "search": "searched",
    "repaired": "searched, repaired",
}
UNTRAINED = {  # by case, the files with networks before training where repaired uniform ones are in another file
    "mobilenet_v2_30": (
        "untrained_mobilenet_v2_30.json",
        "search_pays_mobilenet_v2_30_0_epochs_uniform_repaired.json",
    ),
    "mobilenet_v2_70": (
        "untrained_mobilenet_v2_70.json",
        "search_pays_mobilenet_v2_70_0_epochs_uniform_repaired.json",
    ),
    "vgg16_60": ("untrained_vgg16_60.json", "search_pays_vgg16_60_0_epochs_uniform_repaired.json"),
    "resnet56_50": (
        "untrained_resnet56_50.json",
        "untrained_resnet56_50_repaired.json",
        "search_pays_resnet56_50_0_epochs_uniform_repaired.json",
    ),
}
LOW = "_lr_0.005"  # the default rate of 1 and of 10 epochs, at the end of the name of a result


def after_epochs(case: str, epochs: int, rate: str = "") -> Any:
    """The networks of search_pays.py for a network and limits, after their training or, after 0 epochs, before it."""
    return raw(f"search_pays_{case}_{epochs}_epochs{rate}.json" if epochs else f"untrained_{case}.json")


def before_training(case: str, arm: str) -> dict[str, Any]:
    """The networks of an arm before their training, with differences to uniform widths."""
    results = [raw(name) for name in UNTRAINED[case]]
    (found,) = (result for result in results if arm in result["summary"])
    uniform = {run["seed"]: run["test"] for run in runs_of(results[0], "uniform")}
    pairs = [run["test"] - uniform[run["seed"]] for run in runs_of(found, arm)]
    summary = {arm: {"test": tests_of(found, arm), "above_uniform": pairs}}
    return {"rows": found["rows"], "summary": {"uniform": None} | summary}


def tests_of(result: dict[str, Any], arm: str) -> list[float]:
    """The test accuracies of an arm, by seed."""
    return [float(test) for test in result["summary"][arm]["test"]]


def runs_of(result: dict[str, Any], arm: str) -> list[dict[str, Any]]:
    """The rows of an arm, by seed."""
    return [run for run in result["rows"] if run["arm"] == arm]


def unpruned(*results: dict[str, Any]) -> float:
    """The test accuracy of the unpruned network, which is the same in all rows."""
    (test,) = {run["unpruned"] for result in results for run in result["rows"]}
    return float(test)


def left(result: dict[str, Any], arm: str, cost: str) -> str:
    """The mean share of a cost that the networks of an arm keep."""
    return f"{pct(fmean(run[cost] for run in runs_of(result, arm)), 1)} %"


def estimates_of(result: dict[str, Any], arm: str) -> str:
    """The estimates of the networks of an arm, by seed."""
    return f"{', '.join(pct(run['estimate'], 1) for run in runs_of(result, arm))} %"


def above_uniform(result: dict[str, Any], arm: str) -> str:
    """The points above uniform widths, paired by seed; a dash for uniform widths themselves."""
    points = [100 * share for share in result["summary"][arm]["above_uniform"]]
    deviation = f" ± {stdev(points):.2f}" if len(points) > 1 else ""
    return "-" if arm == "uniform" else f"{fmean(points):+.2f}{deviation}"


def compared_with_uniform(result: dict[str, Any], *costs: str) -> list[Row]:
    """Widths, shares of costs that are left, estimates and accuracies of each arm of a result."""
    return [row_of(result, arm, *costs) for arm in result["summary"]]


def row_of(result: dict[str, Any], arm: str, *costs: str) -> Row:
    """Widths, shares of costs that are left, estimates and accuracies of an arm."""
    shares = [left(result, arm, cost) for cost in costs]
    about = (estimates_of(result, arm), spread(tests_of(result, arm)), above_uniform(result, arm))
    return (WIDTHS[arm], *shares, *about)


def highest_rate(log: Path) -> float:
    """The highest learning rate of a training."""
    return max(json.loads(line)["lr"] for line in log.read_text().splitlines())
