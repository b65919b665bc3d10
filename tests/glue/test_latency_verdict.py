"""A limit on latency is met if the whole interval of the measurement is. Its upper end corrects the table."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import aacp
from glue.subjects import data, watermarks

pytestmark = pytest.mark.slow

WHERE = aacp.Deployment("torch", threads=1)
UPPER = 1.3  # the upper end of the interval, times the median
LOWER = 0.5
BUSY = 3.0  # how much longer everything takes on a busy machine: seconds, but not their ratio
PIECE = 1e-3  # seconds of each layer of the unpruned network, by the table


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, public: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Replace a public function in every module of the library that has imported it, whatever the module's name is.

    This is the only place where these tests reach into the library. Modules that are imported later would keep the
    replacement, so that the pipeline is imported first.
    """
    assert callable(aacp.prune)
    for module in [module for name, module in sys.modules.items() if name.startswith("aacp.")]:
        for name, value in list(vars(module).items()):
            if value is public:
                monkeypatch.setattr(module, name, fake)


@pytest.fixture(scope="module")
def example() -> Any:
    return data().holdout[0][0][None]


@pytest.fixture(scope="module")
def graph(model: nn.Module, example: Any) -> aacp.ChannelGraph:
    return aacp.trace(model, example)


@pytest.fixture(scope="module")
def file(model: nn.Module, graph, example, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table as it is written by a measurement, with the seconds of a machine that takes as long as its widths say."""
    path = tmp_path_factory.mktemp("table") / "latency.json"
    effort = {"structures": 12, "held_out": 2, "seconds_per_structure": 1e-4}
    space = aacp.SearchSpace(graph, 1 / 8)
    aacp.measure_latency(model, graph, space, WHERE, example=example, file=path, **effort)
    table = json.loads(path.read_text())
    full = dict(zip(table["names"], (choice[-1] for choice in table["choices"]), strict=True))
    for run in (*table["measured"], *table["held_out"]):
        kept = dict(zip(table["names"], run["structure"], strict=True))
        run["pieces"] = [PIECE * _work(piece, kept) / _work(piece, full) for piece in table["pieces"]]
        run["whole"] = sum(run["pieces"])
        run["reference"] = run["reference_pieces"] = PIECE * len(run["pieces"])
        run["noise"] = 0.0
    path.write_text(json.dumps(table))
    return path


def _work(piece: dict[str, Any], counts: dict[str, int]) -> int:
    """The product of the widths of a piece of the network."""
    widths = [
        width["fixed"] + sum(counts[name] * times for name, times in width["groups"]) for width in piece["widths"]
    ]
    return math.prod(widths)


class Machine:
    """A machine whose medians are what the table predicts, and whose intervals are wide.

    `seconds` and `ratio` make one of the two that are measured longer than the truth: the limit at hand decides which
    of them counts.
    """

    def __init__(self, graph: aacp.ChannelGraph, file: Path) -> None:
        self.table = aacp.LatencyTable.load(file)
        self.cost = self.table.cost(graph)
        self.seconds = 1.0
        self.ratio = 1.0

    def median(self, structure: Any) -> float:
        return float(self.cost(np.asarray(structure)))

    def measure(
        self, _: nn.Module, __: aacp.ChannelGraph, structures, *where: Any, example: Any, limit: aacp.Limit
    ) -> list[aacp.LatencyCheck]:
        """What stands in for `aacp.check_latency`."""
        assert watermarks(example) == {("holdout", 0)}
        assert limit.cost.name == "latency"
        medians = [(structure, self.median(structure)) for structure in structures]
        original = spread(self.seconds * self.table.reference)
        return [
            aacp.LatencyCheck(
                structure, spread(self.seconds * median), spread(self.ratio * median / self.table.reference), original
            )
            for structure, median in medians
        ]


def spread(median: float) -> aacp.MedianInterval:
    return aacp.MedianInterval(LOWER * median, median, UPPER * median)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, graph: aacp.ChannelGraph, file: Path) -> Machine:
    stand_in = Machine(graph, file)
    assert stand_in.median(graph.full) == pytest.approx(stand_in.table.reference, rel=1e-3)
    replace_everywhere(monkeypatch, aacp.check_latency, stand_in.measure)
    return stand_in


def pruned(model: nn.Module, file: Path, folder: Path, limit: float | str, **budget: float) -> aacp.Pruned:
    plan = aacp.Plan(
        evaluations=30,
        recipe=None,
        reconstruction=None,
        calibration_images=16,
        export=False,
        deployment=WHERE,
        latency_table=str(file),
    )
    return aacp.prune(model, data(), {"latency": limit, **budget}, folder, plan=plan, device="cpu")


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("is_rate", [True, False])
def test_a_structure_whose_median_alone_is_fast_enough_is_not_delivered(
    model, graph, file, machine, tmp_path: Path, is_rate: bool
) -> None:
    most = 0.6 * machine.median(graph.full)
    if is_rate:
        machine.seconds = BUSY
    else:
        machine.ratio = BUSY
    found = pruned(model, file, tmp_path, 0.4 if is_rate else f"{1e3 * most:.9f}ms")
    (latency,) = found.choice.limits
    median = machine.median(found.choice.counts)
    assert UPPER * median <= most * (1 + 1e-6)
    # What is shown is measured end to end, for both networks: 3 times as long on the busy machine, at the same ratio.
    assert latency.full == pytest.approx(machine.seconds * machine.table.reference, rel=1e-6)
    assert latency.reached == pytest.approx(machine.seconds * median, rel=1e-6)
    # The first candidates kept to the limit by their medians alone, and were rejected.
    first = read_lines(tmp_path / "checks.jsonl")[0]
    assert machine.median(first["counts"]) <= most < UPPER * machine.median(first["counts"])
    assert list(tmp_path.glob("corrected-*/history.jsonl"))
    # The table is corrected to the upper ends of their intervals.
    corrections = json.loads((tmp_path / "latency.json").read_text())["corrections"]
    assert corrections
    for counts, seconds in corrections:
        assert seconds == pytest.approx(UPPER * machine.median(counts), rel=1e-6)


def test_a_structure_whose_interval_keeps_to_the_limit_is_delivered_at_once(
    model, graph, file, machine, tmp_path: Path
) -> None:
    """Another limit is tighter, so that the latency is met even by the upper end of the interval."""
    found = pruned(model, file, tmp_path, 0.05, macs=0.7)
    assert UPPER * machine.median(found.choice.counts) <= 0.95 * machine.median(graph.full)
    assert not list(tmp_path.glob("corrected-*"))


def test_a_limit_that_no_interval_keeps_to_is_given_up_as_too_noisy_to_tell(
    model, graph, file, machine, tmp_path: Path
) -> None:
    """The smallest structure keeps to it by its median, but its interval does not."""
    smallest = machine.median(aacp.SearchSpace(graph, 1 / 8).smallest)
    rate = 1 - 1.1 * smallest / machine.median(graph.full)
    with pytest.raises(aacp.InconclusiveMeasurement, match="too noisy to tell"):
        pruned(model, file, tmp_path, rate)
