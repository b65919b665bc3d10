"""Cloud: the candidates of a search as points of a figure, thinned where there are more than can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aacp.cost.analytic import Cost
from aacp.cost.kinds import cost_words
from aacp.report.chart import BLUE, GREY, Trace, hover, line, points
from aacp.report.numbers import change, quantity, score
from aacp.report.thinning import Places, Values, visible
from aacp.search.history import History
from aacp.search.pareto import unbeaten

TRIED = {"color": GREY, "size": 6, "opacity": 0.55}
FRONT = {"color": BLUE, "width": 2, "shape": "hv"}


def scale(metric: str) -> float:
    """The factor for the axis of a metric: accuracies are drawn in percent."""
    return 100.0 if metric == "accuracy" else 1.0


@dataclass(frozen=True, eq=False)
class Cloud:
    """Candidates as points.

    Args:
        history: the candidates, at least one.
        costs: the costs that hover texts show.
        metric: what the scores are.
        limit: the most points of a figure, beside the best candidate and the Pareto front.
    """

    history: History
    costs: Sequence[Cost]
    metric: str
    limit: int

    @cached_property
    def heights(self) -> Values:
        """The scores as they are drawn."""
        return scale(self.metric) * self.history.scores

    @cached_property
    def _comparable(self) -> Values:
        """The heights of candidates that were scored on all images, -inf for others; all heights if there are none."""
        is_whole = np.array([candidate.is_whole for candidate in self.history])
        return np.where(is_whole, self.heights, -np.inf) if is_whole.any() else self.heights

    @cached_property
    def prices(self) -> Values:
        """The costs of each candidate, one column for each cost."""
        return self.history.costs(self.costs)

    def hovers(self, places: Iterable[int]) -> list[str]:
        """The hover texts of candidates: number, generation, score and costs."""
        return [self._hover(place) for place in places]

    def _hover(self, place: int) -> str:
        candidate = self.history[place]
        return hover(
            f"number {candidate.number}: {score(candidate.score, self.metric)}",
            f"generation {candidate.generation}",
            *([] if candidate.is_whole or candidate.images is None else [_measured(*candidate.images)]),
            *(_priced(cost, float(value)) for cost, value in zip(self.costs, self.prices[place], strict=True)),
        )

    # -- over the numbers of the candidates ----------------------------------------------------------------------------

    def over_time(self) -> list[Trace]:
        """Points for the candidates by number, and a line of the best score so far."""
        numbers = np.array([candidate.number for candidate in self.history], dtype=np.float64)
        best_so_far = np.maximum.accumulate(self._comparable)
        steps = np.flatnonzero(np.diff(best_so_far, prepend=-np.inf) > 0)
        drawn = visible(numbers, self.heights, self.limit, [int(self.heights.argmax())])
        if len(drawn) == len(numbers):
            corners = drawn
        else:
            corners = np.union1d(steps[visible(numbers[steps], best_so_far[steps], self.limit)], [len(numbers) - 1])
        best = line("best so far", self._numbers(corners), best_so_far[corners].tolist(), FRONT)
        return [self._tried(self._numbers(drawn), drawn), {**best, "hoverinfo": "skip"}]

    def _numbers(self, places: Places) -> list[int]:
        return [self.history[int(place)].number for place in places]

    # -- against a cost ------------------------------------------------------------------------------------------------

    def against(self, column: int) -> list[Trace]:
        """Points for the candidates against a cost, and a line along the Pareto front of all candidates."""
        x = self.prices[:, column]
        y = self.heights
        front = np.flatnonzero(unbeaten(np.stack([x, -self._comparable], axis=1)) & np.isfinite(self._comparable))
        front = front[np.unique(x[front], return_index=True)[1]]  # cheapest first, one of equal points
        front = front[visible(x[front], y[front], self.limit)]
        drawn = visible(x, y, self.limit, front)
        best = line("Pareto front", x[front].tolist(), y[front].tolist(), FRONT)
        marks = {"mode": "lines+markers", "marker": {"size": 6, "color": BLUE}, "hoverinfo": "skip"}
        return [self._tried(x[drawn].tolist(), drawn), {**best, **marks}]

    def _tried(self, x: Sequence[float], drawn: Places) -> Trace:
        return points("tried", x, self.heights[drawn].tolist(), self.hovers(map(int, drawn)), TRIED)

    @property
    def remark(self) -> str:
        """A sentence for captions if not all candidates are drawn, otherwise nothing."""
        if len(self.history) <= self.limit:
            return ""
        return f" Of {len(self.history):,} points, those that would be covered by others are left out."


def _measured(few: int, whole: int) -> str:
    return f"on {few:,} of {whole:,} images"


def _priced(cost: Cost, value: float) -> str:
    noun = cost_words(cost.name).removeprefix("bytes ")  # the quantity has its unit
    return f"{quantity(value, cost.unit)} {noun} ({change(cost.full, value)})"
