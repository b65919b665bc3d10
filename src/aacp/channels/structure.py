"""Structure: how many units each prunable group keeps (the paper's structure vector C').

A unit is one channel, or several that must be removed together; see `aacp.channels.graph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aacp.errors import InvalidStructure


@dataclass(frozen=True, slots=True)
class Structure:
    """An immutable vector of counts: how many units each prunable group keeps, in the order of `graph.free`."""

    counts: tuple[int, ...]

    def __init__(self, counts: Iterable[int]) -> None:
        if type(counts) in (list, tuple) and set(map(type, counts)) == {int} and min(counts) >= 1:
            object.__setattr__(self, "counts", tuple(counts))  # the usual case, by far the fastest
            return
        if isinstance(counts, str) or not isinstance(counts, Iterable):
            raise InvalidStructure(f"{counts!r} is not a structure. Give a list of counts, one per free group.")
        values = tuple(counts)
        for value in values:
            if not _is_count(value):
                raise InvalidStructure(
                    f"A structure holds whole numbers of at least 1, but got {value!r}. "
                    "Keep at least one unit of every group."
                )
        object.__setattr__(self, "counts", tuple(int(value) for value in values))

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.counts)

    def __getitem__(self, position: int) -> int:
        return self.counts[position]

    def __array__(self, dtype: type | None = None, copy: bool | None = None) -> NDArray[np.int64]:
        return np.array(self.counts, dtype=dtype or np.int64)


def _is_count(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and bool(int(value) == value >= 1)
    except (TypeError, ValueError, OverflowError):  # text, None, NaN, infinity
        return False
