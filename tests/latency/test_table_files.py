"""Latency tables and their logs from files: damaged, endless, or of another input size."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.measure import measure_latency
from aacp.latency.table import LatencyTable

pytestmark = pytest.mark.slow

NOBODY = {"fixed": 0, "groups": [["nobody", 1]]}  # a width that depends on a group that does not exist


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()


def measured(size: int, file: Path) -> LatencyTable:
    x = torch.zeros(1, 1, size, size)
    graph = aacp.trace(network(), x)
    where = aacp.Deployment("torch", threads=1)
    return measure_latency(
        network(), graph, aacp.SearchSpace(graph, 1), where, example=x, file=file, structures=3, held_out=1,
        seconds_per_structure=0.01,
    )  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.json"
    measured(8, path)
    return path


def test_a_table_with_one_held_out_structure_comes_back(file: Path) -> None:
    assert LatencyTable.load(file).reference > 0
    assert json.loads(file.read_text())["error"]["rank_correlation"] is None


def test_the_log_of_another_input_size_is_rejected(file: Path) -> None:
    with pytest.raises(
        aacp.RunMismatch, match=r"table.json.log holds measurements of another network, space or setting"
    ):
        measured(10, file)
    measured(8, file)  # the same size is resumed


def test_a_damaged_line_of_the_log_is_named(file: Path, tmp_path: Path) -> None:
    first, *lines = (file.parent / "table.json.log").read_text().splitlines()
    damaged = {**json.loads(lines[0]), "whole": 0}
    (tmp_path / "table.json.log").write_text("\n".join([first, json.dumps(damaged), ""]))
    with pytest.raises(
        aacp.RunMismatch, match=r"table.json.log is damaged: line 2.whole should be a number from 1e-12 .*, but is 0"
    ):
        measured(8, tmp_path / "table.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [("whole", 0), ("whole", -1.0), ("reference", 1e308), ("structure", [0, 1]), ("pieces", []), ("noise", None)],
)
def test_a_measurement_that_is_not_one_is_rejected(file: Path, tmp_path: Path, field: str, value: Any) -> None:
    data = json.loads(file.read_text())
    data["measured"][1][field] = value
    (tmp_path / "table.json").write_text(json.dumps(data))
    with pytest.raises(aacp.GraphMismatch, match=r"does not hold a latency table: measured\[1\]"):
        LatencyTable.load(tmp_path / "table.json")


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("names", lambda _: [], "its names are not those of different groups"),
        ("choices", lambda _: [], "it does not have choices for 1 groups"),
        ("choices", lambda _: [[2, 1]], r"choices\[0\] is not a list of rising counts"),
        ("pieces", lambda _: [], "it has no pieces"),
        ("pieces", lambda old: [{**old[0], "widths": [NOBODY]}], r"pieces\[0\] names a group that does not exist"),
        ("measured", lambda _: [], "it holds no measured structure"),
        (
            "measured",
            lambda old: [{**old[0], "structure": [1, 1]}],
            r"measured\[0\] is not a structure of 1 groups",
        ),
        (
            "held_out",
            lambda old: [{**old[0], "pieces": [1]}],
            r"held_out\[0\] does not have the seconds of 2 pieces",
        ),
        ("corrections", lambda _: [[[1, 2], 1.0]], r"corrections\[0\] is not a structure of 1 groups"),
        ("corrections", lambda _: [[[1], 0]], r"corrections\[0\]\[1\] should be a number from 1e-12 to"),
        ("setting", lambda old: {**old, "batch": 0}, "setting.batch should be a whole number from 1 to"),
        ("format", lambda _: 2, "its format is 2, not 1"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_named(
    file: Path, field: str, change: Callable[[Any], Any], reason: str
) -> None:
    data = json.loads(file.read_text())
    with pytest.raises(ValueError, match=reason):
        LatencyTable.from_json({**data, field: change(data[field])})


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, '{"format": NaN}', '{"format": 1e999}', "\xff"])
def test_text_that_is_not_a_table_is_rejected(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.json").write_bytes(text.encode("latin1"))
    with pytest.raises(aacp.GraphMismatch, match=r"table.json is damaged: .*\. Measure one\."):
        LatencyTable.load(tmp_path / "table.json")


def test_pipes_devices_and_folders_are_not_tables(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", "a pipe"), ("zero", "a device"), ("folder", "a folder")):
        with pytest.raises(aacp.GraphMismatch, match=f"{name} is {kind}, not a file"):
            LatencyTable.load(tmp_path / name)
        with pytest.raises(aacp.GraphMismatch, match=f"{name} is {kind}, not a file"):
            aacp.ChannelGraph.load(tmp_path / name)
