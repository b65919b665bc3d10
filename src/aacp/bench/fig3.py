"""Fig. 3 of the paper: Eq. 14 solved by differential evolution, with and without reinitialisation, and by bee colonies.

The text as printed does not reproduce Fig. 3 (rows "as printed"). The search of the authors' released code does (rows
"as released"), with a larger population than the paper states. So does the preset `fig3`, which was found by screening
thousands of readings before that code was known. Eq. 14 is separable: it says nothing about pruning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from aacp.bench import ITERATIONS
from aacp.bench.parallel import results_of
from aacp.bench.problems import equation_14
from aacp.bench.rivals.bees import BeeColony, BeeColonySettings, classical
from aacp.disk.writing import replace_file
from aacp.report.chart import axis, layout, line
from aacp.report.html import Figure, joined, tag
from aacp.report.page import document
from aacp.search.evolution import FIG3, PAPER, RELEASED, EvolutionSettings, ImprovedDifferentialEvolution
from aacp.search.searcher import Searcher

COLOURS = 10  # plotly repeats its colours after these
WITHIN = 300  # the paper's IDE finds the optimum within this number of iterations


@dataclass(frozen=True)
class Reading:
    """A reading of the paper: a name and a searcher; one iteration of Fig. 3 is `generations` of the searcher."""

    name: str
    make: Callable[[int], Searcher[Any]]
    generations: int = 1


@dataclass(frozen=True)
class MeanCurve:
    """The curve of one reading: the best ||x - 5|| after each iteration (a column) of each seed (a row)."""

    reading: str
    distances: list[list[float]]

    def solved(self, within: int) -> float:
        """The share of seeds at the optimum after `within` iterations."""
        return float(np.mean([row[within] == 0 for row in self.distances]))

    @property
    def median_iterations(self) -> int | None:
        """The median over seeds of the iterations to the optimum; None if the median seed does not reach it."""
        firsts = sorted(row.index(0) if 0 in row else math.inf for row in self.distances)
        middle = firsts[len(firsts) // 2]
        return None if middle == math.inf else int(middle)

    @property
    def final(self) -> float:
        return float(np.mean([row[-1] for row in self.distances]))


def readings() -> list[Reading]:
    """The released search, the preset and the text, each with and without reinitialisation, and two bee colonies."""
    problem = equation_14()

    def evolution(name: str, settings: EvolutionSettings) -> Reading:
        return Reading(name, lambda seed: ImprovedDifferentialEvolution(problem.space, problem.budget, seed, settings))

    def colony(name: str, settings: BeeColonySettings) -> Reading:
        return Reading(name, lambda seed: BeeColony(problem.space, problem.budget, seed, settings), generations=2)

    small, large = replace(FIG3, population=30), replace(PAPER, population=50)
    released = [
        evolution(f"{name} as released (N {population})", replace(settings, population=population))
        for population in (50, 30, 10)
        for name, settings in (("IDE", RELEASED), ("DE", replace(RELEASED, reinitialise_after=None)))
    ]
    return [
        *released,
        evolution("IDE, fig3 preset (N 50)", FIG3),
        evolution("DE, same without reinitialisation (N 50)", replace(FIG3, reinitialise_after=None)),
        evolution("IDE, fig3 preset (N 30)", small),
        evolution("DE, same without reinitialisation (N 30)", replace(small, reinitialise_after=None)),
        evolution("IDE as printed (N 10)", PAPER),
        evolution("DE as printed (N 10)", replace(PAPER, reinitialise_after=None)),
        evolution("IDE as printed (N 50)", large),
        evolution("DE as printed (N 50)", replace(large, reinitialise_after=None)),
        evolution("IDE, rand/1, unbiased rounding (N 50)", replace(large, rounding="stochastic")),
        evolution(
            "DE, rand/1, unbiased rounding (N 50)", replace(large, rounding="stochastic", reinitialise_after=None)
        ),
        colony("ABC as ABCPruner (limit 5, truncation)", BeeColonySettings(sources=50)),
        colony("ABC, classical (limit N x D, rounding)", classical(problem.space)),
    ]


def measure(seeds: int = 50, iterations: int = ITERATIONS, processes: int = 1) -> list[MeanCurve]:
    """Run every reading on Eq. 14, in this process or in several."""
    names = [reading.name for reading in readings()]
    jobs = [(number, seed) for number in range(len(names)) for seed in range(seeds)]
    columns = zip(*((number, seed, iterations) for number, seed in jobs), strict=True)
    rows = results_of(_distances_of, *columns, processes=processes)
    return [MeanCurve(name, rows[number * seeds : (number + 1) * seeds]) for number, name in enumerate(names)]


def _distances_of(number: int, seed: int, iterations: int) -> list[float]:
    """The distances of a reading by its number, because a reading cannot be sent to another process."""
    return _distances(readings()[number], seed, iterations)


def _distances(reading: Reading, seed: int, iterations: int) -> list[float]:
    """The best distance after each iteration; iteration 0 is the first population."""
    search = reading.make(seed)
    problem = equation_14()
    generations = 1 + iterations * reading.generations
    while search.best is None or search.best.score < 0:
        if search.finished_generations >= generations or not (batch := search.ask()):
            break
        search.tell([(structure, problem.estimate(structure)) for structure in batch])
    best = np.full(iterations + 1, -np.inf)
    for candidate in search.history:
        iteration = -(-candidate.generation // reading.generations)
        if iteration <= iterations:
            best[iteration] = max(best[iteration], candidate.score)
    return [round(-value, 6) + 0.0 for value in np.maximum.accumulate(best).tolist()]


def table(curves: list[MeanCurve]) -> str:
    """The figure as a table."""
    last = len(curves[0].distances[0]) - 1
    early = min(WITHIN, last)
    lines = [f"| reading | optimum within {early} | within {last} | median iterations | final distance |"]
    lines.append("|---|---|---|---|---|")
    for curve in curves:
        median = "-" if curve.median_iterations is None else str(curve.median_iterations)
        shares = f"{100 * curve.solved(early):.0f} % | {100 * curve.solved(last):.0f} %"
        lines.append(f"| {curve.reading} | {shares} | {median} | {curve.final:.2f} |")
    return "\n".join(lines)


def summary(curves: list[MeanCurve]) -> list[dict[str, Any]]:
    """For each reading and seed: the iteration that reached the optimum, or None, and the final distance."""
    return [
        {
            "reading": curve.reading,
            "solved_at": [row.index(0) if 0 in row else None for row in curve.distances],
            "final": [row[-1] for row in curve.distances],
        }
        for curve in curves
    ]


def draw(curves: list[MeanCurve], path: Path) -> None:
    """Write the curves of Fig. 3 as a page: the mean best distance over iterations."""
    caption = (
        f"Eq. 14, mean of {len(curves[0].distances)} seeds. Curves as released run the search of the authors' code. "
        "The fig3 preset is a reading found by screening variants, not what its authors ran."
    )
    axes = layout(axis("iteration"), axis("best ||x - 5||"))
    figure = Figure("fig3", caption, [_trace(curve, number) for number, curve in enumerate(curves)], axes, height=640)
    page = document("Fig. 3 of the paper", joined([tag("h1", "Fig. 3 of the paper"), figure.markup("")]))
    replace_file(path, page.encode())


def _trace(curve: MeanCurve, number: int) -> dict[str, Any]:
    means = np.mean(curve.distances, axis=0).round(4).tolist()
    dash = "dot" if number >= COLOURS else "solid"  # there are more curves than colours
    return line(curve.reading, list(range(len(means))), means, {"dash": dash})
