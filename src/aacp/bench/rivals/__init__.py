"""Search methods of other papers, which `aacp bench` compares with those of the library.

They are not among the named methods. To prune with one, give its class: `Plan(method=BeeColony)`, or
`--method aacp.bench.rivals.bees:BeeColony` on the command line.
"""

from __future__ import annotations

from typing import Any

from aacp.bench.rivals.bees import BeeColony
from aacp.bench.rivals.sensitivity import SensitivityThreshold
from aacp.bench.rivals.tournament import Tournament
from aacp.search.methods import METHODS, Method, needs_curves
from aacp.search.searcher import Searcher

RIVALS: dict[str, type[Searcher[Any]]] = {
    "bees": BeeColony,
    "tournament": Tournament,
    "sensitivity": SensitivityThreshold,
}
# Synthetic problems have no error curves.
COMPARED: tuple[str, ...] = (*(name for name in METHODS if not needs_curves(name)), *RIVALS)


def compared_method(name: str) -> Method:
    """The method of the library, or of another paper, that has this name in COMPARED."""
    return RIVALS.get(name, name)
