"""Graphs, pruned networks and latency tables, changed at random: a value or one of our errors, in bounded time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import nn

import aacp
from aacp.artefact.header import KEY, Artefact
from aacp.disk.parsing import parse_json
from aacp.disk.tensors import tensor_header
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure, Width
from aacp.latency.table import LatencyTable
from faults.fuzzing import any_bytes, changed_bytes, changed_json, few, read_or_reject


class Net(nn.Module):
    """Two convolutions with a number of channels in the code, so that the graph has every kind of part."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.second = nn.Conv2d(4, 2, 3)
        self.width = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).reshape(len(x), self.width, 6, 6))


X = torch.zeros(2, 1, 8, 8)
GRAPH = aacp.trace(Net(), X)
CONDITIONS = MeasurementConditions("torch", "2", "cpu", "float32", 1, 1, "here")
PIECES = tuple(Piece(name, "conv", (6, 6), (Width(0, (("first", 1),)),)) for name in ("first", "second"))
TIMES = [TimedStructure((n,), 1e-3 * n, 4e-3, (3e-4 * n, 5e-4 * n), 3e-3, 0.01) for n in (1, 2, 3, 4)]
CORRECTIONS = (((2,), 2e-3),)
TABLE = LatencyTable(
    "Net", CONDITIONS, ("first",), ((1, 2, 3, 4),), PIECES, tuple(TIMES[:3]), tuple(TIMES[3:]), CORRECTIONS
)


def artefact(folder: Path) -> bytes:
    network = aacp.shrink(Net(), GRAPH, [2])
    aacp.save(network, GRAPH, folder / "valid", kept=[2], example=X, metadata={"a": 1})
    return (folder / "valid").read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    artefact(folder)
    return folder


@given(st.data())
@few
def test_fuzz_pruned_networks_by_bytes(place: Path, data: st.DataObject) -> None:
    valid = (place / "valid").read_bytes()
    (place / "a").write_bytes(data.draw(st.one_of(any_bytes(), changed_bytes(valid))))
    read_or_reject(lambda: aacp.load(place / "a", into=Net()))


@given(st.data())
@few
def test_fuzz_pruned_networks_by_header(place: Path, data: st.DataObject) -> None:
    header = parse_json(tensor_header(place / "valid").metadata[KEY].encode())
    tensors = load((place / "valid").read_bytes())
    changed = data.draw(changed_json(header))
    (place / "a").write_bytes(save(tensors, {KEY: json.dumps(changed)}))
    read_or_reject(lambda: aacp.load(place / "a", into=Net()))
    read_or_reject(lambda: Artefact.read(place / "a"))


@given(changed_json(json.loads(json.dumps(GRAPH.to_json()))))
@few
def test_fuzz_graphs(place: Path, changed: Any) -> None:
    (place / "graph.json").write_text(json.dumps(changed))

    def read() -> None:
        graph = aacp.ChannelGraph.load(place / "graph.json")
        str(graph)
        aacp.SearchSpace(graph)
        for cost in (aacp.macs, aacp.params, aacp.weight_bytes, aacp.activation_bytes, aacp.channel_count):
            cost(graph)

    read_or_reject(read)


@given(st.one_of(any_bytes(), changed_bytes(json.dumps(TABLE.to_json()).encode())))
@few
def test_fuzz_tables_by_bytes(place: Path, content: bytes) -> None:
    (place / "table.json").write_bytes(content)
    read_or_reject(lambda: LatencyTable.load(place / "table.json"))


@given(changed_json(json.loads(json.dumps(TABLE.to_json()))))
@few
def test_fuzz_tables_by_value(place: Path, changed: Any) -> None:
    (place / "table.json").write_text(json.dumps(changed))

    def read() -> None:
        table = LatencyTable.load(place / "table.json")
        str(table)
        table.cost(GRAPH, elsewhere=True)

    read_or_reject(read)


def test_what_is_changed_is_valid(place: Path) -> None:
    assert isinstance(aacp.load(place / "valid", into=Net()), Net)
    assert len(GRAPH.sizes) == 1
    TABLE.save(place / "table.json")
    assert LatencyTable.load(place / "table.json").seconds([[1]]) > 0
    GRAPH.save(place / "graph.json")
    assert aacp.ChannelGraph.load(place / "graph.json") == GRAPH
    assert aacp.ChannelGraph.from_json(GRAPH.to_json()) == GRAPH
