"""Check that a grown network computes and learns the same as the network it was grown from.

Both run on the same few examples in double precision, in evaluation and in training mode. Outputs, gradients and
statistics must agree, and no gradient may reach the new channels.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from aacp.accelerate.growing import Growth
from aacp.data.examples import tensors_in
from aacp.errors import first_line
from aacp.graph.comparison import compare
from aacp.graph.verification import randomised_copy
from aacp.pytorch.modules import named_tensors, submodules

TOLERANCE = 1e-7  # batch norms amplify rounding errors of 1e-16 to nearly this; a real difference is far larger
# Shifts of all biases to try: max/min over channels reacts to an added zero channel only if all others are below/above
# zero.
SHIFTS = (0.0, -8.0, 8.0)
# Multiplicative dropout keeps zeros zero, so it is switched off here; layers that add noise are not.
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def difference(model: nn.Module, growth: Growth, arguments: tuple[Any, ...], seed: int = 0) -> str | None:
    """Describe how a grown network differs from the model; None if it does not.

    Dropout is switched off: a wider network draws different masks from the same distribution.

    Args:
        model: the network, in double precision.
        growth: the growth to check.
        arguments: the network's inputs, in double precision.
        seed: the seed of the random weights and of the random numbers that the network draws.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            found = (_difference(model, growth, arguments, seed, shift) for shift in SHIFTS)
            return next((trouble for trouble in found if trouble is not None), None)
        except Exception as error:  # raised by the user's network on sizes that its code does not expect
            return first_line(error)


def _difference(model: nn.Module, growth: Growth, arguments: tuple[Any, ...], seed: int, shift: float) -> str | None:
    narrow = randomised_copy(model, arguments, seed, torch.float64).requires_grad_()
    for name, value in narrow.named_parameters():
        if name.rpartition(".")[2] == "bias":
            value.data += shift
    wide = growth.grown(narrow)
    for training in (False, True):
        expected = _run(narrow, arguments, training, seed)
        found = _run(wide, arguments, training, seed)
        troubles = (
            _verdict("outputs", expected, found),
            _gradients_differ(narrow, wide, growth),
            _statistics_differ(narrow, wide, growth),
        )
        for trouble in filter(None, troubles):
            return f"{trouble} in {'training' if training else 'evaluation'} mode"
    return None


def _run(network: nn.Module, arguments: tuple[Any, ...], training: bool, seed: int) -> list[torch.Tensor]:
    """The network's outputs; the parameters then have the gradients of a random weighted sum of them."""
    network.train(training)
    for module in submodules(network):
        if isinstance(module, DROPOUTS):
            module.eval()
    network.zero_grad()
    torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would also seed every GPU
    found = tensors_in(network(*copy.deepcopy(arguments)))
    generator = torch.Generator().manual_seed(seed)
    drawn = [(value, torch.randn(value.shape, generator=generator, dtype=torch.float64)) for value in found]
    sums = [(value * weight).sum() for value, weight in drawn if value.requires_grad]
    if sums:
        torch.stack(sums).sum().backward()  # type: ignore[no-untyped-call]
    return [value.detach() for value in found]


def _gradients_differ(narrow: nn.Module, wide: nn.Module, growth: Growth) -> str | None:
    reached = dict(wide.named_parameters())
    pairs = [(name, parameter.grad, reached[name].grad) for name, parameter in narrow.named_parameters()]
    largest = max((float(grad.abs().max()) for _, grad, _ in pairs if grad is not None and grad.numel()), default=0.0)
    for name, expected, found in pairs:
        if expected is None or found is None:
            if expected is not found:
                return f"the gradient of {name} is missing"
            continue
        kept = growth.narrowed(name, found)
        if found.count_nonzero() != kept.count_nonzero():
            return f"a gradient reaches the new channels of {name}"
        # The bound has a floor, because the gradient of a bias before a batch norm is nothing but rounding.
        bound = TOLERANCE * max(float(expected.abs().max()), 1e-4 * largest) if expected.numel() else 0.0
        if not bool(((kept - expected).abs() <= bound).all()):
            return f"the gradient of {name} differs"
    return None


def _statistics_differ(narrow: nn.Module, wide: nn.Module, growth: Growth) -> str | None:
    expected = {name: value for name, value in named_tensors(narrow) if not isinstance(value, nn.Parameter)}
    held = dict(named_tensors(wide))
    return _verdict("statistics", list(expected.values()), [growth.narrowed(name, held[name]) for name in expected])


def _verdict(what: str, expected: list[torch.Tensor], found: list[torch.Tensor]) -> str | None:
    trouble = compare(expected, found)
    if isinstance(trouble, str):
        return trouble
    return None if trouble <= TOLERANCE else f"{what} differ by {trouble:.1e} of their scale"
