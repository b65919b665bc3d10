"""A latency table predicts the times of a simulated machine, states its error, and is rejected on other machines."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aacp
from aacp.latency.table import LatencyTable
from latency_bench import SETTING, FakeBench, blocked, chain, proportional, table_of

GRAPH = chain(32, 64, 64, 128)
SPACE = aacp.SearchSpace(GRAPH, 1 / 8)


@pytest.fixture(scope="module")
def table() -> LatencyTable:
    return table_of(FakeBench(GRAPH, blocked, noise=0.01), SPACE)


def random_rows(space: aacp.SearchSpace, count: int, seed: int = 7) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.array([space.sample(generator) for _ in range(count)])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [blocked, proportional])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_structures_that_were_not_measured_are_predicted_steps_and_all(kernel, noise: float) -> None:
    bench = FakeBench(GRAPH, kernel, noise)
    table = table_of(bench, SPACE)
    rows = random_rows(SPACE, 200)
    true = np.array([bench.whole(aacp.Structure(row.tolist())) for row in rows])
    found = table.cost(GRAPH)(rows) / table.reference * bench.whole(GRAPH.full)
    assert np.median(np.abs(found / true - 1)) < 0.03
    assert np.abs(found / true - 1).max() < 0.2


@pytest.mark.slow
def test_the_reported_error_is_that_of_structures_no_part_of_the_fit_has_seen(table: LatencyTable) -> None:
    rows = np.array([run.structure for run in table.held_out])
    true = np.array([run.whole / run.reference for run in table.held_out]) * table.reference
    assert table.error.median == pytest.approx(np.median(np.abs(table.seconds(rows) / true - 1)))
    assert table.error.structures == 10
    liars = tuple(replace(run, whole=3 * run.whole) for run in table.held_out)
    assert replace(table, held_out=liars).error.median > 0.5
    assert replace(table, held_out=liars).seconds(rows) == pytest.approx(table.seconds(rows))


@pytest.mark.timing
def test_a_thousand_structures_are_priced_in_fifty_milliseconds(table: LatencyTable) -> None:
    cost, rows = table.cost(GRAPH), random_rows(SPACE, 1000)
    cost(rows)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        cost(rows)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05


def test_it_is_a_cost_like_any_other_and_rescale_uses_its_limit_up(table: LatencyTable) -> None:
    cost = table.cost(GRAPH)
    assert (cost.name, cost.unit, cost.full) == ("latency", "s", table.reference)
    assert cost(GRAPH.full) == pytest.approx(cost.full, rel=0.05)
    budget = aacp.Budget(aacp.Limit(cost, pruning_rate=0.4), aacp.Limit(aacp.macs(GRAPH), pruning_rate=0.3))
    found = aacp.rescale([30, 50, 50, 100], SPACE, budget, np.random.default_rng(0))
    assert budget.feasible(np.asarray(found))
    genes = SPACE.genes(found)
    for group in np.flatnonzero(genes < SPACE.levels - 1):
        more = genes.copy()
        more[group] += 1
        assert not budget.feasible(SPACE.counts(more))


def test_a_limit_below_what_can_be_reached_is_rejected_with_both_numbers(table: LatencyTable) -> None:
    with pytest.raises(aacp.InfeasibleBudget, match="latency: at most 1e-06 ms cannot be met, since the smallest"):
        aacp.Budget(aacp.Limit(table.cost(GRAPH), at_most=1e-9)).check(SPACE)


@pytest.mark.slow
def test_a_corrected_table_follows_later_measurements_most_where_they_were_made(table: LatencyTable) -> None:
    here, near, far = [16, 32, 32, 64], [16, 32, 40, 64], [4, 64, 8, 128]
    before = {name: float(table.cost(GRAPH)(row)) for name, row in {"here": here, "near": near, "far": far}.items()}
    corrected = table.corrected(GRAPH, [here], [1.3 * before["here"]])
    after = corrected.cost(GRAPH)
    assert float(after(here)) == pytest.approx(1.3 * before["here"], rel=0.03)
    assert before["near"] < before["far"] * 1e9  # both are there
    rise_near, rise_far = float(after(near)) / before["near"], float(after(far)) / before["far"]
    assert 1 < rise_far < rise_near < 1.3
    assert float(table.cost(GRAPH)(here)) == before["here"]  # the first table is unchanged
    with pytest.raises(aacp.InvalidOption, match="The seconds of 1 structure are"):
        table.corrected(GRAPH, [here], [float("nan")])


def test_it_comes_back_from_its_file_as_it_was(table: LatencyTable, tmp_path: Path) -> None:
    corrected = table.corrected(GRAPH, [[16, 32, 32, 64]], [1e-4])
    corrected.save(tmp_path / "table.json")
    loaded = LatencyTable.load(tmp_path / "table.json", SETTING)
    assert json.dumps(loaded.to_json()) == json.dumps(corrected.to_json())
    rows = random_rows(SPACE, 20)
    assert loaded.seconds(rows).tolist() == corrected.seconds(rows).tolist()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}'])
def test_a_file_without_a_table_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(aacp.GraphMismatch, match=r"does not hold a latency table|table.json is damaged"):
        LatencyTable.load(tmp_path / "table.json")
    with pytest.raises(aacp.GraphMismatch, match=r"There is no file .*nowhere.json. Measure one"):
        LatencyTable.load(tmp_path / "nowhere.json")


@pytest.mark.slow
def test_a_table_of_another_setting_is_rejected_with_both_values(table: LatencyTable, tmp_path: Path) -> None:
    table.save(tmp_path / "table.json")
    for field, value in {"runtime": "onnxruntime", "threads": 8, "batch": 4, "device": "NVIDIA H200"}.items():
        with pytest.raises(aacp.DeviceMismatch, match=f"{field} .*{getattr(SETTING, field)}.* {field} .*{value}"):
            LatencyTable.load(tmp_path / "table.json", replace(SETTING, **{field: value}))


def test_a_table_of_another_machine_is_rejected_unless_that_is_meant(table: LatencyTable) -> None:
    foreign = replace(table, conditions=replace(SETTING, machine="a toaster"))
    with pytest.raises(aacp.DeviceMismatch, match="measured on 'a toaster', but this is"):
        foreign.cost(GRAPH)
    assert foreign.cost(GRAPH, elsewhere=True)(GRAPH.full) == table.cost(GRAPH)(GRAPH.full)


def test_a_graph_that_the_table_does_not_cover_is_rejected_by_name(table: LatencyTable) -> None:
    with pytest.raises(aacp.GraphMismatch, match="layer 'conv0' with outputs of 8x8, but the graph has 16x16"):
        table.cost(chain(32, 64, 64, 128, side=16))
    with pytest.raises(aacp.GraphMismatch, match="128 units in group 'conv3', but the graph has 256"):
        table.cost(chain(32, 64, 64, 256))
    with pytest.raises(aacp.GraphMismatch, match=r"layer 'conv3' .*no such layer"):
        table.cost(chain(32, 64, 64))
    with pytest.raises(aacp.InvalidStructure, match="covers 4 to 32 units of group 'conv0', but 2"):
        table.cost(GRAPH)([2, 64, 64, 128])
    with pytest.raises(aacp.InvalidStructure, match="covers 4 to 32 units of group 'conv0', but 33"):
        table.seconds([33, 64, 64, 128])


def test_groups_that_were_frozen_since_stay_whole(table: LatencyTable) -> None:
    frozen = GRAPH.freeze({"conv1": "by hand"})
    assert table.cost(frozen)([16, 32, 64]) == table.cost(GRAPH)([16, 64, 32, 64])


def test_widths_between_measured_ones_are_interpolated() -> None:
    table = table_of(FakeBench(GRAPH, proportional), SPACE)
    cost = table.cost(GRAPH)
    low, middle, high = (float(cost([24, 32, 32, count])) for count in (64, 72, 80))
    assert low < middle < high
    assert middle == pytest.approx((low + high) / 2, rel=0.02)


def test_it_says_in_a_line_what_it_is(table: LatencyTable) -> None:
    text = str(table)
    assert "Chain" in text
    assert "torch 2.0 on cpu" in text
    assert "10 structures it has not seen" in text


def test_it_warns_where_widths_hardly_matter(table: LatencyTable) -> None:
    assert table.warning is None
    launches = tuple(
        replace(run, whole=run.whole + 5 * run.reference, reference=6 * run.reference) for run in table.measured
    )
    bound = replace(table, measured=launches)
    assert bound.shortest > 5 / 6
    assert bound.warning is not None
    assert f"took {bound.shortest:.0%} of the unpruned network's time" in bound.warning
