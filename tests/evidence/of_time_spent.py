"""docs/results.md: what a search and a training take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import pct, raw

PAGE = "docs/results.md"
COMMANDS = {  # result and number of commands that shared the GPU, by network and limits
    ("prune_cifar10_finetune_mixed_10_epochs", 4): "ResNet56, MACs -50 %",
    ("prune_cifar10_finetune", 4): "ResNet56, MACs -50 %",
    ("prune_cifar10_finetune_mixed_70_10_epochs", 4): "ResNet56, MACs -70 %",
    ("prune_cifar10_finetune_mixed_70", 4): "ResNet56, MACs -70 %",
    ("search_pays_resnet56_70_10_epochs", 12): "ResNet56, MACs -70 %",
    ("search_pays_resnet56_70_10_epochs_peers", 9): "ResNet56, MACs -70 %",
    ("search_pays_resnet56_70_100_epochs", 9): "ResNet56, MACs -70 %",
    ("search_pays_vgg16_50_10_epochs_base_33", 6): "VGG16, MACs -50 %, base of 33 epochs",
    ("search_pays_vgg16_50_10_epochs_base_66", 6): "VGG16, MACs -50 %, base of 66 epochs",
    ("search_pays_vgg16_70_10_epochs", 9): "VGG16, MACs -70 %",
    ("search_pays_vgg16_70_90_10_epochs", 9): "VGG16, MACs -70 %, parameters -90 %",
    ("search_pays_mobilenet_v2_50_10_epochs", 9): "MobileNetV2, MACs -50 %",
}
SPENT_ON = {
    "uniform": "uniform",
    "search": "searched",
    "default": "searched",
    "repaired": "searched, repaired",
    "torch-pruning": "Torch-Pruning, one ratio",
    "torch-pruning-global": "Torch-Pruning, global",
    "modelopt": "ModelOpt FastNAS",
}


def seconds_of(result: dict[str, Any], arm: str) -> list[float]:
    """The recorded seconds of whole commands, in the order of their seeds."""
    rows = [row for row in result["rows"] if arm in (row.get("arm"), row.get("method"))]
    return [row["seconds"] for row in sorted(rows, key=lambda row: int(row["seed"])) if row["seconds"] is not None]


def searches_of(result: dict[str, Any], arm: str) -> list[float]:
    """How much longer commands took than those with uniform widths, by seed."""
    return [one - other for one, other in zip(seconds_of(result, arm), seconds_of(result, "uniform"), strict=True)]


def spent_by(result: dict[str, Any], arm: str, commands: int) -> Row:
    """Evaluations, seconds of the searches and of whole commands, then the same in GPU seconds."""
    whole = fmean(seconds_of(result, arm))
    ends = (f"{whole:.0f}", f"{whole / commands:.0f}")
    if not SPENT_ON[arm].startswith("searched"):
        return ("-", "-", ends[0], "-", ends[1])
    more = searches_of(result, arm)
    evaluations = str(result.get("evaluations", 400))  # prune_cifar10.py does not record its 400
    return (evaluations, ", ".join(f"{each:.0f}" for each in more), ends[0], f"{median(more) / commands:.1f}", ends[1])


@table(PAGE, "network, limits", "spent on")
def time_spent() -> list[Row]:
    rows = []
    for (file, commands), name in COMMANDS.items():
        result = raw(f"{file}.json")
        assert len(result["rows"]) == commands  # they ran all at once
        assert int(result["command"].split("--at-once ")[1].split()[0]) >= commands
        epochs = "10" if "_10_epochs" in file else "100"
        for arm, spent_on in SPENT_ON.items():
            if seconds_of(result, arm):
                rows.append((name, spent_on, epochs, str(commands), *spent_by(result, arm, commands)))
    return rows


def searches_alone() -> list[Row]:
    """Searches that had the GPU for themselves."""
    rows = []
    for file, what in (("obs", "accuracy, order obs"), ("mimic", "likeness on 1,000 images")):
        result = raw(f"repair_resnet56_{file}.json")
        found = {run["rate"]: run["stages"]["search"] for run in result["product"]}
        for rate in (0.5, 0.7):
            name = f"search of ResNet56 at -{pct(rate, 0)} %, repaired estimate, {what}"
            evaluations = f"{result['evaluations']} evaluations"
            rows.append((name, evaluations, f"{found[rate]:.1f}", f"`repair_resnet56_{file}.json`"))
    alone = raw("worker_throughput.json")
    (evaluations,) = map(int, re.findall(r"--evaluations (\d+)", alone["command"]))
    (one,) = [row for row in alone["rows"] if row["workers"] == 0]
    seconds = f"{one['start_seconds'] + evaluations / one['per_second']:.1f}"
    name = "search of ResNet56 at -50 %"
    return [*rows, (name, f"{evaluations} evaluations", seconds, "`worker_throughput.json`")]


@table(PAGE, "alone on the H200", "amount")
def spent_alone() -> list[Row]:
    rows = searches_alone()
    for name, network, file in (
        ("ResNet56", "resnet56", "train_speed_streams"),
        ("VGG16", "vgg16", "train_speed"),
    ):
        found = raw(f"{file}.json")["rows"]
        (epochs,) = (row["seconds"] for row in found if (row["network"], row["way"]) == (network, "captured"))
        rows.append((f"training of {name} at -50 %", "100 epochs", f"{100 * median(epochs):.0f}", f"`{file}.json`"))
    return rows


def results_of_200_evaluations() -> list[tuple[dict[str, Any], int]]:
    """Results with 10 epochs whose searches had 200 evaluations, and how many commands ran at once."""
    names = [each for each in COMMANDS if each[0].startswith("search_pays") and each[0].endswith("_10_epochs")]
    names += [each for each in COMMANDS if "_10_epochs_base" in each[0]]
    results = [(raw(f"{file}.json"), commands) for file, commands in names]
    assert {result["evaluations"] for result, _ in results} == {200}
    return results


@states(PAGE)
def a_search_adds() -> Iterator[Claim]:
    results = results_of_200_evaluations()
    more = [(searches_of(result, "search"), result, commands) for result, commands in results]
    seconds = [each for found, *_ in more for each in found]
    failed = min(seconds)
    assert failed < -100 < sorted(seconds)[1]
    seconds.remove(failed)
    yield says("{} s is presumably that one", f"{failed:.0f}")
    yield says("200 evaluations took {:.0f} to {:.0f} s of a command", min(seconds), max(seconds))
    of_gpu = [median(found) / commands for found, _, commands in more]
    yield says("{:.1f} to {:.1f} GPU seconds", min(of_gpu), max(of_gpu))
    shares = [median(found) / fmean(seconds_of(result, "search")) for found, result, _ in more]
    words = "and {} to {} % of the command with 10 epochs"
    yield says(words, pct(min(shares), 0), pct(max(shares), 0))


@states(PAGE)
def a_search_by_repaired_estimates_adds() -> Iterator[Claim]:
    results = [result for result, _ in results_of_200_evaluations() if seconds_of(result, "repaired")]
    seconds = [each for result in results for each in searches_of(result, "repaired")]
    yield says("The repaired estimate took {:.0f} to {:.0f} s", min(seconds), max(seconds))
