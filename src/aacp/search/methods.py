"""The search methods by name, as `Plan.method` and the command line take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.baselines import CurveSearch, RandomSearch, UniformShrinkage
from aacp.search.curves import ErrorCurves
from aacp.search.evolution import FIG3, GENERATIONS, IDE_PLUS, PAPER, RELEASED, ImprovedDifferentialEvolution
from aacp.search.guided import GuidedEvolution
from aacp.search.history import History
from aacp.search.searcher import Searcher
from aacp.user.options import require_known

EVALUATIONS = 200  # the length of a search unless its method has a length of its own
AUTHORS_EVALUATIONS = PAPER.population * GENERATIONS  # the length of the authors' searches, N x T


@dataclass(frozen=True)
class NamedMethod:
    """The meaning of a name in METHODS.

    Args:
        kind: the class of the method.
        settings: its settings; None for the defaults of the class.
        evaluations: the number of structures that a search evaluates if none is given.
    """

    kind: type[Searcher[Any]]
    settings: Any = None
    evaluations: int = EVALUATIONS


METHODS = {
    "default": NamedMethod(GuidedEvolution),
    "paper": NamedMethod(ImprovedDifferentialEvolution, PAPER, AUTHORS_EVALUATIONS),
    "released": NamedMethod(ImprovedDifferentialEvolution, RELEASED, AUTHORS_EVALUATIONS),
    "fig3": NamedMethod(ImprovedDifferentialEvolution, FIG3),
    "ide+": NamedMethod(ImprovedDifferentialEvolution, IDE_PLUS),
    "de": NamedMethod(ImprovedDifferentialEvolution, replace(PAPER, reinitialise_after=None), AUTHORS_EVALUATIONS),
    "random": NamedMethod(RandomSearch),
    "uniform": NamedMethod(UniformShrinkage),
    "curves": NamedMethod(CurveSearch),
}


BATCHED = ("default", "random")  # the methods whose settings say how many structures they keep proposed

Method = str | type[Searcher[Any]]  # a name in METHODS, or a subclass of Searcher


def searcher(
    method: Method,
    space: SearchSpace,
    budget: Budget,
    seed: int = 0,
    start: Sequence[Structure] = (),
    known: History | None = None,
    curves: ErrorCurves | None = None,
    proposals: int | None = None,
) -> Searcher[Any]:
    """A new search by a method.

    Args:
        method: a name in METHODS, or a subclass of Searcher, which then runs with its default settings.
        space: the legal structures.
        budget: the limits that every proposed structure meets.
        seed: the seed of the search's random generator.
        start: structures to evaluate first.
        known: candidates that were evaluated before, which the search may learn from.
        curves: the error of every width of every group. The structure with the least total error is then evaluated
            first; the method "curves" requires them and evaluates nothing else.
        proposals: the number of structures without a score that a method with settings for it keeps proposed; None is
            its default.
    """
    chosen = named_method(method)
    settings = chosen.settings
    if proposals is not None and method in BATCHED:
        settings = replace(settings or chosen.kind.settings_type(), batch=proposals)
    if curves is not None:
        start = [curves.best(space, budget), *start]
    elif needs_curves(method):
        raise InvalidOption(
            f"The search method {method!r} chooses by error curves, but none are given. "
            "Give those of an inheritance: curves=inheritance.error_curves."
        )
    return chosen.kind(space, budget, seed, settings, start, known)


def needs_curves(method: Method) -> bool:
    """Whether a method chooses by error curves."""
    return issubclass(named_method(method).kind, CurveSearch)


def proposes_one(method: Method) -> bool:
    """Whether a method proposes a single structure, so that its search ends after one evaluation."""
    return issubclass(named_method(method).kind, (UniformShrinkage, CurveSearch))


def named_method(method: Method) -> NamedMethod:
    """The class, the settings and the default length of a method; those of a class are its own defaults."""
    require_method(method)
    return METHODS[method] if isinstance(method, str) else NamedMethod(method)


def default_evaluations_text() -> str:
    """The default numbers of evaluations in one phrase, for help texts."""
    longer = [name for name, method in METHODS.items() if method.evaluations != EVALUATIONS]
    return f"{EVALUATIONS}; {AUTHORS_EVALUATIONS:,} for {', '.join(longer)}"


def require_method(method: Method) -> None:
    """Reject a name that METHODS does not have, and a class that is not a Searcher."""
    if isinstance(method, str):
        require_known("search method", method, METHODS)
    elif not (isinstance(method, type) and issubclass(method, Searcher)):
        raise InvalidOption(f"The search method {method!r} is not a Searcher. Give a name or a subclass of Searcher.")
