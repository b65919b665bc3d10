"""The search methods by name are the ones that their names promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import aacp
from glue.subjects import data

pytestmark = pytest.mark.slow

SPACE = aacp.SearchSpace.from_widths([40] * 6, pruning_step=1)
PAPER = aacp.EvolutionSettings(population=10, differential_weight=0.5, crossover_rate=0.8, reinitialise_after=4)
FIG3 = replace(PAPER, population=50, base="best", rounding="stochastic", force_one_gene=True, protect_best=True)
EVOLUTIONS = {
    "paper": PAPER,
    "released": replace(PAPER, base="best ever", rounding="nearest", force_one_gene=True, one_by_one=True),
    "de": replace(PAPER, reinitialise_after=None),
    "fig3": FIG3,
    "ide+": replace(FIG3, population=10, reinitialise_after=20, rescaling="two-sided", seeded=True, avoid_known=True),
}


def proposed_per_generation(name: str, generations: int = 24) -> dict[int, int]:
    """How many structures a method proposes in each generation if nothing ever beats its first one."""
    method = aacp.searcher(name, SPACE, aacp.Budget(), seed=0)
    for generation in range(generations):
        score = 1.0 if generation == 0 else 0.0
        method.tell([(structure, score) for structure in method.ask()])
    return Counter(candidate.generation for candidate in method.history)


def test_plain_differential_evolution_never_reinitialises() -> None:
    """A reinitialised individual has to be scored beside the trials, so that a generation becomes larger."""
    assert max(proposed_per_generation("de").values()) <= 10


@pytest.mark.parametrize(("name", "population"), [("paper", 10), ("fig3", 50)])
def test_the_other_evolutions_reinitialise(name: str, population: int) -> None:
    proposed = proposed_per_generation(name)
    assert proposed[0] == population
    assert max(proposed.values()) > population


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_the_settings_are_those_that_the_documents_state(name: str) -> None:
    assert aacp.searcher(name, SPACE, aacp.Budget()).settings == EVOLUTIONS[name]


def test_a_run_uses_the_method_it_is_given(model, tmp_path) -> None:
    plan = aacp.Plan(method="de", evaluations=12, recipe=None, reconstruction=None, calibration_images=16, export=False)
    found = aacp.prune(model, data(), {"macs": 0.3}, tmp_path, plan=plan, device="cpu")
    state = found.folder.read_json("search.json")
    assert state["method"] == "ImprovedDifferentialEvolution"
    assert state["settings"]["reinitialise_after"] is None
