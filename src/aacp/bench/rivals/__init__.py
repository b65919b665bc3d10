"""Search methods of other papers. Only the comparisons of `aacp bench` use them."""

from __future__ import annotations

from typing import Any

from aacp.bench.rivals.bees import BeeColony
from aacp.bench.rivals.sensitivity import SensitivityThreshold
from aacp.bench.rivals.tournament import Tournament
from aacp.search.methods import METHODS, Method
from aacp.search.searcher import Searcher

RIVALS: dict[str, type[Searcher[Any]]] = {
    "bees": BeeColony,
    "tournament": Tournament,
    "sensitivity": SensitivityThreshold,
}
COMPARED: tuple[str, ...] = (*METHODS, *RIVALS)


def compared_method(name: str) -> Method:
    """A method of the library or a rival, by name."""
    return RIVALS.get(name, name)
