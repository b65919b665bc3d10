"""Surgery: a smaller network from a network, its graph and what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from aacp.channels import ChannelGraph
from aacp.errors import InvalidOption
from aacp.graph.exported import cut_exported
from aacp.graph.program import export
from aacp.graph.slicing import cut
from aacp.graph.unverified import follow
from aacp.modules import copy_module, positional
from aacp.structure import Structure

Kept = Structure | Mapping[str, Any] | Iterable[Any]


def shrink(model: nn.Module, graph: ChannelGraph, kept: Kept, *, example: Any = None) -> nn.Module:
    """An independent smaller network; the model itself is not touched.

    `kept` says what each free group keeps: counts (the first channels stay) or indices, in the order of `graph.free`
    or by name; groups that are not named stay whole. The result is a module of the same class, or an exported graph
    if the network was traced with `form="exported"`; that one needs the `example` again.
    """
    return shrink_to_units(model, graph, graph.kept_units(kept), example=example)


def shrink_to_units(
    model: nn.Module, graph: ChannelGraph, units: NDArray[np.bool_], *, example: Any = None
) -> nn.Module:
    """The same as `shrink`, from a mask of the units that are kept."""
    if graph.form == "module":
        return cut(model, graph, units)
    if example is None:
        raise InvalidOption(
            'This graph was traced with form="exported", but no example was given. Pass shrink the example it was '
            "traced on."
        )
    twin = copy_module(model).eval()
    program = export(twin, positional(twin, example))
    propagation, assembled = follow(program, None, twin, graph.form)
    return cut_exported(twin, propagation, assembled, graph, units)
