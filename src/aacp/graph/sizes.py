"""Sizes that a network's code holds as numbers: which of them depend on a cut dimension, and how."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np
from torch import fx, nn

from aacp.graph.labels import Ids, ids_of, varying
from aacp.graph.program import Call
from aacp.graph.propagation import Propagation, SizeUse
from aacp.graph.tracked import SHAPE, Source, TorchCall, Tracked, whole_numbers
from aacp.pytorch.internals import Norm, operator_arguments

TRIALS = 6  # random cuts in which a guess about a number must be right; verification follows
# A size that no tensor has. If a number is computed from a shape, putting this size in place of the real one shows
# whether the number is the size itself (the result is the probe) or was computed from it, as in channels // groups.
PROBE_SIZE = 7919


@dataclass(frozen=True)
class TracedSize:
    """A number in a module that is `factor` times the number of kept indices of a lane."""

    source: Source
    lane: Ids
    factor: Fraction


def resolve_sizes(p: Propagation, recorded: list[TorchCall]) -> list[TracedSize]:
    """Find the source of each size; channels are frozen where a size cannot be adjusted."""
    origins = Origins(p, recorded)
    solver = Solver(p)
    uses = [(use, origins.of(use)) for use in p.sizes]
    for use, origin in sorted(uses, key=lambda pair: _difficulty(pair[1])):
        where = use.module or "the network"
        if _has_shape_and_attribute(origin, use) and solver.solve(use, origin):
            continue  # as in batch * self.groups, where the batch stays
        if origin is None or (isinstance(origin, Tracked) and SHAPE in origin.sources):
            _follow_shape(p, use, origin)
        elif not isinstance(origin, Tracked):
            instead = "write -1, or take it from a shape" if _takes_rest(use) else "take it from a shape"
            p.freeze_ids(use.lane, f"the size {use.value} is written out in the code of {where}: {instead}")
        elif not solver.solve(use, origin):
            p.freeze_ids(use.lane, f"how the code of {where} computes the size {use.value} is not understood")
    for use in p.fixed_sizes if solver.found else ():
        origin = origins.of(use)
        if isinstance(origin, Tracked):
            solver.keep(use, origin)
    return list(solver.found.values())


def _takes_rest(use: SizeUse) -> bool:
    """Whether a call accepts -1 in place of a size, for what the channels leave; a slice takes it for another bound."""
    return Call(use.node).operator in ("view", "reshape", "unflatten")


def _has_shape_and_attribute(origin: int | None, use: SizeUse) -> TypeGuard[Tracked]:
    """Whether a size of a whole dimension was computed from a tensor's shape and from a number in a module."""
    return isinstance(origin, Tracked) and use.whole is None and SHAPE in origin.sources and len(origin.sources) > 1


def _difficulty(origin: int | None) -> int:
    """The number of sources: numbers computed from several others come last, when most of those are known."""
    return len(origin.sources) if isinstance(origin, Tracked) else 0


def with_widths_of_norms(p: Propagation, model: nn.Module, sizes: list[TracedSize]) -> list[TracedSize]:
    """Sizes with the widths in instance norms without tensors: torch warns if one is not that of the input."""
    modules = dict(model.named_modules())
    found = {size.source: size for size in sizes}
    for call in p.program.calls():
        norm = modules.get(call.module)
        if call.operator == "instance_norm" and isinstance(norm, Norm) and len(call.tensors) == 1:
            lane = p.lane(call["input"], 1, call.where)
            if lane is not None and norm.num_features == len(lane):
                source = Source(call.module, ("num_features",))
                found.setdefault(source, TracedSize(source, lane, Fraction(1)))
    return list(found.values())


# -- where a number comes from ----------------------------------------------------------------------------------------


class Origins:
    """Finds for each argument of the exported program the recorded number that it came from.

    A call of the program corresponds to a recorded call of the same module with the same integers. If there are
    several, the n-th call of the program corresponds to the n-th recorded call.
    """

    def __init__(self, p: Propagation, recorded: list[TorchCall]) -> None:
        self._by_module: dict[str, list[TorchCall]] = defaultdict(list)
        self._by_numbers: dict[tuple[str, tuple[int, ...]], list[TorchCall]] = defaultdict(list)
        for record in recorded:
            self._by_module[record.module].append(record)
            self._by_numbers[record.module, tuple(int(number) for number in record.numbers)].append(record)
        self._rank: dict[fx.Node, int] = {}
        seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for call in p.program.calls():
            key = call.module, _numbers(call.node)
            self._rank[call.node] = seen[key]
            seen[key] += 1

    def of(self, use: SizeUse) -> int | None:
        """The recorded number: that of the same call or, if there is none, an equal one in the same module.

        The exported call has other integers than the recorded one where the code left out default values. Calls of the
        same function come first then.
        """
        calls = self._by_numbers[use.module, _numbers(use.node)]
        if calls:
            return calls[min(self._rank[use.node], len(calls) - 1)].numbers[_position(use)]
        records = self._by_module[use.module]
        of_function = [record for record in records if record.function == Call(use.node).operator]
        return _likeliest(of_function, use.value) or _likeliest(records, use.value)


def _likeliest(records: list[TorchCall], value: int) -> int | None:
    """A recorded number with this value; numbers of modules come before those of shapes, and these before literals."""
    same = [number for record in records for number in record.numbers if int(number) == value]
    tracked = [number for number in same if isinstance(number, Tracked)]
    attributes = [number for number in tracked if SHAPE not in number.sources]
    return next(iter(attributes or tracked or same), None)


def _numbers(node: fx.Node) -> tuple[int, ...]:
    """The integers among a node's arguments, in order."""
    return tuple(whole_numbers((node.args, node.kwargs)))


def _position(use: SizeUse) -> int:
    """The position of a size among all integers of its node."""
    name, index = use.argument
    place = [argument for argument, _ in operator_arguments(use.node.target)].index(name)
    before = use.node.args[:place] if place < len(use.node.args) else use.node.args
    return len(list(whole_numbers(before))) + (index or 0)


# -- numbers read off tensors -----------------------------------------------------------------------------------------


def _follow_shape(p: Propagation, use: SizeUse, origin: Tracked | None) -> None:
    """Tie the channels of a size that the code reads off a tensor.

    If it is a part of a dimension, the parts keep their proportions. If it is a whole dimension, the dimension is tied
    to the only other one of that size in the module.
    """
    if use.whole is not None:
        stretch = math.gcd(abs(use.value), len(use.whole))
        p.tie_slots(
            use.whole,
            len(use.whole) // stretch,
            f"{use.module or 'the network'} splits {len(use.whole)} channels in fixed proportions",
        )
        return
    if origin is None or origin.compute({SHAPE: PROBE_SIZE}) != PROBE_SIZE:
        return  # computed from a size, such as channels // groups: the code adjusts it
    # `B, N, C = x.shape`: which tensor was read is not known, but in most modules only one input has that size.
    entering: list[Ids] = []
    inside: list[Ids] = []
    for tensor, lane in _lanes_of_size(p, use):
        (inside if _inside(Call(tensor).module, use.module) else entering).append(lane)
    if not entering and not _passes_through(p, use):
        entering = inside
    other = _only_other(p, use.lane, entering)
    if other is not None:
        p.tie_lanes(use.lane, other, f"{use.module or 'the network'} gives two tensors the size {use.value}")


def _passes_through(p: Propagation, use: SizeUse) -> bool:
    """Whether the input of the call has the same dimension: then the size was most likely read off the input."""
    sources = use.node.all_input_nodes[:1]
    return any(np.array_equal(ids_of(label), use.lane) for source in sources for label in p.labels_of(source))


def _lanes_of_size(p: Propagation, use: SizeUse) -> Iterator[tuple[Any, Ids]]:
    """The channel dimensions of this size, among all activations that the module's code handles."""
    for node in use.node.graph.nodes:
        if node.op != "call_function" or not _inside(Call(node).module, use.module):
            continue
        for tensor in (*node.all_input_nodes, node):
            for label in p.labels_of(tensor) if p.is_activation(tensor) and tensor is not use.node else ():
                dims = varying(label)
                if len(dims) == 1 and label.size(dims[0]) == use.value:
                    yield tensor, ids_of(label)


def _only_other(p: Propagation, lane: Ids, candidates: list[Ids]) -> Ids | None:
    """The only candidate that holds other channels than the lane; None if there are none or several."""
    roots = p.ties.roots()
    others = {np.unique(roots[other[other >= 0]]).tobytes(): other for other in candidates}
    others.pop(np.unique(roots[lane[lane >= 0]]).tobytes(), None)
    return next(iter(others.values())) if len(others) == 1 else None


def _inside(path: str, module: str) -> bool:
    """Whether a path is that of a module or of one inside it."""
    return not module or path == module or path.startswith(f"{module}.")


# -- numbers in modules -----------------------------------------------------------------------------------------------


class Solver:
    """Finds for each number in a module that is a size the lane that it depends on."""

    def __init__(self, p: Propagation) -> None:
        self._p = p
        self.found: dict[Source, TracedSize] = {}

    def solve(self, use: SizeUse, origin: Tracked) -> bool:
        """Find a number in a module that makes the argument right for every cut; False if there is none."""
        if self._holds(use, origin, None):
            return True
        for source, value in origin.sources.items():
            if source in self.found or source == SHAPE:
                continue
            for lane in (use.lane, use.whole):
                if lane is not None:
                    guess = TracedSize(source, lane, Fraction(value, len(lane)))
                    if self._holds(use, origin, guess):
                        self._keep_whole(guess)
                        self.found[source] = guess
                        return True
        return self._share(use, origin)

    def keep(self, use: SizeUse, origin: Tracked) -> None:
        """Let another number change with one that was found, so that a size without channels stays what it is.

        An example is `self.in_channels // self.groups` of a depthwise convolution. If there is no such number, the
        verification of the network decides.
        """
        known = [self.found[source] for source in origin.sources if source in self.found]
        if not known or self._holds(use, origin, None):
            return
        for source, value in origin.sources.items():
            if source in self.found or source == SHAPE:
                continue
            for size in known:
                guess = TracedSize(source, size.lane, Fraction(value, len(size.lane)))
                if self._holds(use, origin, guess):
                    self.found[source] = guess
                    return

    def _keep_whole(self, size: TracedSize) -> None:
        """If the number is a fraction of the lane, tie neighbouring channels so that it stays an integer."""
        times = size.factor.denominator
        (lane,), units = self._in_units([size.lane])
        counts = np.bincount(lane[lane >= 0], minlength=units)
        if (counts % times).any() or (lane < 0).sum() % times:
            first = np.repeat(size.lane.reshape(-1, times)[:, 0], times)
            self._p.ties.tie(
                first, size.lane, f"a size is {times} times a number in {size.source.module or 'the network'}"
            )

    def _holds(self, use: SizeUse, origin: Tracked, guess: TracedSize | None) -> bool:
        """Whether the code would compute the right size in random cuts, given the numbers found so far and a guess."""
        sizes = {**self.found, **({guess.source: guess} if guess else {})}
        sizes = {source: size for source, size in sizes.items() if source in origin.sources}
        lanes, units = self._in_units([use.lane, *(size.lane for size in sizes.values())])
        generator = np.random.default_rng(0)
        sign = 1 if use.value > 0 else -1
        tried = 0
        for _ in range(10 * TRIALS):
            stays = np.append(generator.random(units) < generator.uniform(0.3, 0.9), True)
            kept, *follow = (int(stays[lane].sum()) for lane in lanes)
            known = {size.source: size.factor * count for size, count in zip(sizes.values(), follow, strict=True)}
            if any(value.denominator != 1 or not value for value in known.values()):
                continue  # the number would be 0 or not an integer: this cut cannot occur
            tried += 1
            if origin.compute({s: int(value) for s, value in known.items()}) != sign * kept:
                return False
            if tried == TRIALS:
                break
        return tried > 0

    def _in_units(self, lanes: list[Ids]) -> tuple[list[Ids], int]:
        """Lanes as numbers of units from 0 on (-1: the index always stays), and the number of units."""
        roots = self._p.ties.roots()
        together = [np.where(lane >= 0, roots[np.maximum(lane, 0)], -1) for lane in lanes]
        distinct = np.unique(np.concatenate(together))
        distinct = distinct[distinct >= 0]
        numbered = [np.where(lane >= 0, np.searchsorted(distinct, lane), -1) for lane in together]
        return numbered, len(distinct)

    def _share(self, use: SizeUse, origin: Tracked) -> bool:
        """If one number is the size of two lanes with equally many units, tie the lanes."""
        for source in origin.sources:
            if source in self.found and len(origin.sources) == 1:
                mine, theirs = (self._units(lane) for lane in (use.lane, self.found[source].lane))
                if len(mine) == len(theirs):
                    self._p.ties.tie(
                        mine, theirs, f"one number in {use.module or 'the network'} is the size of two dimensions"
                    )
                    return self._holds(use, origin, None)
        return False

    def _units(self, lane: Ids) -> Ids:
        """One id per unit of a lane, in order."""
        roots = self._p.ties.roots()
        return np.array(list(dict.fromkeys(roots[lane[lane >= 0]].tolist())), dtype=np.int64)
