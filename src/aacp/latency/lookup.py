"""Lookup: the sum of the curves of all pieces, for many structures at once, in a few array operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from aacp.latency.curves import LARGEST_MULTIPLE, Curve

Sizes = NDArray[np.int64]
Values = NDArray[np.float64]
# The widths of a piece: each is a constant plus a multiple of the count of each group.
Widths = Sequence[tuple[int, Mapping[str, int]]]

MAX_GRID_POINTS = 2**14  # the largest grid of one piece, such as 128 values for each of two widths


@dataclass(frozen=True, eq=False)
class Lookup:
    """The grids of all pieces in one array, and the tables that lead from a structure to its places in that array.

    Every piece is padded to the same number of width axes, and the axes are numbered consecutively. An entry is one
    value of one axis; entry 0 stands for the axes that are padding.

    Args:
        matrix: maps the counts of the groups to the values of the axes, without their constants.
        entries: the entry of the value 0 of each axis, plus the constant of its width.
        below: for each entry, the distance in `values` from the start of the piece's grid to the grid point below.
        above: for each entry, its position between the grid point below (0) and the one above (1).
        strides: for each axis of each piece, the distance in `values` between neighbouring grid points.
        bases: for each piece, where its grid begins in `values`.
        values: the seconds at the grid points of all pieces.
    """

    matrix: Values
    entries: Sizes
    below: Sizes
    above: Values
    strides: Sizes
    bases: Sizes
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
        """Fit a curve to each kind of piece.

        Args:
            kinds: the kind of each piece; pieces of one kind differ in their widths alone.
            widths: the widths of each piece.
            names: the names of the groups.
            choices: the counts of each group in the search space.
            counts: the counts of each measured structure, one row each.
            seconds: the seconds of each piece (a column) in each structure (a row).
        """
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
        """Put the grids of all pieces, each with its axes, into one array."""
        depth = max(1, *(len(axes) for axes, _ in grids))
        matrix = np.zeros((len(names), len(grids), depth))
        entries = np.zeros((len(grids), depth), dtype=np.int64)
        strides = np.zeros((len(grids), depth), dtype=np.int64)
        below = [np.zeros(1, dtype=np.int64)]
        above = [np.zeros(1)]
        entry_count = 1
        for piece, (axes, grid) in enumerate(grids):
            for dim, (axis, (fixed, multiples)) in enumerate(zip(axes, widths[piece], strict=True)):
                for name, multiple in multiples.items():
                    matrix[names.index(name), piece, dim] = multiple
                position = np.interp(np.arange(axis[-1] + 1), axis, np.arange(len(axis)))
                strides[piece, dim] = int(np.prod(grid.shape[dim + 1 :]))
                below.append(position.astype(np.int64) * strides[piece, dim])
                above.append(position - position.astype(np.int64))
                entries[piece, dim] = entry_count + fixed
                entry_count += len(position)
        return cls(
            matrix=matrix.reshape(len(names), -1),
            entries=entries.reshape(-1),
            below=np.concatenate(below),
            above=np.concatenate(above),
            strides=strides,
            bases=np.cumsum([0, *(grid.size for _, grid in grids[:-1])]),
            values=np.concatenate([grid.reshape(-1) for _, grid in grids]),
        )

    def __call__(self, counts: Sizes) -> Values:
        """Return the sum over all pieces for each row of counts, interpolated between grid points."""
        entries = (counts.astype(np.float64) @ self.matrix).astype(np.int64) + self.entries
        shape = (len(counts), *self.strides.shape)
        place = self.below[entries].reshape(shape).sum(axis=2) + self.bases
        above = self.above[entries]
        if not above.any():  # all structures lie on grid points, as those of the measured space do
            return np.asarray(self.values[place].sum(axis=1))
        return self._interpolated(place, above.reshape(shape))

    def _interpolated(self, place: Sizes, above: Values) -> Values:
        """Interpolate linearly in each axis, over all corners of the grid cell."""
        total = np.zeros(place.shape)
        for corner in product((False, True), repeat=above.shape[2]):
            share = np.where(corner, above, 1 - above).prod(axis=2)
            # A corner beyond the end of a grid has share 0, but its index must stay inside the array.
            corner_place = np.minimum(place + (self.strides * corner).sum(axis=1), len(self.values) - 1)
            total += share * self.values[corner_place]
        return np.asarray(total.sum(axis=1))


def _by_kind(kinds: Sequence[str], widths: Sequence[Widths]) -> list[list[int]]:
    """Return the pieces of each kind; pieces with different numbers of widths are of different kinds."""
    found: dict[tuple[str, int], list[int]] = {}
    for piece, kind in enumerate(kinds):
        found.setdefault((kind, len(widths[piece])), []).append(piece)
    return list(found.values())


def _sizes(widths: Widths, names: Sequence[str], counts: Sizes) -> Sizes:
    """Return the widths of a piece in each structure, one row each."""
    if not widths:
        return np.zeros((len(counts), 0), dtype=np.int64)
    columns = []
    for fixed, multiples in widths:
        columns.append(fixed + sum(multiple * counts[:, names.index(name)] for name, multiple in multiples.items()))
    return np.stack(columns, axis=1)


def _axes(pieces: Sequence[Widths], choices: Mapping[str, Sequence[int]]) -> list[Sizes]:
    """Return the grid points of each width: what the search space can reach, or as many of these as a grid can hold."""
    count = len(pieces[0])
    most = max(2, int(MAX_GRID_POINTS ** (1 / max(1, count))))
    axes = []
    for dim in range(count):
        reached = np.concatenate([_reached(widths[dim], choices) for widths in pieces])
        axes.append(_thinned(np.unique(reached), most))
    return axes


def _reached(width: tuple[int, Mapping[str, int]], choices: Mapping[str, Sequence[int]]) -> Sizes:
    """Return all values of a width in a search space."""
    fixed, multiples = width
    sums = np.array([fixed])
    for name, multiple in multiples.items():
        sums = np.unique(np.add.outer(sums, multiple * np.array(choices[name])))
    return sums


def _thinned(values: Sizes, most: int) -> Sizes:
    """Return at most `most` of the values, with both ends; multiples of large powers of two are preferred."""
    for multiple in (1, 2, 4, 8, 16, LARGEST_MULTIPLE):
        chosen = values[(values % multiple == 0) | (values == values[0]) | (values == values[-1])]
        if len(chosen) <= most:
            return np.asarray(chosen)
    return np.asarray(chosen[np.unique(np.linspace(0, len(chosen) - 1, most).astype(np.int64))])
