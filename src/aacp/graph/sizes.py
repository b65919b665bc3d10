"""Sizes that a network's code holds as numbers: which of them follow a cut dimension, and how."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from aacp.graph.labels import Ids, ids_of, varying
from aacp.graph.program import Call
from aacp.graph.propagation import Propagation, SizeUse
from aacp.graph.tracked import SHAPE, Record, Source, Tracked, whole_numbers


@dataclass(frozen=True)
class TracedSize:
    """A number in a module that is `factor` times the kept indices of a lane."""

    source: Source
    lane: Ids
    factor: Fraction


def resolve_sizes(p: Propagation, records: list[Record]) -> list[TracedSize]:
    """Find where each size comes from; sizes that nothing can adjust keep their channels from being cut."""
    by_module: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_module[record.module].append(record)
    found: dict[Source, TracedSize] = {}
    for use in p.sizes:
        origin = _origin(use, by_module[use.module])
        where = f"{use.module or 'the network'}"
        if origin is None or (isinstance(origin, Tracked) and SHAPE in origin.sources):
            _keep_proportions(p, use)
            if origin is not None:
                _tie_to_namesake(p, use)
        elif not isinstance(origin, Tracked):
            p.ties.fix(use.lane, f"the size {use.value} is written out in the code of {where}")
        elif not any(source in found and _agrees(p, use, origin, found[source]) for source in origin.sources):
            size = _solve(use, origin)
            if size is None:
                p.ties.fix(use.lane, f"the size {use.value} is computed in the code of {where}")
            else:
                found[size.source] = size
    return list(found.values())


def _origin(use: SizeUse, records: list[Record]) -> int | None:
    """The recorded number that became this argument: the same call, or failing that the same value."""
    numbers, position = _node_numbers(use)
    for record in records:
        if [int(number) for number in record.numbers] == numbers:
            return record.numbers[position]
    same = [number for record in records for number in record.numbers if int(number) == use.value]
    tracked = [number for number in same if isinstance(number, Tracked)]
    attributes = [number for number in tracked if SHAPE not in number.sources]
    return next(iter(attributes or tracked or same), None)


def _node_numbers(use: SizeUse) -> tuple[list[int], int]:
    """The whole numbers of the node's arguments in order, and the position of the one in question."""
    node, (name, index) = use.node, use.argument
    schema = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    given: dict[str, Any] = {**dict(zip(schema, node.args, strict=False)), **node.kwargs}
    numbers: list[int] = []
    position = -1
    for key, value in given.items():
        if key == name:
            position = len(numbers) + (index or 0)
        numbers.extend(whole_numbers(value))
    return numbers, position


def _keep_proportions(p: Propagation, use: SizeUse) -> None:
    """A part whose size the code computes from the whole: let all parts shrink alike."""
    if use.whole is not None:
        stretch = math.gcd(abs(use.value), len(use.whole))
        p.tie_slots(use.whole, len(use.whole) // stretch, f"a part of {len(use.whole)} channels in {use.module}")


def _tie_to_namesake(p: Propagation, use: SizeUse) -> None:
    """A size that the code reads off another tensor (`B, N, C = x.shape`): let the two shrink together.

    Which tensor it was is not known, but in most modules only one dimension has that size.
    """
    roots = p.ties.roots()
    mine = roots[np.maximum(use.lane, 0)]
    if use.whole is not None:
        return
    others = {}
    for lane in _lanes_of_size(p, use):
        key = np.unique(roots[lane[lane >= 0]]).tobytes()
        others[key] = lane
    others.pop(np.unique(mine).tobytes(), None)
    if len(others) == 1:
        p.tie_lanes(use.lane, next(iter(others.values())), f"{use.module} gives two tensors the size {use.value}")


def _lanes_of_size(p: Propagation, use: SizeUse) -> Iterator[Ids]:
    """Channel dimensions of the size in question among all tensors that the module's code handles."""
    for node in use.node.graph.nodes:
        if node.op != "call_function" or not _inside(Call(node).module, use.module):
            continue
        for tensor in (*node.all_input_nodes, node):
            for label in p.labels_of(tensor) if p.is_activation(tensor) and tensor is not use.node else ():
                dims = varying(label)
                if len(dims) == 1 and label.size(dims[0]) == use.value:
                    yield ids_of(label)


def _inside(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")


def _agrees(p: Propagation, use: SizeUse, origin: Tracked, size: TracedSize) -> bool:
    """Whether a number that is already followed serves here too: the two lanes are then made to shrink alike."""
    if len(origin.sources) > 1:
        return True  # one factor of a product is known; verification sees to the rest
    again = _solve(use, origin)
    if again is None or again.factor != size.factor or len(again.lane) != len(size.lane):
        p.ties.fix(use.lane, f"one number serves two sizes in {use.module or 'the network'}")
        p.ties.fix(size.lane, f"one number serves two sizes in {use.module or 'the network'}")
    else:
        p.tie_lanes(size.lane, again.lane, f"one number serves two sizes in {use.module or 'the network'}")
    return True


def _solve(use: SizeUse, origin: Tracked) -> TracedSize | None:
    """The source that makes the argument right for every width, if its value is in proportion to the width."""
    for source, before in origin.sources.items():
        factor = Fraction(before, len(use.lane))
        trials = [kept for kept in _trials(len(use.lane)) if (factor * kept).denominator == 1]
        sign = 1 if use.value > 0 else -1
        if all(origin.compute({source: int(factor * kept)}) == sign * kept for kept in trials):
            return TracedSize(source, use.lane, factor)
    return None


def _trials(width: int) -> list[int]:
    return sorted(set(np.linspace(1, width, 9).astype(int).tolist()))
