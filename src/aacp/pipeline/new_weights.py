"""New weights for a structure, drawn as the network's own constructor draws them.

The network is built again, and the new one is cut to the structure. What a constructor draws often depends on the
number of inputs or outputs of the layer (its fan), which is smaller after the cut. The cut weights are therefore scaled
to the variance that the same rule gives for the smaller layer. The rule is recognised by the distribution that the
constructor drew from; weights that follow no known rule are left as they are drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from aacp.channels.structure import Structure
from aacp.data.seeding import derived
from aacp.errors import InvalidOption
from aacp.estimate.inheritance import Inheritance
from aacp.graph.surgery import shrink
from aacp.pipeline.plan import Init, Plan
from aacp.pipeline.task import PruningTask
from aacp.pytorch.internals import RecordedWrites
from aacp.train.new_weights import draw_weights
from aacp.train.seeding import global_seed
from aacp.zoo.models import build_model

# Variance times fan of the usual rules: torch's default layers, LeCun or Xavier, He.
GAINS = (1 / 3, 1.0, 2.0)
FANS = ("in", "out", "mean")
TOLERANCE = 1e-5  # relative; the recorded distributions are exact up to rounding
Rule = tuple[str, str, float]  # the class of the layer, the fan, and the gain
INHERITED = "inherited"  # the first weights of a training that starts from those of the unpruned network


def first_weights(task: PruningTask, plan: Plan) -> str:
    """The first weights of a training as its request records them: inherited, or how new ones are drawn."""
    return chosen_init(task, plan) if plan.from_scratch else INHERITED


def chosen_init(task: PruningTask, plan: Plan) -> Init:
    """How the new weights of a training from scratch are drawn."""
    if plan.init == "he":
        return "he"
    problem = _problem_of_building(task.name)
    if problem is not None and plan.init == "network":
        raise InvalidOption(
            f'The weights cannot be drawn as the network draws them: {problem}. Use init="he" (--init he).'
        )
    return "network" if problem is None else "he"


def first_network(task: PruningTask, plan: Plan, inheritance: Inheritance, structure: Structure) -> nn.Module:
    """The network of a structure that a training starts from: with inherited weights, or with new ones."""
    if plan.from_scratch:
        return network_with_new_weights(task, plan, inheritance, structure)
    return inheritance.network(structure)


def network_with_new_weights(
    task: PruningTask, plan: Plan, inheritance: Inheritance, structure: Structure
) -> nn.Module:
    """A network of a structure with new weights, drawn from the recipe's seed.

    Args:
        task: the network that is pruned.
        plan: says how to draw the weights.
        inheritance: cuts the network; modules that have no rule for new weights keep the inherited ones.
        structure: the structure.
    """
    assert plan.recipe is not None
    seed = plan.recipe.seed
    if chosen_init(task, plan) == "he":
        network = inheritance.cut(structure)
        draw_weights(network, seed)
        return network
    assert task.name is not None
    built = _build(task.name, seed)
    drawn = shrink(built.network, inheritance.graph, structure, example=task.example()).to(task.device)
    _scale_to_fans(drawn, built)
    return drawn


@dataclass(frozen=True, eq=False)
class _Built:
    """A newly built network, and the variance of each parameter that its constructor drew from a known distribution."""

    network: nn.Module
    variances: Mapping[str, float]


def _build(name: str, seed: int) -> _Built:
    variances: dict[int, float] = {}  # by the address of the tensor's memory

    def on_write(operator: str, tensor: Tensor, numbers: list[float]) -> None:
        is_whole = tensor.numel() == tensor.untyped_storage().nbytes() // tensor.element_size()
        variance = _variance(operator, numbers) if is_whole else None
        address = tensor.untyped_storage().data_ptr()
        variances.pop(address, None)
        if variance is not None:
            variances[address] = variance

    with global_seed(torch.device("cpu"), seed), RecordedWrites(on_write):
        network = build_model(name)
    named = {name: parameter.untyped_storage().data_ptr() for name, parameter in network.named_parameters()}
    return _Built(network, {name: variances[address] for name, address in named.items() if address in variances})


def _variance(operator: str, numbers: list[float]) -> float | None:
    """The variance of the distribution around zero that an operator fills a tensor from, or None."""
    if operator == "normal_":
        mean, deviation = (*numbers, *(0.0, 1.0)[len(numbers) :])
        return deviation**2 if mean == 0 else None
    if operator == "uniform_":
        low, high = (*numbers, *(0.0, 1.0)[len(numbers) :])
        return (high - low) ** 2 / 12 if low == -high else None
    return None


def _scale_to_fans(drawn: nn.Module, built: _Built) -> None:
    """Scale the parameters of a cut network, in place, to the variance that their rules give for its widths."""
    cut = dict(drawn.named_parameters())
    layers = {f"{path}.{name}".lstrip("."): module
              for path, module in built.network.named_modules()
              for name, _ in module.named_parameters(recurse=False)}  # fmt: skip
    candidates = {name: _rules(layers[name], variance) for name, variance in built.variances.items()}
    votes = Counter(rule for rules in candidates.values() for rule in rules)
    with torch.no_grad():
        for name, rules in candidates.items():
            if not rules or name not in cut:
                continue
            _, fan, _ = max(rules, key=lambda rule: votes[rule])  # several fit one layer; one fits most of them
            path = name.rpartition(".")[0]
            before = _fan(layers[name], fan)
            after = _fan(drawn.get_submodule(path), fan)
            cut[name].mul_(math.sqrt(before / after))


def _rules(layer: nn.Module, variance: float) -> list[Rule]:
    """The rules by which a layer's parameter may have been drawn."""
    if not isinstance(getattr(layer, "weight", None), Tensor) or layer.weight.dim() < 2:  # type: ignore[operator]
        return []
    kind = type(layer).__name__
    return [
        (kind, fan, gain)
        for fan in FANS
        for gain in GAINS
        if math.isclose(variance * _fan(layer, fan), gain, rel_tol=TOLERANCE)
    ]


def _fan(layer: nn.Module, kind: str) -> float:
    """The number of inputs or outputs of a layer's units, as torch counts them, or the mean of both."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    points = math.prod(weight.shape[2:])
    fans = {"in": weight.shape[1] * points, "out": weight.shape[0] * points}
    return fans[kind] if kind in fans else sum(fans.values()) / 2


@cache
def _problem_of_building(name: str | None) -> str | None:
    """Why a network cannot be built again with new weights, or None if it can."""
    if name is None:
        return "its name is not known, so that it cannot be built again"
    first, second = (dict(_build(name, derived(seed)).network.named_parameters()) for seed in (0, 1))
    for path, parameter in first.items():
        is_constant = bool((parameter == parameter.flatten()[0]).all()) if parameter.numel() else True
        if not is_constant and torch.equal(parameter, second[path]):
            return f"{name} returns the same {path} with every seed, so it does not draw it"
    return None
