"""Thinning: of many points, those that can be seen, so that pages about long searches stay small."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Places = NDArray[np.int64]

POINTS_PER_PAGE = 16_000  # with hover texts about 4 MB, beside 2 MB of plotly.js
FEWEST_POINTS = 40  # of a figure, however many figures a page has
PIXELS = (850, 290)  # the largest width and height of the plots of a page
DOT = 3  # pixels: two points that are closer than this cannot be distinguished


def limit_per_figure(points: int, figures: int) -> int:
    """The most points of a figure on a page that would have `points` points in some figures without thinning."""
    return points if points <= POINTS_PER_PAGE else max(FEWEST_POINTS, POINTS_PER_PAGE // figures)


def visible(x: Values, y: Values, limit: int, kept: Iterable[int] = ()) -> Places:
    """Positions of points that show what all points would show, in ascending order; all if they are few enough.

    The plot is divided into squares in which points cover each other, and of each square the highest point is drawn.
    The squares grow until no more than `limit` of them have points.

    Args:
        x, y: the coordinates of the points.
        limit: the most points to draw, beside those that are kept.
        kept: positions of points that are drawn in any case.
    """
    if len(x) <= limit:
        return np.arange(len(x))
    side = float(DOT)
    found = _highest(x, y, side)
    while len(found) > limit:
        side *= 1.25
        found = found[_highest(x[found], y[found], side)]
    return np.union1d(found, np.fromiter(kept, dtype=np.int64))


def _highest(x: Values, y: Values, side: float) -> Places:
    """The position of the highest point of each square; of equals, the first."""
    rows = PIXELS[1] / side
    squares = _shares(x, PIXELS[0] / side) * (int(rows) + 2) + _shares(y, rows)
    order = np.lexsort((np.arange(len(x)), -y, squares))
    sorted_squares = squares[order]
    is_first = np.concatenate([[True], sorted_squares[1:] != sorted_squares[:-1]])
    return np.asarray(order[is_first])


def _shares(values: Values, parts: float) -> Places:
    """For each value, the number of the part that it lies in, if the range of all values has `parts` equal parts."""
    low = values.min()
    with np.errstate(over="ignore"):
        spread = values.max() - low
    if not 0 < spread < np.inf:
        return np.zeros(len(values), dtype=np.int64)
    return np.asarray((values - low) / spread * parts).astype(np.int64)
