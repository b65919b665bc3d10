"""A chain of convolutions as plain data, and a simulated machine with known times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from aacp.channels.elements import ChannelGroup, Layer
from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.latency.deployment import Deployment
from aacp.latency.layers import pieces_of_graph
from aacp.latency.measure import measure_table, spread_structures
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure, Width
from aacp.latency.table import LatencyTable
from aacp.runs.provenance import machine

SETTING = MeasurementConditions("torch", "2.0", "cpu", "float32", 1, 1, machine())
Kernel = Callable[[int, int], float]


def chain(*widths: int, side: int = 8) -> ChannelGraph:
    """An image of three colours, convolutions of these widths, a classifier of ten classes."""
    names = [f"conv{i}" for i in range(len(widths))]
    starts = np.cumsum([0, *widths])
    lanes = [start + np.arange(width) for start, width in zip(starts, widths, strict=False)]
    lanes += [np.full(3, -1), np.full(10, -1)]
    image, classes = len(widths), len(widths) + 1
    ends = [image, *range(len(widths)), classes]
    layers = [
        Layer(name, "conv2d", (3, 3), (side, side), before, after, 9 * side**2, (before, after))
        for name, before, after in zip([*names, "head"], ends, ends[1:], strict=False)
    ]
    groups = [ChannelGroup(name, width, 1, ()) for name, width in zip(names, widths, strict=True)]
    return ChannelGraph("Chain", tuple(groups), tuple(lanes), tuple(layers), ())


def blocked(cin: int, cout: int) -> float:
    """A kernel that pads channels to blocks of 16, and is twice as slow where 4 does not divide them."""
    work = 16 * math.ceil(cin / 16) * 16 * math.ceil(cout / 16)
    return (2.0 if cin % 4 else 1.0) * (2e-6 + 1e-9 * work)


def proportional(cin: int, cout: int) -> float:
    return 1e-6 + 2e-9 * cin * cout


class FakeBench:
    """Pieces have the times of a kernel model; a whole takes a little less plus a constant; noise affects all alike."""

    def __init__(self, graph: ChannelGraph, kernel: Kernel, noise: float = 0.0, seed: int = 0) -> None:
        self.graph, self.kernel, self.noise = graph, kernel, noise
        self.pieces: tuple[Piece, ...] = pieces_of_graph(graph, list(graph.layers), [""] * len(graph.layers))
        self.generator, self.measured = np.random.default_rng(seed), []

    def pieces_seconds(self, structure: Structure) -> np.ndarray:
        sizes = self.graph.lane_sizes(np.asarray(structure))
        return np.array([self.kernel(int(sizes[layer.input]), int(sizes[layer.output])) for layer in self.graph.layers])

    def whole(self, structure: Structure) -> float:
        return 0.8 * float(self.pieces_seconds(structure).sum()) + 5e-6

    def __call__(self, structure: Structure) -> TimedStructure:
        self.measured.append(structure)
        busy = 1 + self.generator.random()  # the machine, for all that is measured in these turns
        shaken = busy * np.exp(self.noise * self.generator.standard_normal(len(self.pieces)))
        full = self.graph.full
        return TimedStructure(
            tuple(structure),
            busy * self.whole(structure),
            busy * self.whole(full),
            tuple((shaken * self.pieces_seconds(structure)).tolist()),
            busy * float(self.pieces_seconds(full).sum()),
            self.noise,
        )


def table_of(bench: FakeBench, space: SearchSpace, structures: int = 48, held_out: int = 10) -> LatencyTable:
    plan = spread_structures(space, structures, 0), spread_structures(space, held_out, 1, ends=False)
    return measure_table(bench, bench.graph, space, SETTING, plan)


def save_table_of_here(path: Path, precision: str = "float32") -> Path:
    """A file with a table of a chain, measured for the default deployment on this machine; returns its path."""
    graph = chain(16, 16)
    table = table_of(FakeBench(graph, proportional), SearchSpace(graph, 1 / 4), 8, 4)
    replace(table, conditions=Deployment().conditions(precision)).save(path)
    return path


def width(name: str, fixed: int = 0) -> Width:
    return Width(fixed, ((name, 1),))
