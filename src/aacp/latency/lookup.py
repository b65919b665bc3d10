"""Lookup: the sum of many curves of widths for many structures at once, as a handful of array operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from aacp.latency.curves import LARGEST_MULTIPLE, Curve

Sizes = NDArray[np.int64]
Values = NDArray[np.float64]
Widths = Sequence[tuple[int, Mapping[str, int]]]  # of a piece: what is fixed, and how often each group counts

POINTS = 2**14  # of a grid: 128 widths each of two


@dataclass(frozen=True, eq=False)
class Lookup:
    """Grids of all pieces one after the other in one array, and where in it a structure finds its values.

    Widths are numbered through, piece after piece, each piece with as many as the largest has. An *entry* is a width
    together with a value of it.
    """

    matrix: Values  # from counts to widths
    entries: Sizes  # where the entries of a width begin, and what is fixed about it
    below: Sizes  # of each entry: how far into its piece's grid the grid point below it lies
    above: Values  # of each entry: how far it is on the way to the next grid point
    strides: Sizes  # of each width of each piece: how far apart grid points are in the array
    bases: Sizes  # of each piece: where its grid begins
    values: Values

    @classmethod
    def fit(
        cls,
        kinds: Sequence[str],
        widths: Sequence[Widths],
        names: Sequence[str],
        choices: Sequence[Sequence[int]],
        counts: Sizes,
        seconds: Values,
    ) -> Lookup:
        """From the seconds of each piece (a column) in each structure (a row): a curve for each kind of piece."""
        by_name = dict(zip(names, choices, strict=True))
        curves: dict[int, tuple[Curve, int]] = {}
        for pieces in _by_kind(kinds, widths):
            sizes = [_sizes(widths[piece], names, counts) for piece in pieces]
            axes = _axes([widths[piece] for piece in pieces], by_name)
            places = np.repeat(np.arange(len(pieces)), len(counts))
            curve = Curve.fit(np.concatenate(sizes), places, seconds[:, pieces].T.reshape(-1), axes)
            curves |= {piece: (curve, place) for place, piece in enumerate(pieces)}
        grids = [(curve.axes, curve.seconds * curve.places[place]) for _, (curve, place) in sorted(curves.items())]
        return cls._of(grids, widths, names)

    @classmethod
    def _of(
        cls, grids: Sequence[tuple[Sequence[Sizes], Values]], widths: Sequence[Widths], names: Sequence[str]
    ) -> Lookup:
        depth = max(1, *(len(axes) for axes, _ in grids))
        matrix = np.zeros((len(names), len(grids), depth))
        entries, strides = (np.zeros((len(grids), depth), dtype=np.int64) for _ in range(2))
        below, above, count = [np.zeros(1, dtype=np.int64)], [np.zeros(1)], 1  # of a width that a piece does not have
        for piece, (axes, grid) in enumerate(grids):
            for dim, (axis, (fixed, times)) in enumerate(zip(axes, widths[piece], strict=True)):
                for name, each in times.items():
                    matrix[names.index(name), piece, dim] = each
                position = np.interp(np.arange(axis[-1] + 1), axis, np.arange(len(axis)))
                strides[piece, dim] = int(np.prod(grid.shape[dim + 1 :]))
                below.append(position.astype(np.int64) * strides[piece, dim])
                above.append(position - position.astype(np.int64))
                entries[piece, dim] = count + fixed
                count += len(position)
        bases = np.cumsum([0, *(grid.size for _, grid in grids[:-1])])
        values = np.concatenate([grid.reshape(-1) for _, grid in grids])
        flat = matrix.reshape(len(names), -1), entries.reshape(-1), np.concatenate(below), np.concatenate(above)
        return cls(*flat, strides, bases, values)

    def __call__(self, counts: Sizes) -> Values:
        """The sum over all pieces for each row of counts, interpolated between grid points."""
        entries = (counts.astype(np.float64) @ self.matrix).astype(np.int64) + self.entries
        shape = (len(counts), *self.strides.shape)
        place = self.below[entries].reshape(shape).sum(axis=2) + self.bases
        above = self.above[entries]
        if not above.any():  # structures of the space that was measured
            return np.asarray(self.values[place].sum(axis=1))
        return self._interpolated(place, above.reshape(shape))

    def _interpolated(self, place: Sizes, above: Values) -> Values:
        total = np.zeros(place.shape)
        for corner in product((False, True), repeat=above.shape[2]):
            share = np.where(corner, above, 1 - above).prod(axis=2)
            # A corner beyond the end of a grid has no share, but must not point beyond the end of all.
            there = np.minimum(place + (self.strides * corner).sum(axis=1), len(self.values) - 1)
            total += share * self.values[there]
        return np.asarray(total.sum(axis=1))


def _by_kind(kinds: Sequence[str], widths: Sequence[Widths]) -> list[list[int]]:
    """Pieces that do the same but for their widths."""
    found: dict[tuple[str, int], list[int]] = {}
    for piece, (kind, its) in enumerate(zip(kinds, widths, strict=True)):
        found.setdefault((kind, len(its)), []).append(piece)
    return list(found.values())


def _sizes(widths: Widths, names: Sequence[str], counts: Sizes) -> Sizes:
    columns = [fixed + sum(n * counts[:, names.index(name)] for name, n in times.items()) for fixed, times in widths]
    return np.stack(columns, axis=1) if columns else np.zeros((len(counts), 0), dtype=np.int64)


def _axes(pieces: Sequence[Widths], choices: Mapping[str, Sequence[int]]) -> list[Sizes]:
    """The widths that the space can reach, as many as a grid can hold; of too many, those that kernels like."""
    count = len(pieces[0])
    most = max(2, int(POINTS ** (1 / max(1, count))))
    return [
        _thinned(np.unique(np.concatenate([_reached(its[dim], choices) for its in pieces])), most)
        for dim in range(count)
    ]


def _reached(width: tuple[int, Mapping[str, int]], choices: Mapping[str, Sequence[int]]) -> Sizes:
    fixed, times = width
    sums = np.array([fixed])
    for name, count in times.items():
        sums = np.unique(np.add.outer(sums, count * np.array(choices[name])))
    return sums


def _thinned(values: Sizes, most: int) -> Sizes:
    """At most so many, ends included: multiples of large powers of two first."""
    for multiple in (1, 2, 4, 8, 16, LARGEST_MULTIPLE):
        chosen = values[(values % multiple == 0) | (values == values[0]) | (values == values[-1])]
        if len(chosen) <= most:
            return np.asarray(chosen)
    return np.asarray(chosen[np.unique(np.linspace(0, len(chosen) - 1, most).astype(np.int64))])
