"""The search methods by name, as the command line and the benchmarks know them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.baselines import RandomSearch, UniformShrinkage
from aacp.search.bees import BeeColony
from aacp.search.evolution import FIG3, IDE_PLUS, PAPER, Evolution, ImprovedDifferentialEvolution
from aacp.search.guided import GuidedEvolution
from aacp.search.searcher import Searcher
from aacp.search.sensitivity import SensitivityThreshold
from aacp.search.tournament import Tournament
from aacp.space import SearchSpace
from aacp.structure import Structure

Make = Callable[[SearchSpace, Budget, int, Sequence[Structure]], Searcher[Any]]


def _evolution(settings: Evolution) -> Make:
    return lambda space, budget, seed, start: ImprovedDifferentialEvolution(space, budget, seed, settings, start)


METHODS: dict[str, Make] = {
    "default": lambda space, budget, seed, start: GuidedEvolution(space, budget, seed, start=start),
    "paper": _evolution(PAPER),
    "fig3": _evolution(FIG3),
    "ide+": _evolution(IDE_PLUS),
    "de": _evolution(replace(PAPER, reinitialise_after=None)),
    "bees": lambda space, budget, seed, start: BeeColony(space, budget, seed, start=start),
    "tournament": lambda space, budget, seed, start: Tournament(space, budget, seed, start=start),
    "sensitivity": lambda space, budget, seed, start: SensitivityThreshold(space, budget, seed, start=start),
    "random": lambda space, budget, seed, start: RandomSearch(space, budget, seed, start=start),
    "uniform": lambda space, budget, seed, start: UniformShrinkage(space, budget, seed, start=start),
}


def searcher(
    name: str, space: SearchSpace, budget: Budget, seed: int = 0, start: Sequence[Structure] = ()
) -> Searcher[Any]:
    """A fresh search by the method of this name."""
    if name not in METHODS:
        raise InvalidOption(f"There is no search method {name!r}. Choose from {', '.join(METHODS)}.")
    return METHODS[name](space, budget, seed, start)
