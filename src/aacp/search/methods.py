"""The search methods by name, as the command line and the benchmarks know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.baselines import RandomSearch, UniformShrinkage
from aacp.search.bees import BeeColony
from aacp.search.evolution import FIG3, IDE_PLUS, PAPER, ImprovedDifferentialEvolution
from aacp.search.guided import GuidedEvolution
from aacp.search.history import History
from aacp.search.searcher import Searcher
from aacp.search.sensitivity import SensitivityThreshold
from aacp.search.tournament import Tournament
from aacp.space import SearchSpace
from aacp.structure import Structure

METHODS: dict[str, tuple[type[Searcher[Any]], Any]] = {
    # name: the class and its settings, None for its own defaults
    "default": (GuidedEvolution, None),
    "paper": (ImprovedDifferentialEvolution, PAPER),
    "fig3": (ImprovedDifferentialEvolution, FIG3),
    "ide+": (ImprovedDifferentialEvolution, IDE_PLUS),
    "de": (ImprovedDifferentialEvolution, replace(PAPER, reinitialise_after=None)),
    "bees": (BeeColony, None),
    "tournament": (Tournament, None),
    "sensitivity": (SensitivityThreshold, None),
    "random": (RandomSearch, None),
    "uniform": (UniformShrinkage, None),
}


def searcher(
    name: str,
    space: SearchSpace,
    budget: Budget,
    seed: int = 0,
    start: Sequence[Structure] = (),
    known: History | None = None,
) -> Searcher[Any]:
    """A fresh search by the method of this name; `start` and `known` as for every Searcher."""
    require_method(name)
    method, settings = METHODS[name]
    return method(space, budget, seed, settings, start, known)


def require_method(name: str) -> None:
    """Refuse the name of no method."""
    if name not in METHODS:
        raise InvalidOption(f"There is no search method {name!r}. Choose from {', '.join(METHODS)}.")
