"""Surgery: make a smaller network from a network, its channel graph and what to keep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from aacp.channels.graph import ChannelGraph, Kept
from aacp.errors import InvalidOption, InvalidStructure
from aacp.graph.exported import cut_exported
from aacp.graph.program import to_program
from aacp.graph.slicing import cut
from aacp.graph.unverified import analyse, arguments_for
from aacp.pytorch.modules import copy_module, require_network
from aacp.user.values import counted, instance


def shrink(model: nn.Module, graph: ChannelGraph, kept: Kept, *, example: Any = None) -> nn.Module:
    """An independent network with fewer channels; the model itself is not changed.

    Args:
        model: the network that the graph was traced from.
        graph: its channel graph.
        kept: what each free group keeps: counts (the first channels stay), indices or masks, in the order of
            `graph.free` or by name. Groups that are not named stay whole.
        example: the input that the network was traced on; only for graphs traced with `form="exported"`.

    Returns:
        A module of the same class, or a `GraphNetwork` if the network was traced with `form="exported"`.
    """
    require_network(model)
    instance("graph", graph, ChannelGraph, "Give the result of aacp.trace.")
    return cut_units(model, graph, graph.kept_units(kept), example=example)


def cut_units(model: nn.Module, graph: ChannelGraph, units: NDArray[np.bool_], *, example: Any = None) -> nn.Module:
    """What `shrink` returns, from a mask over all units of the graph (True: the unit stays)."""
    if units.shape != graph.unit_groups.shape or units.dtype != bool:
        raise InvalidStructure(
            f"The graph has {counted(len(graph.unit_groups), 'unit')}, but the mask is an array of {units.dtype} of "
            f"shape {units.shape}. Give one truth value per unit."
        )
    if graph.form == "module":
        return cut(model, graph, units)
    if example is None:
        raise InvalidOption(
            'This graph was traced with form="exported", but no example was given. Pass the example that the network '
            "was traced on."
        )
    twin = copy_module(model).eval()
    program = to_program(twin, arguments_for(twin, example))
    propagation, assembled = analyse(program, None, twin, graph.form)
    return cut_exported(twin, propagation, assembled, graph, units)
