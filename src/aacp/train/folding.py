"""Folding: a teacher that answers sooner: its batch norms gone into the convolutions before them, its widths even."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from aacp.accelerate.growing import Growth
from aacp.accelerate.widening import MULTIPLE, growth_for
from aacp.graph.examples import tensors_in
from aacp.graph.program import Call, Program, to_program
from aacp.graph.verification import compare, randomised_copy
from aacp.modules import copy_module, has_external_references, positional
from aacp.torch_internals import pytree

TOLERANCE = 1e-9  # in double precision
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def quickened(teacher: nn.Module | Sequence[nn.Module], inputs: Any) -> list[nn.Module]:
    """Networks that answer as the teachers do, as far as these could be followed on a few examples."""
    quick = []
    for network in [teacher] if isinstance(teacher, nn.Module) else teacher:
        growth = growth_for(network, inputs, MULTIPLE, learns=False)
        quick.append(folded(growth.grown(network) if isinstance(growth, Growth) else network, inputs))
    return quick


def folded(network: nn.Module, inputs: Any) -> nn.Module:
    """A copy for evaluation with as few batch norms as can be; the network itself where that would change answers."""
    if any(map(has_external_references, network.modules())):
        return network
    try:
        arguments = _in_double(positional(network, inputs))
        with torch.random.fork_rng(devices=[]):
            twin = randomised_copy(copy_module(network).cpu(), arguments, 0, torch.float64)
            pairs = list(_pairs(to_program(copy_module(twin), arguments), twin))
            with torch.no_grad():
                expected = tensors_in(twin(*copy.deepcopy(arguments)))
                found = tensors_in(_fold(twin, pairs)(*copy.deepcopy(arguments)))
    except Exception:  # whatever the network or the exporter raises: a teacher need not be quick
        return network
    trouble = compare(expected, found)
    is_same = not isinstance(trouble, str) and trouble <= TOLERANCE
    return _fold(copy_module(network).eval(), pairs) if is_same else network


def _fold(network: nn.Module, pairs: list[tuple[str, str]]) -> nn.Module:
    """Each batch norm into its convolution, in place."""
    for convolution, norm in pairs:
        parts: list[Any] = [network.get_submodule(path) for path in (convolution, norm)]
        joined = fuse_conv_bn_eval(*parts)
        for path, part in ((convolution, joined), (norm, nn.Identity())):
            parent, _, name = path.rpartition(".")
            setattr(network.get_submodule(parent), name, part)
    return network


def _pairs(program: Program, network: nn.Module) -> Iterator[tuple[str, str]]:
    """The convolutions that only a batch norm reads, and these; both used once, and torch's own."""
    for call in program.calls():
        source = call["input"] if call.operator == "batch_norm" else None
        if not isinstance(source, fx.Node) or source.op != "call_function" or len(source.users) != 1:
            continue
        if not Call(source).operator.startswith("conv"):
            continue
        names = [_owner(program, Call(source)["weight"]), _owner(program, call["running_mean"])]
        if None not in names:
            convolution, norm = (str(name) for name in names)
            kinds = type(network.get_submodule(convolution)), type(network.get_submodule(norm))
            if kinds[0] in CONVOLUTIONS and kinds[1] in NORMS:
                yield convolution, norm


def _owner(program: Program, node: Any) -> str | None:
    """The module whose tensor a node is, if it is used nowhere else."""
    if not isinstance(node, fx.Node) or node.name not in program.tensors or len(node.users) != 1:
        return None
    return program.tensors[node.name].rpartition(".")[0]


def _in_double(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    def convert(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.double() if leaf.is_floating_point() else leaf

    result: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, convert, arguments)
    return result
