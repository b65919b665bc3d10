"""A limit on latency that the smallest structure misses is met, if wider structures are faster."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import aacp
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget
from aacp.estimate.psae import PSAE
from aacp.latency.measure import measure_latency
from aacp.latency.steps import FoundSteps
from aacp.latency.table import LatencyTable
from aacp.pipeline import latency_stage, searching
from aacp.pipeline.finalists import CUTS_STREAMS
from aacp.pipeline.halving import RungTraining
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.task import PruningTask
from glue import subjects
from latency.own_int8 import OwnInt8, OwnRuntime
from pipeline import tiny_run

pytestmark = pytest.mark.slow

# Microseconds of a convolution by its output channels; the classifier takes 10. Unpruned: 110, the smallest structure:
# 150, the fastest one, with 4 channels in both groups: 50.
KERNEL = {1: 70, 2: 66, 3: 62, 4: 20, 5: 26, 6: 34, 7: 42, 8: 50}
STEPS = {"conv1": 1, "conv2": 1}


class NarrowInt8(OwnInt8):
    """Kernels in int8 that take longest for few channels."""

    def seconds_of(self, layer: nn.Conv2d | nn.Linear) -> float:
        return 1e-6 * (KERNEL[layer.out_channels] if isinstance(layer, nn.Conv2d) else 10)


class NarrowRuntime(OwnRuntime):
    def quantized(self, images: Sequence[Any] | None) -> NarrowInt8:
        return NarrowInt8(images)


PLAN = aacp.Plan(
    evaluations=12,
    calibration_images=8,
    recipe=None,
    reconstruction=None,
    deployment=aacp.Deployment(NarrowRuntime(), precision="int8"),
)


@pytest.fixture(autouse=True)
def _few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated times have no noise, so that short measurements are enough; two held-out structures judge nothing."""
    hasty = partial(measure_latency, structures=64, held_out=2, seconds_per_structure=1e-4)
    monkeypatch.setattr(latency_stage, "measure_latency", hasty)


def found(folder: Path, budget: dict[str, Any], plan: aacp.Plan = PLAN) -> aacp.Found:
    return aacp.find(tiny_run.network(), tiny_run.data(), budget, folder, plan=plan, device="cpu")


def microseconds(counts: Sequence[int]) -> int:
    return sum(KERNEL[count] for count in counts) + 10


def evaluated(folder: Path) -> list[tuple[int, ...]]:
    return [tuple(json.loads(line)["counts"]) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_a_limit_that_the_smallest_structure_misses_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with aacp.show_progress():
        structure = found(tmp_path, {"latency": 0.4}).structure
    assert microseconds(structure) <= 0.6 * 110 < microseconds((1, 1))
    assert min(map(min, evaluated(tmp_path))) == 4
    assert capsys.readouterr().err.count(searching.ONLY_WIDER) == 1


@pytest.mark.parametrize("method", ["uniform", "random", "paper"])
def test_other_methods_meet_it_too(tmp_path: Path, method: str) -> None:
    structure = found(tmp_path, {"latency": 0.4, "macs": 0.3}, replace(PLAN, method=method)).structure
    assert microseconds(structure) <= 0.6 * 110
    assert min(map(min, evaluated(tmp_path))) >= 4


@pytest.mark.parametrize("changes", [{}, {"pruning_step": "auto"}, {"pruning_step": STEPS}, {"latency_table": "there"}])
def test_a_limit_that_nothing_meets_is_rejected_with_the_fastest_structure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(latency_stage, "discover_steps", lambda *_, **__: FoundSteps(STEPS))
    if "latency_table" in changes:
        changes = {"latency_table": str(table_of_a_device(tmp_path))}
    with pytest.raises(aacp.InfeasibleBudget) as caught:
        found(tmp_path / "run", {"latency": "45us"}, replace(PLAN, **changes))
    fact, advice = str(caught.value).split(". Loosen the limit")
    assert re.fullmatch(
        r"latency: at most 45us cannot be met, since the fastest structure found in this space takes 0\.05\d* ms, "
        r"0\.4\d+ of the unpruned network's time",
        fact,
    )
    step_auto = ', or use widths at which the runtime is fast, which --step auto (pruning_step="auto") finds on this '
    assert advice == ("." if changes else f"{step_auto}machine.")


def table_of_a_device(folder: Path) -> Path:
    """A table of these kernels, as if it had been measured on a device that is not here."""
    found(folder / "first", {"latency": 0.4}, replace(PLAN, evaluations=1))
    table = json.loads((folder / "first" / "latency.json").read_text())
    file = folder / "device.json"
    file.write_text(json.dumps({**table, "elsewhere": True}))
    return file


def test_a_table_of_a_device_serves_as_well(tmp_path: Path) -> None:
    plan = replace(PLAN, latency_table=str(table_of_a_device(tmp_path)))
    assert microseconds(found(tmp_path / "run", {"latency": 0.4}, plan).structure) <= 0.6 * 110


def test_a_resumed_search_is_in_the_same_part_of_the_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = found(tmp_path / "once", {"latency": 0.3}).structure
    score = PSAE.__call__
    left = iter(range(1))

    def stopping(self: PSAE, structure: aacp.Structure) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return score(self, structure)

    with monkeypatch.context() as stopped:
        stopped.setattr(PSAE, "__call__", stopping)
        with pytest.raises(KeyboardInterrupt):
            found(tmp_path / "again", {"latency": 0.3})
    assert len(evaluated(tmp_path / "again")) == 1 < len(evaluated(tmp_path / "once"))
    assert found(tmp_path / "again", {"latency": 0.3}).structure == once
    assert evaluated(tmp_path / "again") == evaluated(tmp_path / "once")
    for folder in ("once", "again"):
        assert json.loads((tmp_path / folder / "search.json").read_text())["choices"] == [[4, 5, 6, 7, 8]] * 2


def test_nothing_changes_where_the_smallest_structure_is_fast_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, deployment=aacp.Deployment(OwnRuntime()))
    found(tmp_path / "first", {"latency": 0.4}, replace(plan, evaluations=1))
    plan = replace(plan, latency_table=str(tmp_path / "first" / "latency.json"))
    found(tmp_path / "now", {"latency": 0.4}, plan)
    monkeypatch.setattr(latency_stage, "reachable", lambda space, *_: space)
    found(tmp_path / "before", {"latency": 0.4}, plan)
    for name in ("history.jsonl", "search.json"):
        assert (tmp_path / "now" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()


def test_the_largest_share_of_the_latency_is_that_of_the_fastest_structure(tmp_path: Path) -> None:
    plan = replace(PLAN, max_drop=0.99, shrink="latency", evaluations=2)
    structure = found(tmp_path, {}, plan).structure
    assert microseconds(structure) == 50


def test_another_cost_is_shrunk_within_a_limit_that_the_smallest_structure_misses(tmp_path: Path) -> None:
    """With 2 and 4 channels it takes 96 of 99 microseconds, with fewer channels more than 99; the fastest one has 8."""
    plan = replace(PLAN, max_drop=0.99, shrink="channel_count", evaluations=2)
    structure = found(tmp_path, {"latency": 0.1}, plan).structure
    assert sorted(structure) == [2, 4]


def test_a_sweep_checks_and_meets_such_limits(tmp_path: Path) -> None:
    subject = tiny_run.network(), tiny_run.data()
    with pytest.raises(aacp.InfeasibleBudget, match="60 % less cannot be met, since the fastest structure"):
        aacp.sweep(*subject, [{"latency": 0.4}, {"latency": 0.6}], tmp_path / "far", plan=PLAN, device="cpu")
    assert not list((tmp_path / "far").glob("*/history.jsonl"))
    swept = aacp.sweep(*subject, [{"latency": 0.4}, {"macs": 0.5}], tmp_path / "near", plan=PLAN, device="cpu")
    assert microseconds(swept.choices[0].counts) <= 0.6 * 110
    assert min(map(min, evaluated(swept.folders[1].path))) < 4


class Machine:
    """Stands in for check_latency: everything takes `factor` times what the kernels say, up to a relative noise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.factor = 1.0
        self.noise = 0.0
        self.calls = 0
        self.stops_at = 0  # the call that is interrupted
        monkeypatch.setattr(latency_stage, "check_latency", self.check)

    def check(
        self, _: nn.Module, graph: aacp.ChannelGraph, structures: Sequence[aacp.Structure], *where: Any, **others: Any
    ) -> list[aacp.LatencyCheck]:
        self.calls += 1
        if self.calls == self.stops_at:
            raise KeyboardInterrupt
        original = aacp.MedianInterval(110e-6, 110e-6, 110e-6)
        medians = {structure: 1e-6 * self.factor * microseconds(structure) for structure in structures}
        intervals = {
            each: aacp.MedianInterval((1 - self.noise) * median, median, (1 + self.noise) * median)
            for each, median in medians.items()
        }
        return [
            aacp.LatencyCheck(each, interval, interval.scaled(1 / 110e-6), original)
            for each, interval in intervals.items()
        ]


def corrected_searches(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("corrected-*"))


def test_a_corrected_table_is_searched_from_its_own_fastest_structure(tmp_path: Path, monkeypatch) -> None:
    """By the first table the smallest structure meets the limit, by the corrected one it does not."""
    monkeypatch.setitem(KERNEL, 1, 31)  # the smallest structure takes 72 microseconds
    machine = Machine(monkeypatch)
    machine.factor = 1.2
    choice = found(tmp_path, {"latency": "80us"}).structure
    assert 1.2 * microseconds(choice) <= 80 < 1.2 * microseconds((1, 1))
    (name,) = corrected_searches(tmp_path)
    assert re.fullmatch("corrected-1-[0-9a-f]{8}", name)
    assert min(map(min, evaluated(tmp_path / name))) == 4 > min(map(min, evaluated(tmp_path)))


def test_a_search_is_not_resumed_in_another_part_of_the_space(tmp_path: Path, monkeypatch) -> None:
    """Measurements that were too noisy are repeated, and correct the table in another way than before."""
    # The widest candidates are measured, and not the smallest one.
    monkeypatch.setattr(PSAE, "_scored", lambda self, network: sum(p.numel() for p in network.parameters()) / 1e4)
    monkeypatch.setitem(KERNEL, 1, 29)
    machine = Machine(monkeypatch)
    machine.noise = 0.15
    machine.stops_at = 2
    with pytest.raises(KeyboardInterrupt):
        found(tmp_path, {"latency": "80us"})
    assert len(corrected_searches(tmp_path)) == 1
    machine.factor = 1.4
    machine.noise = 0.0
    assert 1.4 * microseconds(found(tmp_path, {"latency": "80us"}).structure) <= 80
    assert len(corrected_searches(tmp_path)) == 2


@dataclass(frozen=True)
class DeviceTable:
    """Microseconds of each group by its width, on a device that is not here; frozen groups keep their widths."""

    microseconds: Mapping[str, Mapping[int, float]]
    elsewhere: bool = True
    problem: str = ""

    @property
    def conditions(self) -> DeviceTable:
        return self

    def require_deployment(self, given: Mapping[str, Any]) -> None:
        assert given["runtime"] == "own"

    def require_decisive(self) -> None:
        """It has no noise."""

    def save(self, path: Path) -> None:
        """The check on the device is not part of these tests."""

    def cost(self, graph: aacp.ChannelGraph) -> Cost:
        def seconds(rows: NDArray[np.int64]) -> NDArray[np.float64]:
            kept = [dict(zip((group.name for group in graph.free), row, strict=True)) for row in rows.tolist()]
            return np.array([self.seconds(counts) for counts in kept])

        return Cost("latency", "s", self.seconds({}), seconds)

    def seconds(self, kept: Mapping[str, int]) -> float:
        return 1e-6 * sum(times[kept.get(name, max(times))] for name, times in self.microseconds.items())


@pytest.mark.parametrize(
    ("most", "uniform"),
    [
        ("75.5us", [2, 16, 4]),  # with the stream whole, the smallest structure meets the limit
        ("74.95us", [8, 16, 4]),  # and here only the fastest one does
    ],
)
def test_the_uniform_finalist_meets_a_limit_that_the_smallest_structure_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str, uniform: list[int]
) -> None:
    times = {
        "conv1": {2: 5, 4: 30, 6: 30, 8: 4.9},
        "conv2": {4: 100, 8: 90, 12: 80, 16: 50},  # the stream
        "conv3": {4: 20, 8: 40, 12: 50, 16: 60},
    }
    (tmp_path / "device.json").touch()
    monkeypatch.setattr(LatencyTable, "load", lambda path: DeviceTable(times))
    monkeypatch.setattr(RungTraining, "__call__", lambda self, structure: 0.5)
    plan = replace(
        tiny_run.PLAN,
        evaluations=4,
        finalists=3,
        rungs=(1, 2),
        pruning_step=1 / 4,
        latency_table=str(tmp_path / "device.json"),
        deployment=aacp.Deployment(OwnRuntime()),
    )
    task = PruningTask.of(subjects.Tiny(), subjects.data(), None, device=torch.device("cpu"))
    choice = PruningRun(task, Budget.of({"latency": most}), plan, aacp.RunFolder(tmp_path / "run")).find()[1]
    assert choice.counts == (8, 16, 4)
    record = json.loads((tmp_path / "run" / "finalists.json").read_text())
    assert [each["choice"]["counts"] for each in record["finalists"] if each["is_uniform"]] == [uniform]
    assert CUTS_STREAMS not in record["notes"]
