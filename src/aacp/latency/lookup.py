"""Lookup: the sum of the curves of all pieces, for many structures at once, in a few array operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from aacp.latency.curves import LARGEST_MULTIPLE, Curve, Sizes, Values
from aacp.latency.pieces import Piece, Width

MAX_GRID_POINTS = 2**14  # the largest grid of one piece, such as 128 values for each of two widths
LEAST_SECONDS = 1e-7  # of a piece: profilers round short times to zero, which has no logarithm


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
        pieces: Sequence[Piece],
        names: Sequence[str],
        choices: Sequence[Sequence[int]],
        counts: Sizes,
        seconds: Values,
    ) -> Lookup:
        """Fit a curve to each kind of piece.

        Args:
            pieces: the pieces of the network.
            names: the names of the groups.
            choices: the counts of each group in the search space.
            counts: the counts of each measured structure, one row each.
            seconds: the seconds of each piece (a column) in each structure (a row).
        """
        by_name = dict(zip(names, choices, strict=True))
        curves: dict[int, tuple[Curve, int]] = {}
        for alike in _by_kind(pieces):
            widths = [pieces[number].widths for number in alike]
            sizes = np.concatenate([_sizes(each, names, counts) for each in widths])
            places = np.repeat(np.arange(len(alike)), len(counts))
            measured = np.maximum(seconds[:, alike].T.reshape(-1), LEAST_SECONDS)
            curve = Curve.fit(sizes, places, measured, _axes(widths, by_name))
            curves |= {number: (curve, place) for place, number in enumerate(alike)}
        grids = [(curve.axes, curve.seconds * curve.places[place]) for _, (curve, place) in sorted(curves.items())]
        return cls._of(grids, pieces, names)

    @classmethod
    def _of(
        cls, grids: Sequence[tuple[Sequence[Sizes], Values]], pieces: Sequence[Piece], names: Sequence[str]
    ) -> Lookup:
        """Put the grids of all pieces, each with its axes, into one array."""
        depth = max(1, *(len(axes) for axes, _ in grids))
        matrix = np.zeros((len(names), len(grids), depth))
        entries = np.zeros((len(grids), depth), dtype=np.int64)
        strides = np.zeros((len(grids), depth), dtype=np.int64)
        below = [np.zeros(1, dtype=np.int64)]
        above = [np.zeros(1)]
        entry_count = 1
        for number, (axes, grid) in enumerate(grids):
            for dim, (axis, width) in enumerate(zip(axes, pieces[number].widths, strict=True)):
                for name, multiple in width.groups:
                    matrix[names.index(name), number, dim] = multiple
                position = np.interp(np.arange(axis[-1] + 1), axis, np.arange(len(axis)))
                strides[number, dim] = int(np.prod(grid.shape[dim + 1 :]))
                below.append(position.astype(np.int64) * strides[number, dim])
                above.append(position - position.astype(np.int64))
                entries[number, dim] = entry_count + width.fixed
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


def _by_kind(pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the positions of the pieces of each kind; those with other numbers of widths are of another kind."""
    found: dict[tuple[str, int], list[int]] = {}
    for number, piece in enumerate(pieces):
        found.setdefault((piece.kind, len(piece.widths)), []).append(number)
    return list(found.values())


def _sizes(widths: Sequence[Width], names: Sequence[str], counts: Sizes) -> Sizes:
    """Return the widths of a piece in each structure, one row each."""
    sizes = np.zeros((len(counts), len(widths)), dtype=np.int64)
    for dim, width in enumerate(widths):
        sizes[:, dim] = width.fixed + sum(multiple * counts[:, names.index(name)] for name, multiple in width.groups)
    return sizes


def _axes(alike: Sequence[Sequence[Width]], choices: Mapping[str, Sequence[int]]) -> list[Sizes]:
    """Return the grid points of each width of pieces of one kind.

    They are what the search space can reach, or as many of these as a grid can hold.
    """
    most = max(2, int(MAX_GRID_POINTS ** (1 / max(1, len(alike[0])))))
    reached = [np.concatenate([_reached(width, choices) for width in same]) for same in zip(*alike, strict=True)]
    return [_thinned(np.unique(values), most) for values in reached]


def _reached(width: Width, choices: Mapping[str, Sequence[int]]) -> Sizes:
    """Return all values of a width in a search space."""
    sums = np.array([width.fixed])
    for name, multiple in width.groups:
        sums = np.unique(np.add.outer(sums, multiple * np.array(choices[name])))
    return sums


def _thinned(values: Sizes, most: int) -> Sizes:
    """Return at most `most` of the values, with both ends; multiples of large powers of two are preferred."""
    for multiple in (1, 2, 4, 8, 16, LARGEST_MULTIPLE):
        chosen = values[(values % multiple == 0) | (values == values[0]) | (values == values[-1])]
        if len(chosen) <= most:
            return np.asarray(chosen)
    return np.asarray(chosen[np.unique(np.linspace(0, len(chosen) - 1, most).astype(np.int64))])
