"""Advice before a search: what was measured to be better, or as good and faster, than what a plan requests."""

from __future__ import annotations

from aacp.cost.budget import Budget
from aacp.pipeline.plan import Plan
from aacp.search.methods import BATCHED
from aacp.workers.ray import WorkerRequest

# After this many epochs, uniform widths were as good as a search if the limit removes at most this share of the MACs.
LONG_TRAINING = 100
UNIFORM_RATE = 0.5
SHORT_TRAINING = 10  # up to this many epochs, the repaired search was better than the plain one, or as good


def advice_on_search(budget: Budget, plan: Plan) -> str:
    """Advice to leave out the search where uniform widths were measured to be as good (docs/search.md); else ""."""
    trains_long = plan.recipe is not None and plan.recipe.epochs >= LONG_TRAINING
    if plan.method == "uniform" or not trains_long or [limit.cost.name for limit in budget.limits] != ["macs"]:
        return ""
    rate = budget.limits[0].pruning_rate
    if rate is None or rate > UNIFORM_RATE:
        return ""
    return (
        f"with one limit of at most {UNIFORM_RATE:.0%} fewer MACs, uniform widths were as good as a search on ResNet56 "
        f"after {LONG_TRAINING} epochs; --method uniform needs no search"
    )


def advice_on_repair(plan: Plan) -> str:
    """Advice to repair weights where that was measured to be better or as good (docs/search.md); else ""."""
    trains_shortly = plan.recipe is not None and plan.recipe.epochs <= SHORT_TRAINING and not plan.from_scratch
    if plan.method == "uniform" or not trains_shortly or plan.chosen_reconstruction is not None:
        return ""
    return (
        f"with {SHORT_TRAINING} epochs or fewer, networks searched with --reconstruction repair --importance obs ended "
        "0.0 to 0.9 points higher (ResNet56, VGG16, MobileNetV2); an estimate takes 1.8 times as long with it"
    )


def advice_on_workers(plan: Plan) -> str:
    """Advice to propose more structures if workers of the plan would wait for them; else ""."""
    if plan.workers is None or plan.method not in BATCHED:  # the other methods propose generations
        return ""
    return WorkerRequest.of(plan.workers).idle_note(plan.proposed_at_once)
