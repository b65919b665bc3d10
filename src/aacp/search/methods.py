"""The search methods by name, as `Plan.method` and the command line take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.baselines import RandomSearch, UniformShrinkage
from aacp.search.evolution import FIG3, IDE_PLUS, PAPER, ImprovedDifferentialEvolution
from aacp.search.guided import GuidedEvolution
from aacp.search.history import History
from aacp.search.searcher import Searcher
from aacp.space import SearchSpace
from aacp.structure import Structure

METHODS: dict[str, tuple[type[Searcher[Any]], Any]] = {
    # name: the class and its settings, None for its own defaults
    "default": (GuidedEvolution, None),
    "paper": (ImprovedDifferentialEvolution, PAPER),
    "fig3": (ImprovedDifferentialEvolution, FIG3),
    "ide+": (ImprovedDifferentialEvolution, IDE_PLUS),
    "de": (ImprovedDifferentialEvolution, replace(PAPER, reinitialise_after=None)),
    "random": (RandomSearch, None),
    "uniform": (UniformShrinkage, None),
}


Method = str | type[Searcher[Any]]  # a name in METHODS, or a subclass of Searcher


def searcher(
    method: Method,
    space: SearchSpace,
    budget: Budget,
    seed: int = 0,
    start: Sequence[Structure] = (),
    known: History | None = None,
) -> Searcher[Any]:
    """A new search by a method.

    Args:
        method: a name in METHODS, or a subclass of Searcher, which then runs with its default settings.
        space: the legal structures.
        budget: the limits that every proposed structure meets.
        seed: the seed of the search's random generator.
        start: structures to evaluate first.
        known: candidates that were evaluated before, which the search may learn from.
    """
    require_method(method)
    kind, settings = METHODS[method] if isinstance(method, str) else (method, None)
    return kind(space, budget, seed, settings, start, known)


def require_method(method: Method) -> None:
    """Reject a name that METHODS does not have, and a class that is not a Searcher."""
    if isinstance(method, str):
        if method not in METHODS:
            raise InvalidOption(f"There is no search method {method!r}. Choose from {', '.join(METHODS)}.")
    elif not (isinstance(method, type) and issubclass(method, Searcher)):
        raise InvalidOption(f"The search method {method!r} is not a Searcher. Give a name or a subclass of Searcher.")
