"""A limit on latency is met by measurements, even if the table is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.estimate.psae import PSAE
from aacp.latency.check import LatencyCheck
from aacp.latency.measure import measure_latency
from aacp.latency.steps import FoundSteps
from aacp.latency.table import LatencyTable
from aacp.latency.timing import MedianInterval
from aacp.pipeline.finalists import chosen_finalists
from aacp.pipeline.latency_stage import LatencyStage
from aacp.pipeline.plan import Plan
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.searching import Search
from aacp.pipeline.sweep import SweepRun
from aacp.pipeline.task import PruningTask
from aacp.runs.chosen import ChosenStructure
from aacp.runs.finalists import Finalists
from aacp.search.history import Candidate, History
from aacp.search.saving import recorded
from aacp.user.progress import show_progress
from latency.own_int8 import OwnInt8, OwnRuntime

PLAN = Plan(evaluations=12, calibration_images=128, recipe=None, reconstruction=None)
FULL = 10e-3  # seconds of the unpruned network by the table
END_TO_END = 40e-3  # seconds of the unpruned network when it is measured end to end
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Table:
    """Says that seconds follow the MACs, times what it was corrected by."""

    scale: float = 1.0
    reference: float = FULL
    judged: list[object] = field(default_factory=list, compare=False)
    elsewhere: bool = False

    @property
    def conditions(self) -> Table:
        return self

    def require(self, requested: aacp.MeasurementConditions) -> None:
        self.judged.append(requested)

    def cost(self, graph: aacp.ChannelGraph) -> Cost:
        macs = aacp.macs(graph)
        return Cost("latency", "s", FULL, lambda rows: np.asarray(macs(rows) / macs.full * FULL * self.scale))

    def corrected(self, graph, structures, seconds) -> Table:
        ratios = [value / float(self.cost(graph)(np.asarray(s))) for s, value in zip(structures, seconds, strict=True)]
        return replace(self, scale=self.scale * float(np.mean(ratios)))

    def require_decisive(self) -> None:
        self.judged.append(True)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"scale": self.scale}))


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How much longer than the table says everything takes, and how often it and tables were measured."""
    world = {"factor": 1.0, "noise": 0.01, "measured": 0, "tables": 0}

    def measured(self: LatencyStage, structures, limit=None) -> list[LatencyCheck]:
        world["measured"] += len(structures)
        macs = aacp.macs(self.graph)
        least = aacp.SearchSpace(self.graph, PLAN.pruning_step).smallest
        factors = {least: world.get("factor of the smallest", world["factor"])}
        ratios = [factors.get(s, world["factor"]) * float(macs(np.asarray(s))) / macs.full for s in structures]
        noise = world["noise"]
        intervals = [MedianInterval((1 - noise) * r, r, (1 + noise) * r) for r in ratios]
        original = MedianInterval(END_TO_END, END_TO_END, END_TO_END)
        return [
            LatencyCheck(s, interval.scaled(FULL), interval, original)
            for s, interval in zip(structures, intervals, strict=True)
        ]

    monkeypatch.setattr(LatencyStage, "_measure", measured)

    def tabled(*_, **__) -> Table:
        world["tables"] += 1
        return Table()

    monkeypatch.setattr("aacp.pipeline.latency_stage.measure_latency", tabled)
    return world


def checks_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "checks.jsonl").read_text().splitlines()]


def found(model, data, budget, folder: Path, plan: Plan = PLAN, known_from: Sequence[Path] = ()) -> ChosenStructure:
    subject = PruningTask(model, data, "digits_resnet", torch.device("cpu"))
    earlier = [str(path) for path in known_from]
    return PruningRun(subject, Budget.of(budget), plan, aacp.RunFolder(folder), known_from=earlier).find()[1]


@pytest.mark.parametrize("budget", [{"latency": 0.4}, {"latency": "6ms"}, {"latency": 0.4, "params": 0.5}])
def test_a_table_that_flatters_is_corrected_until_a_candidate_truly_meets_the_limit(
    model, data, tmp_path: Path, truth, budget, capsys: pytest.CaptureFixture[str]
) -> None:
    truth["factor"] = 1.3
    with show_progress():
        choice = found(model, data, budget, tmp_path)
    said = capsys.readouterr().err
    assert "correct the latency table, and a search of 20 evaluations follows.\n1/20 evaluations" in said
    latency = next(limit for limit in choice.limits if limit.cost == "latency")
    graph = aacp.ChannelGraph.from_json(json.loads((tmp_path / "graph.json").read_text()))
    macs = aacp.macs(graph)
    ratio = 1.3 * float(macs(np.asarray(choice.counts))) / macs.full
    true = FULL * ratio
    # The end-to-end measurement decides and is shown, beside that of the unpruned network. The table is not.
    assert latency.full == END_TO_END
    assert latency.reached == pytest.approx(true if budget["latency"] == "6ms" else END_TO_END * ratio)
    assert latency.bound == pytest.approx(6e-3 if budget["latency"] == "6ms" else 0.6 * END_TO_END)
    assert 1.01 * true <= 0.6 * FULL
    assert true > 0.5 * FULL  # and not by cutting far too much
    assert all(limit.holds for limit in choice.limits)
    assert list(tmp_path.glob("corrected-*/history.jsonl"))
    # The folder keeps what was learnt: 1.3 times as long, and three of four measurements stay below 1.01 of that.
    assert json.loads((tmp_path / "latency.json").read_text())["scale"] == pytest.approx(1.01 * 1.3)


def test_a_method_that_proposes_one_structure_says_that_one_follows(
    model, data, tmp_path: Path, truth, capsys: pytest.CaptureFixture[str]
) -> None:
    truth["factor"] = 1.3
    with show_progress():
        found(model, data, {"latency": 0.4}, tmp_path, replace(PLAN, method="uniform", evaluations=None))
    assert (
        "correct the latency table, and a search of 1 evaluation follows.\n1/1 evaluations" in capsys.readouterr().err
    )


def test_a_table_that_is_right_is_left_alone(model, data, tmp_path: Path, truth) -> None:
    truth["factor"] = 0.97
    found(model, data, {"latency": 0.4}, tmp_path)
    assert truth["measured"] <= 1 + 3  # the smallest structure, and the best ones
    assert not list(tmp_path.glob("corrected-*"))
    assert not (tmp_path / "latency.json").exists()


@pytest.mark.parametrize("budget", [{"latency": 0.4}, {"latency": "6ms"}])
def test_a_table_that_says_too_much_is_corrected_so_that_the_limit_is_used_up(
    model, data, tmp_path: Path, truth, budget, capsys: pytest.CaptureFixture[str]
) -> None:
    truth["factor"] = 0.7
    with show_progress():
        choice = found(model, data, budget, tmp_path)
    said = capsys.readouterr().err
    assert "faster than the table says, so wider ones may meet it too. These measurements correct" in said
    (latency,) = choice.limits
    assert 0.95 * latency.bound < latency.reached <= latency.bound
    first, *later = checks_in(tmp_path)
    assert first["ratio"]["median"] < 0.7 * 0.6
    assert choice.counts in [tuple(checked["counts"]) for checked in later]
    assert json.loads((tmp_path / "latency.json").read_text())["scale"] == pytest.approx(1.01 * 0.7)


def test_a_limit_on_latency_is_not_used_up_if_another_limit_decides(model, data, tmp_path: Path, truth) -> None:
    truth["factor"] = 0.7
    found(model, data, {"latency": 0.4, "macs": 0.6}, tmp_path)
    assert truth["measured"] <= 1 + 3
    assert not list(tmp_path.glob("corrected-*"))


@pytest.mark.parametrize(("params", "leaves_room"), [(75, True), (95, False)])
def test_the_limit_that_is_used_up_most_decides_whether_wider_structures_are_searched(
    params: int, leaves_room: bool
) -> None:
    """The table predicts 94 % of the limit on latency and 80 % were measured; 75 or 95 % of the other one are used."""
    latency = Limit(Cost("latency", "s", 1.0, lambda rows: rows[:, 0] / 1000), pruning_rate=0.5)
    size = Limit(Cost("params", "", 1.0, lambda rows: rows[:, 1] / 1000), pruning_rate=0.9)
    structure = Structure((470, params))
    measured = MedianInterval(0.4, 0.4, 0.4)
    checked = LatencyCheck(structure, measured, measured, MedianInterval(1.0, 1.0, 1.0))
    search: Any = SimpleNamespace(bound_budget=Budget(latency, size))
    assert Search._leaves_room(search, Candidate(0, 0, structure, 0.9), checked, latency) is leaves_room


def test_the_best_measured_candidate_is_delivered_if_a_corrected_table_finds_none(
    model, data, tmp_path: Path, truth, monkeypatch
) -> None:
    """All but the first candidates are slow, so that the corrected table flatters the others."""
    true = LatencyStage._measure
    calls = iter([0.7, 0.7])  # the smallest structure, and the first candidates

    def measured(self, structures, limit=None):
        truth["factor"] = next(calls, 1.5)
        return true(self, structures, limit)

    monkeypatch.setattr(LatencyStage, "_measure", measured)
    choice = found(model, data, {"latency": 0.4}, tmp_path)
    assert len(list(tmp_path.glob("corrected-*"))) == 2
    checks = checks_in(tmp_path)
    met = [tuple(checked["counts"]) for checked in checks if checked["ratio"]["upper"] <= 0.6]
    assert choice.counts in met
    assert len(met) < len(checks)


def test_a_wider_candidate_is_delivered_only_if_it_scores_higher(
    model, data, tmp_path: Path, truth, monkeypatch
) -> None:
    monkeypatch.setattr(PSAE, "_scored", lambda self, network: -sum(p.numel() for p in network.parameters()) / 1e6)
    truth["factor"] = 0.7
    choice = found(model, data, {"latency": 0.4}, tmp_path)
    assert list(tmp_path.glob("corrected-*"))
    lines = [json.loads(line) for file in tmp_path.rglob("history.jsonl") for line in file.read_text().splitlines()]
    scores = {tuple(line["counts"]): line["score"] for line in lines}
    checks = checks_in(tmp_path)
    assert choice.score == max(scores[tuple(checked["counts"])] for checked in checks)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Finalists]:
    """The finalists of the runs of a test, which are not trained."""
    kept: list[Finalists] = []

    class Comparison:
        def __init__(self, search: Search, label: str) -> None:
            self.search = search

        def run(self, choice: ChosenStructure, history: History) -> ChosenStructure:
            kept.append(chosen_finalists(self.search, choice, history))
            return choice

    monkeypatch.setattr("aacp.pipeline.pruning.Halving", Comparison)
    return kept


FINALISTS = replace(PLAN, finalists=4, rungs=(1,), recipe=aacp.Recipe(epochs=2, batch_size=64, lr=0.01))


@pytest.mark.parametrize("factor", [0.7, 1.08, 1.3])
def test_structures_that_a_corrected_table_allows_become_finalists(
    model, data, tmp_path: Path, truth, compared: list[Finalists], factor: float
) -> None:
    truth["factor"] = factor
    found(model, data, {"latency": 0.4}, tmp_path, FINALISTS)
    (finalists,) = compared
    shares = [finalist.choice.limits[0].reached / finalist.choice.limits[0].bound for finalist in finalists.finalists]
    assert len(shares) == 4
    assert sum(finalist.is_uniform for finalist in finalists.finalists) == 1
    assert sum(share > 0.8 for share in shares) > 1  # with the factor 0.7, the first table allows 0.7 of the limit


def test_a_found_structure_is_kept_if_nothing_meets_the_limit_by_a_corrected_table(
    model, data, tmp_path: Path, truth, monkeypatch, compared: list[Finalists]
) -> None:
    truth["factor"] = 0.7
    corrected = Table.corrected
    monkeypatch.setattr(Table, "corrected", lambda *words: replace(corrected(*words), scale=1e3))
    choice = found(model, data, {"latency": 0.4}, tmp_path, FINALISTS)
    (latency,) = choice.limits
    assert latency.holds
    assert latency.reached < 0.9 * latency.bound
    assert compared[0].finalists[0].choice.counts == choice.counts
    assert len(compared[0].finalists) > 1  # chosen by the first table


def stop_at_third_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    stops = iter([False, False, True])
    true = LatencyStage._measure

    def stopping(self, structures, limit=None):
        if next(stops, False):
            raise KeyboardInterrupt
        return true(self, structures, limit)

    monkeypatch.setattr(LatencyStage, "_measure", stopping)


@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_measurements_are_kept_and_a_stopped_run_comes_to_the_same_end(
    model, data, tmp_path: Path, truth, monkeypatch, factor: float
) -> None:
    truth["factor"] = factor
    once = found(model, data, {"latency": 0.4}, tmp_path / "once")
    stop_at_third_measurement(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        found(model, data, {"latency": 0.4}, tmp_path / "again")
    truth["measured"] = 0
    assert found(model, data, {"latency": 0.4}, tmp_path / "again") == once
    kept = checks_in(tmp_path / "again")
    assert truth["measured"] < len(kept)
    assert (tmp_path / "again" / "latency.json").read_bytes() == (tmp_path / "once" / "latency.json").read_bytes()
    once_searched, again_searched = (
        sorted(path.name for path in (tmp_path / name).glob("corrected-*")) for name in ("once", "again")
    )
    assert again_searched == once_searched


def test_a_run_that_was_stopped_on_a_noisy_machine_uses_up_the_limit_on_a_quiet_one(
    model, data, tmp_path: Path, truth, monkeypatch
) -> None:
    """The first table allows too much, and one that noise corrected would allow only three quarters of the limit."""
    truth["factor"] = 1.05
    truth["noise"] = 0.3
    stop_at_third_measurement(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        found(model, data, {"latency": 0.4}, tmp_path)
    truth["noise"] = 0.01
    (latency,) = found(model, data, {"latency": 0.4}, tmp_path).limits
    assert 0.95 * latency.bound < latency.reached <= latency.bound


def test_a_limit_that_nothing_meets_is_given_up_with_what_was_measured(model, data, tmp_path: Path, truth) -> None:
    truth["factor"] = 40.0  # the smallest structure takes 1.14 times what it may: perhaps another is faster
    words = r"latency: 40 % less cannot be met, since the smallest .* searched takes 6\.\d+ ms \(.*; 0\.68"
    with pytest.raises(aacp.InfeasibleBudget, match=words):
        found(model, data, {"latency": 0.4}, tmp_path)
    assert truth["tables"] == 1


def test_a_corrected_table_alone_does_not_prove_that_a_limit_cannot_be_met(model, data, tmp_path: Path, truth) -> None:
    truth["factor"] = 40.0
    truth["factor of the smallest"] = 1.0  # as if another process had interrupted all other measurements
    words = r"candidates missed the limit .* but the smallest structure took .* Remove \S+/checks\.jsonl and call"
    with pytest.raises(aacp.InconclusiveMeasurement, match=words):
        found(model, data, {"latency": 0.4}, tmp_path)
    truth["factor"] = 1.0
    (tmp_path / "checks.jsonl").unlink()  # as the message says
    (latency,) = found(model, data, {"latency": 0.4}, tmp_path).limits
    assert latency.holds


def test_a_noisy_machine_gives_no_verdict_and_the_same_call_measures_again(model, data, tmp_path: Path, truth) -> None:
    truth["noise"] = 300.0
    words = r"of \d+ were too noisy to tell.* less busy machine"
    with pytest.raises(aacp.InconclusiveMeasurement, match=words) as caught:
        found(model, data, {"latency": 0.4}, tmp_path)
    last = checks_in(tmp_path)[-1]
    assert f"the last took {1e3 * last['seconds']['median']:.2f} ms" in str(caught.value)
    assert not (tmp_path / "structure.json").exists()
    truth["noise"] = 0.01
    choice = found(model, data, {"latency": 0.4}, tmp_path)
    (latency,) = choice.limits
    assert latency.holds


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"latency": "10us"}, r"latency: at most 10us cannot be met, since .* takes 0\.\d+ ms \(.* Loosen"),
        ({"latency": 0.999}, r"latency: 99.9 % less cannot be met, since the smallest structure"),
        ({"latency": 0.1, "macs": 0.999}, r"macs: a pruning rate of 0.999 cannot be met, since the smallest structure"),
    ],
)
def test_limits_out_of_reach_are_rejected_before_a_table_is_measured(
    model, data, tmp_path: Path, truth, budget, words
) -> None:
    with pytest.raises(aacp.InfeasibleBudget, match=words):
        found(model, data, budget, tmp_path)
    assert truth["tables"] == 0


def test_a_latency_that_the_unpruned_network_has_is_rejected_before_a_table_is_measured(
    model, data, tmp_path: Path, truth
) -> None:
    """End to end, the unpruned network takes 40 ms."""
    for budget in ({"latency": "41ms"}, {"latency": "41ms", "macs": "1G"}, {"latency": 0.0}):
        with pytest.raises(aacp.InvalidOption, match=r"unpruned network already meets .*latency .* nothing to remove"):
            found(model, data, budget, tmp_path / "run")
    assert truth["tables"] == 0
    for number, budget in enumerate(({"latency": "39ms"}, {"latency": "41ms", "macs": 0.2})):
        with suppress(aacp.InvalidOption):  # by the table, the unpruned network takes 10 ms
            found(model, data, budget, tmp_path / str(number))
        assert truth["tables"] == number + 1
    subject = PruningTask(model, data, "digits_resnet", torch.device("cpu"))
    swept = SweepRun(subject, [Budget.of({"latency": "41ms"})], PLAN, tmp_path / "sweep", train=False).sweep()
    assert swept.choices[0].limits[0].holds


def test_steps_found_by_timing_are_found_once(model, data, tmp_path: Path, truth, monkeypatch) -> None:
    calls = []

    def steps(model, graph, where, **_) -> FoundSteps:
        calls.append(where)
        return FoundSteps({group.name: 4 for group in graph.free})

    monkeypatch.setattr("aacp.pipeline.latency_stage.discover_steps", steps)
    plan = replace(PLAN, pruning_step="auto")
    choice = found(model, data, {"macs": 0.4}, tmp_path, plan)
    assert all(count % 4 == 0 for count in choice.counts)
    (tmp_path / "structure.json").unlink()
    found(model, data, {"macs": 0.4}, tmp_path, plan)
    assert len(calls) == 1
    assert calls == [aacp.Deployment("onnxruntime", "cpu", 1, 2)]


def test_a_table_that_was_measured_before_is_taken_or_rejected(model, data, tmp_path: Path, monkeypatch) -> None:
    loaded = []
    monkeypatch.setattr(LatencyTable, "load", lambda path: loaded.append(path) or Table())
    plan = replace(PLAN, latency_table="table.json", deployment=aacp.Deployment("torch", threads=1))
    subject = PruningTask(model, data, "digits_resnet", torch.device("cpu"))
    stage = LatencyStage(subject, None, plan, aacp.RunFolder(tmp_path))
    table = stage.table_for(Budget.of({"latency": 0.3}))
    assert table == Table()
    # A table of other conditions, and one that cannot decide anything, are rejected.
    assert table.judged == [aacp.conditions_here(model, plan.deployment), True]
    assert loaded == ["table.json"]
    assert stage.table_for(Budget.of({"macs": 0.3})) is None


def test_tables_and_checks_of_a_deployment_in_int8_are_of_the_quantised_network(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated kernels in int8 compute blocks of 32 channels, each at a quarter of the time."""
    hasty = partial(measure_latency, structures=12, held_out=4)
    monkeypatch.setattr("aacp.pipeline.latency_stage.measure_latency", hasty)
    example = torch.zeros(1, 1, 8, 8)
    graph = aacp.trace(model, example)
    where = aacp.Deployment(OwnRuntime(), precision="int8")
    subject = PruningTask(model, data, "digits_resnet", torch.device("cpu"))
    stage = LatencyStage(subject, graph, replace(PLAN, deployment=where), aacp.RunFolder(tmp_path))
    table = stage.table_for(Budget.of({"latency": 0.1}))
    assert table is not None
    assert table.conditions.precision == "int8"
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    in_int8 = sum(OwnInt8(None).seconds_of(layer) for layer in layers)
    assert table.reference == pytest.approx(in_int8)
    (checked,) = stage.check([graph.full], Budget.of({"latency": 0.1}).limits[0])
    assert checked.seconds.median == pytest.approx(in_int8)
    plain = replace(PLAN, latency_table=str(tmp_path / "latency.json"), deployment=replace(where, precision="float32"))
    with pytest.raises(aacp.DeviceMismatch, match="precision 'int8', but precision 'float32' is requested"):
        LatencyStage(subject, graph, plain, aacp.RunFolder(tmp_path)).table_for(Budget.of({"latency": 0.1}))


def test_known_structures_that_the_table_does_not_cover_are_left_out(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier search had a finer step, so its structures are narrower than what a table of this one holds."""
    hasty = partial(measure_latency, structures=12, held_out=4)
    monkeypatch.setattr("aacp.pipeline.latency_stage.measure_latency", hasty)
    plan = replace(PLAN, deployment=aacp.Deployment(OwnRuntime(), precision="int8"))
    found(model, data, {"macs": 0.95}, tmp_path / "fine", replace(plan, pruning_step=1 / 16))
    fine = recorded(aacp.RunFolder(tmp_path / "fine"))
    plan = replace(plan, pruning_step=1 / 4)
    graph = aacp.ChannelGraph.from_json(json.loads((tmp_path / "fine" / "graph.json").read_text()))
    least = aacp.SearchSpace(graph, plan.pruning_step).smallest.counts
    assert all(any(np.less(each.structure.counts, least)) for each in fine)
    (latency,) = found(model, data, {"latency": 0.1}, tmp_path / "new", plan, known_from=[tmp_path / "fine"]).limits
    assert latency.holds
