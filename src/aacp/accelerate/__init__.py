"""Everything that only makes aacp faster. The library works, more slowly, without this folder.

The core calls the functions of this module through `aacp.acceleration`. `execution_for` and `update_for` return None
where they do not apply.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torch import nn

    from aacp.estimate.execution import Execution
    from aacp.estimate.inheritance import Inheritance
    from aacp.train.device_batches import DeviceBatches
    from aacp.train.loader_batches import LoaderBatches
    from aacp.train.trained_as import TrainedAs
    from aacp.train.update import PlainUpdate, Update


def execution_for(inheritance: Inheritance, is_requested: bool) -> Execution | None:
    """Masked execution where it is the faster way to score structures, or where it is requested; None elsewhere."""
    from aacp.accelerate.masked.execution import Masked

    is_needed = inheritance.graph.form == "exported"  # the exported form cannot be recalibrated once it is cut
    is_faster = inheritance.device.type == "cuda" and not inheritance.graph.parts  # which has no program of the whole
    return Masked(inheritance) if is_requested or is_needed or is_faster else None


def update_for(plain: PlainUpdate, model: nn.Module) -> Update | None:
    """A faster update that computes the same; see `aacp.accelerate.update`."""
    from aacp.accelerate.update import faster_update

    return faster_update(plain, model)


def network_for(
    model: nn.Module,
    source: DeviceBatches | LoaderBatches,
    fabric: Fabric,
    steps: int,
    is_replaceable: bool,
) -> AbstractContextManager[TrainedAs]:
    """The network to optimise in place of a model: wider, and with our layers, where these are faster.

    Else it is the model itself; see `aacp.accelerate.widening`.
    """
    from aacp.accelerate.widening import faster_network

    return faster_network(model, source, fabric, steps, is_replaceable)
