"""Sizes that a network's code holds as numbers: which of them follow a cut dimension, and how."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from torch import fx

from aacp.graph.labels import Ids, ids_of, varying
from aacp.graph.program import Call
from aacp.graph.propagation import Propagation, SizeUse
from aacp.graph.tracked import SHAPE, Source, TorchCall, Tracked, whole_numbers
from aacp.torch_internals import operator_arguments

TRIALS = 6  # random cuts that a guess about a number must survive; verification has the last word


@dataclass(frozen=True)
class TracedSize:
    """A number in a module that is `factor` times the kept indices of a lane."""

    source: Source
    lane: Ids
    factor: Fraction


def resolve_sizes(p: Propagation, records: list[TorchCall]) -> list[TracedSize]:
    """Find where each size comes from; sizes that nothing can adjust keep their channels from being cut."""
    origins = Origins(p, records)
    solver = Solver(p)
    uses = [(use, origins.of(use)) for use in p.sizes]
    for use, origin in sorted(uses, key=lambda pair: _difficulty(pair[1])):
        where = use.module or "the network"
        if origin is None or (isinstance(origin, Tracked) and SHAPE in origin.sources):
            _follow_shape(p, use, origin)
        elif not isinstance(origin, Tracked):
            p.refuse(use.lane, f"the size {use.value} is written out in the code of {where}")
        elif not solver.solve(use, origin):
            p.ties.fix(use.lane, f"the size {use.value} is computed in the code of {where}")
    return list(solver.found.values())


def _difficulty(origin: int | None) -> int:
    """Numbers computed from several others come last: by then most of those are known."""
    return len(origin.sources) if isinstance(origin, Tracked) else 0


# -- where a number comes from ----------------------------------------------------------------------------------------


class Origins:
    """Which recorded number became which argument of the exported program.

    A call in the program is the record of the same module with the same numbers; the n-th such call the n-th record.
    """

    def __init__(self, p: Propagation, records: list[TorchCall]) -> None:
        self._by_module: dict[str, list[TorchCall]] = defaultdict(list)
        self._by_numbers: dict[tuple[str, tuple[int, ...]], list[TorchCall]] = defaultdict(list)
        for record in records:
            self._by_module[record.module].append(record)
            self._by_numbers[record.module, tuple(int(number) for number in record.numbers)].append(record)
        self._rank: dict[fx.Node, int] = {}
        seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for call in p.program.calls():
            key = call.module, _numbers(call.node)
            self._rank[call.node] = seen[key]
            seen[key] += 1

    def of(self, use: SizeUse) -> int | None:
        """The recorded number: of the same call, or failing that the same value in the same module."""
        records = self._by_numbers[use.module, _numbers(use.node)]
        if records:
            return records[min(self._rank[use.node], len(records) - 1)].numbers[_position(use)]
        numbers = [number for record in self._by_module[use.module] for number in record.numbers]
        same = [number for number in numbers if int(number) == use.value]
        tracked = [number for number in same if isinstance(number, Tracked)]
        attributes = [number for number in tracked if SHAPE not in number.sources]
        return next(iter(attributes or tracked or same), None)


def _numbers(node: fx.Node) -> tuple[int, ...]:
    """The whole numbers of a node's arguments, in order."""
    return tuple(whole_numbers((node.args, node.kwargs)))


def _position(use: SizeUse) -> int:
    """The position of the number in question among all those of its node."""
    name, index = use.argument
    place = [argument for argument, _ in operator_arguments(use.node.target)].index(name)
    before = use.node.args[:place] if place < len(use.node.args) else use.node.args
    return len(list(whole_numbers(before))) + (index or 0)


# -- numbers read off tensors -----------------------------------------------------------------------------------------


def _follow_shape(p: Propagation, use: SizeUse, origin: Tracked | None) -> None:
    """A size that the code takes from a tensor: a part keeps its proportion, a whole its namesake's size."""
    if use.whole is not None:
        stretch = math.gcd(abs(use.value), len(use.whole))
        p.tie_slots(use.whole, len(use.whole) // stretch, f"a part of {len(use.whole)} channels in {use.module}")
        return
    if origin is None or origin.compute({SHAPE: 7919}) != 7919:
        return  # computed from a size, such as channels // groups: that follows by itself
    # `B, N, C = x.shape`: which tensor was read is not known, but in most modules only one input has that size.
    entering: list[Ids] = []
    inside: list[Ids] = []
    for tensor, lane in _lanes_of_size(p, use):
        (inside if _inside(Call(tensor).module, use.module) else entering).append(lane)
    if not entering and not _passes_through(p, use):
        entering = inside
    namesake = _only_other(p, use.lane, entering)
    if namesake is not None:
        p.tie_lanes(use.lane, namesake, f"{use.module} gives two tensors the size {use.value}")


def _passes_through(p: Propagation, use: SizeUse) -> bool:
    """Whether the call's input has the very dimension already: then the size was most likely read off it."""
    sources = use.node.all_input_nodes[:1]
    return any(np.array_equal(ids_of(label), use.lane) for source in sources for label in p.labels_of(source))


def _lanes_of_size(p: Propagation, use: SizeUse) -> Iterator[tuple[Any, Ids]]:
    """Channel dimensions of the size in question among all activations that the module's code handles."""
    for node in use.node.graph.nodes:
        if node.op != "call_function" or not _inside(Call(node).module, use.module):
            continue
        for tensor in (*node.all_input_nodes, node):
            for label in p.labels_of(tensor) if p.is_activation(tensor) and tensor is not use.node else ():
                dims = varying(label)
                if len(dims) == 1 and label.size(dims[0]) == use.value:
                    yield tensor, ids_of(label)


def _only_other(p: Propagation, lane: Ids, candidates: list[Ids]) -> Ids | None:
    """The one candidate with other channels than the lane's own, if there is just one."""
    roots = p.ties.roots()
    others = {np.unique(roots[other[other >= 0]]).tobytes(): other for other in candidates}
    others.pop(np.unique(roots[lane[lane >= 0]]).tobytes(), None)
    return next(iter(others.values())) if len(others) == 1 else None


def _inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


# -- numbers in modules -----------------------------------------------------------------------------------------------


class Solver:
    """Finds, for every number in a module that matters, the lane it follows."""

    def __init__(self, p: Propagation) -> None:
        self._p = p
        self.found: dict[Source, TracedSize] = {}

    def solve(self, use: SizeUse, origin: Tracked) -> bool:
        """Make the argument right for every cut: False if no number can be made to follow."""
        if self._holds(use, origin, None):
            return True
        for source, value in origin.sources.items():
            if source in self.found:
                continue
            for lane in (use.lane, use.whole):
                if lane is not None:
                    guess = TracedSize(source, lane, Fraction(value, len(lane)))
                    if self._holds(use, origin, guess):
                        self._keep_whole(guess)
                        self.found[source] = guess
                        return True
        return self._share(use, origin)

    def _keep_whole(self, size: TracedSize) -> None:
        """A number of which the lane is a multiple: so many neighbours go together that it stays a whole one."""
        times = size.factor.denominator
        (lane,), units = self._in_units([size.lane])
        counts = np.bincount(lane[lane >= 0], minlength=units)
        if (counts % times).any() or (lane < 0).sum() % times:
            first = np.repeat(size.lane.reshape(-1, times)[:, 0], times)
            self._p.ties.tie(first, size.lane, f"a size that is {times} times a number in {size.source.module}")

    def _holds(self, use: SizeUse, origin: Tracked, guess: TracedSize | None) -> bool:
        """Whether the code would compute the right size in random cuts, with the numbers found so far and a guess."""
        sizes = {**self.found, **({guess.source: guess} if guess else {})}
        sizes = {source: size for source, size in sizes.items() if source in origin.sources}
        lanes, units = self._in_units([use.lane, *(size.lane for size in sizes.values())])
        generator = np.random.default_rng(0)
        sign, tried = (1 if use.value > 0 else -1), 0
        for _ in range(10 * TRIALS):
            stays = np.append(generator.random(units) < generator.uniform(0.3, 0.9), True)
            kept, *follow = (int(stays[lane].sum()) for lane in lanes)
            known = {size.source: size.factor * count for size, count in zip(sizes.values(), follow, strict=True)}
            if any(value.denominator != 1 for value in known.values()):
                continue  # no network has this cut
            tried += 1
            if origin.compute({s: int(value) for s, value in known.items()}) != sign * kept:
                return False
            if tried == TRIALS:
                break
        return tried > 0

    def _in_units(self, lanes: list[Ids]) -> tuple[list[Ids], int]:
        """Lanes in numbers from 0 on, equal where channels go together; -1 stays."""
        roots = self._p.ties.roots()
        together = [np.where(lane >= 0, roots[np.maximum(lane, 0)], -1) for lane in lanes]
        distinct = np.unique(np.concatenate(together))
        distinct = distinct[distinct >= 0]
        numbered = [np.where(lane >= 0, np.searchsorted(distinct, lane), -1) for lane in together]
        return numbered, len(distinct)

    def _share(self, use: SizeUse, origin: Tracked) -> bool:
        """One number that serves two lanes: let them shrink alike, if they hold as many units."""
        for source in origin.sources:
            if source in self.found and len(origin.sources) == 1:
                mine, theirs = (self._units(lane) for lane in (use.lane, self.found[source].lane))
                if len(mine) == len(theirs):
                    self._p.ties.tie(mine, theirs, f"one number serves two sizes in {use.module or 'the network'}")
                    return self._holds(use, origin, None)
        return False

    def _units(self, lane: Ids) -> Ids:
        """One id of every unit of a lane, in order."""
        roots = self._p.ties.roots()
        return np.array(list(dict.fromkeys(roots[lane[lane >= 0]].tolist())), dtype=np.int64)
