"""Verification: a network cut at random must compute what the masked original computes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.graph import ChannelGraph, KeptUnits
from aacp.data.examples import tensors_in
from aacp.errors import UntraceableModel, first_line
from aacp.graph.assembly import Assembled
from aacp.graph.comparison import compare, rounded
from aacp.graph.exported import cut_exported
from aacp.graph.masking import MaskedRun
from aacp.graph.other_shapes import other_examples
from aacp.graph.propagation import Propagation
from aacp.graph.slicing import cut
from aacp.graph.units import UnitProgram
from aacp.graph.unverified import converted, evaluation_copy
from aacp.pytorch.internals import BatchNorm, own_buffers, own_parameters
from aacp.pytorch.modules import copy_module, named_tensors, seed_generators, submodules

# Largest allowed difference, as a share of how much the output varies. Rounding errors stay below; a wrong channel is
# far above, because the weights are random.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
# A network may amplify rounding errors beyond the tolerance in double precision (a saturated softmax). A difference up
# to AMPLIFIED is accepted if rounding errors in the inputs change the outputs of the masked original nearly as much.
AMPLIFIED = 1e-6
NEARLY = 10.0
# Operators that end the process if a state has another batch than the input: they are not run with constants of the
# example on other inputs.
UNCHECKED = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))


@dataclass
class Verifier:
    """A traced network with random weights, and an example on which to compare its cuts with its masked runs."""

    model: nn.Module
    propagation: Propagation
    assembled: Assembled
    arguments: tuple[Any, ...]
    dtype: torch.dtype
    exported_in_double: Callable[[], Verifier]  # the same in double precision, from an export of its own
    place: str = ""  # added to the description of a difference: " for inputs of shape 2x3x96x96"

    def difference(self, graph: ChannelGraph, trial: KeptUnits, groups: Sequence[str]) -> str | None:
        """How the network differs from the masked original if the named groups are cut; None if it does not."""
        named = {name: trial[name] for name in groups}
        return self.difference_when(graph, graph.kept_units(named))

    def difference_when(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> str | None:
        """How the network with only these units differs from the masked original; None if it does not."""
        found = self._difference(graph, units)
        if isinstance(found, str):
            return found
        if found <= TOLERANCE[self.dtype]:
            return None
        if self.dtype != torch.float64:
            try:  # single precision cannot always distinguish rounding from a mistake
                return self.in_double.difference_when(graph, units)
            except UntraceableModel:  # its code needs single precision: freeze, to be safe
                return f"outputs differ by {found:.1e} of their scale, and the network does not run in double precision"
        if found <= min(AMPLIFIED, NEARLY * self._change_by_rounding(units)):
            return None
        return f"outputs differ by {found:.1e} of their scale{self.place}"

    @cached_property
    def in_double(self) -> Verifier:
        """The same in double precision; with the same program, if it computes there what the network computes.

        An export takes most of the time of a verification.
        """
        if self.assembled.graph.form == "exported":
            return self.exported_in_double()  # the cut network is made of the program, which has types as constants
        arguments = converted(self.arguments, torch.float64)
        double = replace(
            self, model=evaluation_copy(self.model, torch.float64), arguments=arguments, dtype=torch.float64
        )
        try:
            with torch.no_grad():
                expected = double._run(copy_module(double.model))
        except Exception:  # whatever code that needs single precision raises
            return self.exported_in_double()
        return double if double._program_computes(expected) else self.exported_in_double()

    def elsewhere(self) -> Verifier | None:
        """The same network with an example of another size and batch; None if it accepts only those that it has.

        Code may treat channels correctly for one size only: a reshape of positions x channels to channels x positions
        moves other channels at other sizes.
        """
        if self.assembled.graph.form == "exported":
            return None  # such a network runs on inputs of one shape
        network = copy_module(self.model)  # networks that keep caches are not the same after they have run
        for arguments in other_examples(self.arguments):
            try:
                with torch.no_grad():
                    expected = replace(self, arguments=arguments)._run(network)
                return self._moved(arguments, expected)
            except Exception:  # whatever the network's code or the exporter raises on sizes that it does not expect
                continue
        return None

    def _moved(self, arguments: tuple[Any, ...], expected: Sequence[torch.Tensor]) -> Verifier:
        """The verifier with other arguments, for which the network returns `expected`."""
        shapes = ", ".join("x".join(map(str, tensor.shape)) for tensor in tensors_in(arguments) if tensor.dim())

        def exported_in_double() -> Verifier:
            return self.exported_in_double()._moved(converted(arguments, torch.float64), expected)

        place = f" for inputs of shape {shapes}"
        moved = replace(self, arguments=arguments, exported_in_double=cache(exported_in_double), place=place)
        if moved._program_computes(expected):
            return moved
        program = UnitProgram.of(self.model, self.assembled.graph, arguments)
        assembled = replace(self.assembled, unit_of_id=program.unit_of_id[:-1])
        return replace(moved, propagation=program.propagation, assembled=assembled)

    def _program_computes(self, expected: Sequence[torch.Tensor]) -> bool:
        """Whether the program computes these outputs for the arguments.

        It may not: the sizes of the example and the types of its tensors are constants of the program.
        """
        if any(call.operator in UNCHECKED for call in self.propagation.program.calls()):
            return False
        everything = np.ones(len(self.assembled.unit_of_id), dtype=bool)
        try:
            with torch.no_grad():
                found = self._run_masked(everything)
        except Exception:  # whatever an operator raises on sizes that it does not expect
            return False
        difference = compare(expected, found)
        return not isinstance(difference, str) and difference <= TOLERANCE[self.dtype]

    def _run(self, network: nn.Module) -> list[torch.Tensor]:
        """The outputs of a network for the arguments, with the same random numbers in every run."""
        seed_generators(network, 0)
        return list(tensors_in(network(*copy.deepcopy(self.arguments))))

    def _run_masked(self, stays: NDArray[np.bool_]) -> list[torch.Tensor]:
        """The outputs of the program with only these channels, with the same random numbers as `_run`."""
        seed_generators(self.model, 0)
        return MaskedRun(self.propagation, stays)(self.model, copy.deepcopy(list(tensors_in(self.arguments))))

    def _cut(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> nn.Module:
        if graph.form == "exported":
            return cut_exported(self.model, self.propagation, self.assembled, graph, units)
        return cut(self.model, graph, units)

    def _change_by_rounding(self, units: NDArray[np.bool_]) -> float:
        """How much the outputs of the masked original change, at their scale, if its inputs have rounding errors."""
        stays = np.append(units, True)[self.assembled.unit_of_id]
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            found = compare(
                self._run_masked(stays), replace(self, arguments=rounded(self.arguments, generator))._run_masked(stays)
            )
        return found if isinstance(found, float) else 0.0

    def _difference(self, graph: ChannelGraph, units: NDArray[np.bool_]) -> float | str:
        stays = np.append(units, True)[self.assembled.unit_of_id]
        with torch.no_grad():
            try:
                found = self._run(self._cut(graph, units))
                expected = self._run_masked(stays)
            except Exception as error:  # whatever the model's own code raises on sizes it does not expect
                return first_line(error)
        return compare(expected, found)


# -- cuts -------------------------------------------------------------------------------------------------------------


def random_cuts(graph: ChannelGraph, seed: int) -> list[KeptUnits]:
    """Four cuts that are likely to reveal a mistake.

    Each channel of each group is absent from the first cut or from the second. In the third, many groups keep at most
    an eighth. In each of these three, some groups stay whole. In the fourth, all groups keep the same number of units,
    because code that compares widths (`if x.shape == y.shape`) may then behave differently.
    """
    generator = np.random.default_rng(seed)
    first: KeptUnits = {}
    second: KeptUnits = {}
    third: KeptUnits = {}
    equal: KeptUnits = {}
    same = min((group.width for group in graph.free if group.width >= 8), default=2) // 2
    for group in graph.free:
        order = generator.permutation(group.width)
        count = int(np.clip(round(group.width * generator.uniform(0.25, 0.75)), 1, max(1, group.width - 1)))
        parts = [np.sort(order[:count]), np.sort(order[count:])]
        whole = np.arange(group.width)
        if generator.random() > 0.2:
            first[group.name] = parts[0]
            second[group.name] = parts[1] if len(parts[1]) else whole
        else:
            first[group.name] = whole
            second[group.name] = parts[0]
        few = np.sort(order[: max(1, group.width // 8)])
        third[group.name] = [few, parts[0], whole][generator.choice(3, p=[0.4, 0.4, 0.2])]
        equal[group.name] = np.sort(order[:same]) if group.width > same else whole
    return [first, second, third, equal]


def verified(verifier: Verifier, graph: ChannelGraph, seed: int) -> ChannelGraph:
    """The graph with every group frozen whose cut makes the network fail or compute something else.

    The second cut is tried on inputs of another size and batch, where the network accepts them.
    """
    first, second, *others = random_cuts(graph, seed)
    graph = _without_culprits(verifier, graph, first)
    graph = _without_culprits((verifier.elsewhere() if graph.free else None) or verifier, graph, second)
    for trial in others:
        graph = _without_culprits(verifier, graph, trial)
    return graph


def _without_culprits(verifier: Verifier, graph: ChannelGraph, trial: KeptUnits) -> ChannelGraph:
    """The graph with groups frozen, one after another, until the cut of the others is right."""
    good = 0  # the first `good` free groups can be cut together
    while True:
        free = [group.name for group in graph.free]
        if not free or verifier.difference(graph, trial, free) is None:
            return graph
        good, difference = _culprit(verifier, graph, trial, free, good)
        graph = graph.freeze({free[good]: f"cutting it breaks the network ({difference})"})


def _culprit(verifier: Verifier, graph: ChannelGraph, trial: KeptUnits, free: list[str], good: int) -> tuple[int, str]:
    """The place of the group to freeze, and the difference: the last of the shortest list of leading groups that fails.

    Args:
        verifier: the network.
        graph: its graph.
        trial: the cut that is not right.
        free: the groups that are cut.
        good: the first `good` of them can be cut together.
    """
    bad = len(free)  # the first `bad` groups cannot
    difference = ""
    while bad - good > 1:
        middle = (good + bad) // 2
        found = verifier.difference(graph, trial, free[:middle])
        if found is None:
            good = middle
        else:
            bad = middle
            difference = found
    return good, difference or verifier.difference(graph, trial, free[:bad]) or ""


# -- weights ----------------------------------------------------------------------------------------------------------


def randomised_copy(model: nn.Module, arguments: tuple[Any, ...], seed: int, dtype: torch.dtype) -> nn.Module:
    """A copy in evaluation mode with random weights under which every channel affects the output.

    Args:
        model: the network; it is not changed.
        arguments: what to call it with, of the given type.
        seed: the seed of the random weights.
        dtype: the floating-point type of the copy.
    """
    twin = evaluation_copy(model, dtype)
    source = evaluation_copy(model, dtype)  # it runs once for its statistics, which may change caches that it keeps
    randomise_weights(source, seed)
    set_norm_statistics(source, arguments)
    values = dict(named_tensors(source))
    for name, value in named_tensors(twin):
        if name in values and values[name].shape == value.shape:
            value.data.copy_(values[name])
    return twin


def randomise_weights(model: nn.Module, seed: int) -> None:
    """Replace the weights of a network by random ones that keep signals at about unit size.

    Trained or fresh weights may hide mistakes: scales of zero, saturated units, signals that vanish with depth. Only
    the structure is verified, so any weights will do.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(value: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(value.shape, generator=generator)

    for module in submodules(model):
        for key, value in [*own_parameters(module).items(), *own_buffers(module).items()]:
            if value is None or not value.is_floating_point() or not value.numel():
                continue
            if key in ("bias", "running_mean"):
                value.data.copy_(drawn(value, -0.1, 0.1))
            elif value.dim() < 2 and (key in own_parameters(module) or bool((value == value.reshape(-1)[0]).all())):
                value.data.copy_(drawn(value, 0.5, 1.5))
            elif key in own_parameters(module):
                fan_in = value.numel() / value.shape[0]
                value.data.copy_(drawn(value, -1.0, 1.0) * math.sqrt(6 / fan_in))


def set_norm_statistics(model: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Give every batch norm the statistics of its inputs, so that signals neither grow nor vanish with depth."""

    def take_statistics(norm: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        spread, mean = torch.var_mean(inputs[0], [d for d in range(inputs[0].dim()) if d != 1], correction=0)
        if isinstance(norm.running_mean, torch.Tensor) and isinstance(norm.running_var, torch.Tensor):
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(spread + 0.1)  # avoids a division by zero where nothing varies

    norms = [module for module in submodules(model) if isinstance(module, BatchNorm)]
    with ExitStack() as hooks, torch.no_grad():
        for norm in norms:
            hooks.enter_context(norm.register_forward_pre_hook(take_statistics))
        # Whatever the model's own code raises: verification will raise it again and report it.
        with suppress(Exception):
            model(*copy.deepcopy(arguments))
