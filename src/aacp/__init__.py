"""aacp: automatic channel pruning of convolutional networks.

Names are imported when first used, so that `aacp --help` need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aacp.channels import ChannelGraph as ChannelGraph
    from aacp.channels import ChannelGroup as ChannelGroup
    from aacp.channels import Layer as Layer
    from aacp.cost.analytic import Cost as Cost
    from aacp.cost.analytic import activation_bytes as activation_bytes
    from aacp.cost.analytic import macs as macs
    from aacp.cost.analytic import params as params
    from aacp.errors import AACPError as AACPError
    from aacp.errors import GraphMismatch as GraphMismatch
    from aacp.errors import InvalidExample as InvalidExample
    from aacp.errors import InvalidOption as InvalidOption
    from aacp.errors import InvalidStructure as InvalidStructure
    from aacp.errors import NothingToPrune as NothingToPrune
    from aacp.errors import UnknownModel as UnknownModel
    from aacp.errors import UntraceableModel as UntraceableModel
    from aacp.graph.surgery import shrink as shrink
    from aacp.graph.tracing import trace as trace
    from aacp.graph.tracing import verify as verify
    from aacp.space import SearchSpace as SearchSpace
    from aacp.structure import Structure as Structure

_PLACES = {
    "AACPError": "aacp.errors",
    "ChannelGraph": "aacp.channels",
    "ChannelGroup": "aacp.channels",
    "GraphMismatch": "aacp.errors",
    "InvalidExample": "aacp.errors",
    "InvalidOption": "aacp.errors",
    "InvalidStructure": "aacp.errors",
    "NothingToPrune": "aacp.errors",
    "UnknownModel": "aacp.errors",
    "UntraceableModel": "aacp.errors",
    "Cost": "aacp.cost.analytic",
    "Layer": "aacp.channels",
    "SearchSpace": "aacp.space",
    "Structure": "aacp.structure",
    "activation_bytes": "aacp.cost.analytic",
    "macs": "aacp.cost.analytic",
    "params": "aacp.cost.analytic",
    "shrink": "aacp.graph.surgery",
    "trace": "aacp.graph.tracing",
    "verify": "aacp.graph.tracing",
}

__all__ = sorted(_PLACES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'aacp' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
