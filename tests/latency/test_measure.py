"""A stopped measurement is resumed, and every choice of the space is measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import aacp
from aacp.latency.measure import measure_table, measurement_plan, spread_structures
from aacp.user.progress import show_progress
from latency_bench import SETTING, FakeBench, blocked, chain

GRAPH = chain(16, 32)
SPACE = aacp.SearchSpace(GRAPH, 1 / 4)
PLAN = spread_structures(SPACE, 8, 0), spread_structures(SPACE, 4, 1, ends=False)


class Stops(FakeBench):
    """A bench that is interrupted after a given number of structures."""

    def __init__(self, after: int) -> None:
        super().__init__(GRAPH, blocked)
        self.after = after

    def __call__(self, structure):
        if len(self.measured) == self.after:
            raise KeyboardInterrupt
        return super().__call__(structure)


def test_every_choice_of_every_group_is_measured_and_both_ends() -> None:
    space = aacp.SearchSpace(chain(16, 32, 64), 1 / 8)
    found = spread_structures(space, 40, 0)
    assert found[:2] == [space.full, space.smallest]
    assert all(structure in space for structure in found)
    for group, choices in enumerate(space.choices):
        assert {structure[group] for structure in found} == set(choices)
    assert spread_structures(space, 40, 0) == found
    assert len(spread_structures(space, 1, 0)) == 1


@pytest.mark.parametrize(
    ("widths", "step", "fitted", "held_out"),
    [
        ((16, 32, 64, 64), 1 / 8, 48, 10),
        ((16, 32, 64, 64, 64, 64, 64, 64), 1 / 2, 48, 10),  # two choices for each group
        ((16, 32), 1 / 4, 13, 3),  # the space has 16 structures
        ((16,), 1 / 2, 1, 1),
    ],
)
def test_no_structure_is_measured_twice_and_the_held_out_ones_are_others(
    widths: tuple[int, ...], step: float, fitted: int, held_out: int
) -> None:
    space = aacp.SearchSpace(chain(*widths), step)
    plan = measurement_plan(space, 48, 10, 0)
    assert [len(part) for part in plan] == [fitted, held_out]
    assert len({*plan[0], *plan[1]}) == fitted + held_out
    assert all(structure in space for part in plan for structure in part)
    assert plan[0][0] == space.full
    assert measurement_plan(space, 48, 10, 0) == plan


def test_an_interrupted_measurement_loses_the_structure_in_hand_and_no_more(tmp_path: Path) -> None:
    file, first = tmp_path / "table.json", Stops(5)
    with pytest.raises(KeyboardInterrupt):
        measure_table(first, GRAPH, SPACE, SETTING, PLAN, file)
    assert not file.exists()
    with (tmp_path / "table.json.log").open("a") as log:
        log.write('{"structure": [16')  # torn by a crash
    second = FakeBench(GRAPH, blocked)
    table = measure_table(second, GRAPH, SPACE, SETTING, PLAN, file)
    assert first.measured + second.measured == [*PLAN[0], *PLAN[1]]
    assert [run.structure for run in table.measured] == list(map(tuple, PLAN[0]))
    assert [run.structure for run in table.held_out] == list(map(tuple, PLAN[1]))
    table.corrected(GRAPH, [SPACE.full], [1e-3]).save(file)  # as a run does; a resumed measurement starts from the log
    third = FakeBench(GRAPH, blocked)
    again = measure_table(third, GRAPH, SPACE, SETTING, PLAN, file)
    assert third.measured == []
    assert again.to_json() == table.to_json()
    assert json.loads(json.dumps(again.to_json())) == json.loads(file.read_text())


@pytest.mark.slow
def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; sys.path.insert(0, 'tests'); from pathlib import Path\n"
        "from latency.test_measure import *\n"
        "class Killed(FakeBench):\n"
        "    def __call__(self, structure):\n"
        "        if len(self.measured) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().__call__(structure)\n"
        f"measure_table(Killed(GRAPH, blocked), GRAPH, SPACE, SETTING, PLAN, Path({str(tmp_path / 'table.json')!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], env=os.environ)
    assert ended.returncode == -signal.SIGKILL
    bench = FakeBench(GRAPH, blocked)
    measure_table(bench, GRAPH, SPACE, SETTING, PLAN, tmp_path / "table.json")
    assert len(bench.measured) == 12 - 3


def test_a_log_of_another_measurement_is_rejected(tmp_path: Path) -> None:
    measure_table(FakeBench(GRAPH, blocked), GRAPH, SPACE, SETTING, PLAN, tmp_path / "table.json")
    other = spread_structures(SPACE, 8, 3), PLAN[1]
    with pytest.raises(aacp.RunMismatch, match=r"table.json.log holds measurements of another"):
        measure_table(FakeBench(GRAPH, blocked), GRAPH, SPACE, SETTING, other, tmp_path / "table.json")


def test_a_log_of_a_network_with_other_layers_of_the_same_sizes_is_rejected(tmp_path: Path) -> None:
    bench = FakeBench(GRAPH, blocked)
    measure_table(bench, GRAPH, SPACE, SETTING, PLAN, tmp_path / "table.json")
    bench.pieces = tuple(replace(piece, kind=f"{piece.kind} 7x7") for piece in bench.pieces)
    with pytest.raises(aacp.RunMismatch, match=r"table.json.log holds measurements of another"):
        measure_table(bench, GRAPH, SPACE, SETTING, PLAN, tmp_path / "table.json")


def test_a_log_of_two_measurements_at_the_same_time_is_rejected(tmp_path: Path) -> None:
    measure_table(FakeBench(GRAPH, blocked), GRAPH, SPACE, SETTING, PLAN, tmp_path / "table.json")
    log = tmp_path / "table.json.log"
    first, *lines = log.read_text().splitlines(keepends=True)
    log.write_text(first + "".join(line + line for line in lines))
    with pytest.raises(aacp.RunMismatch, match="as after two commands at the same time"):
        measure_table(FakeBench(GRAPH, blocked), GRAPH, SPACE, SETTING, PLAN, tmp_path / "table.json")


def test_progress_says_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress():
        measure_table(FakeBench(GRAPH, blocked), GRAPH, SPACE, SETTING, PLAN)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("1/12 structures, ")
    assert lines[-1].startswith("12/12 structures, ")
    assert lines[-1].endswith("about 0 s left")
