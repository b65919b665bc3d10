"""The Lightning Fabric that training runs on, and what is reported if one of several processes is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import torch
from torch import nn

from aacp.data.devices import device_of
from aacp.errors import InvalidOption, MissingPackage, WorkerFailed
from aacp.pytorch.gpus import multiplies_bf16
from aacp.pytorch.internals import is_lost_connection, places_without_gradient
from aacp.train.recipe import Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import Precision as FabricPrecision

# Fabric logs its choice of device and precision. New processes do so before they call a function of this package.
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)

SINGLE: Final = "32-true"


def make_fabric(precision: Precision = "auto", device: torch.device | str | None = None, processes: int = 1) -> Fabric:
    """A fabric of one process or several, on the named device or else on the GPU if there is one."""
    place = device_of(device, processes)
    if precision == "auto":
        precision = "bf16-mixed" if multiplies_bf16(place) else SINGLE
    return _fabric_class()(
        accelerator=place.type,
        devices=[place.index] if place.index is not None and processes == 1 else processes,
        precision=precision,
        strategy="auto" if processes == 1 else "ddp_spawn",
    )


def single_precision() -> FabricPrecision:
    """Single precision, in the form in which a fabric has its precision."""
    from lightning_fabric.plugins.precision import Precision as SinglePrecision

    return SinglePrecision()


def _fabric_class() -> type[Fabric]:
    """Lightning's class, imported here only: everything but training works without the package."""
    try:
        from lightning_fabric import Fabric
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "Training needs lightning-fabric, which is not installed. Install it with pip install 'aacp[train]'."
        ) from error
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # the import has reset it
    return Fabric


def chosen_fabric(fabric: Fabric | None, precision: Precision, device: torch.device | str | None) -> Fabric:
    """The user's fabric, or else a new one of one process."""
    if fabric is None:
        return make_fabric(precision, device)
    if device is not None:
        raise InvalidOption(f"The fabric is on {fabric.device}, and {device} would be ignored. Leave the device out.")
    return fabric


def half_type(fabric: Fabric) -> torch.dtype | None:
    """The type in which mixed precision multiplies; None if the fabric does not use mixed precision."""
    with fabric.autocast():
        device = fabric.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def loss_scaler(fabric: Fabric) -> torch.amp.GradScaler | None:
    """The loss scaling of a fabric, which mixed precision in float16 needs; None in other precisions."""
    found: torch.amp.GradScaler | None = getattr(fabric.strategy.precision, "scaler", None)
    return found


@contextmanager
def collective_errors(fabric: Fabric, folder: str | os.PathLike[str] | None, model: nn.Module) -> Iterator[None]:
    """Turn a lost connection between processes into `WorkerFailed`, and name parameters that a step does not use."""
    try:
        yield
    except RuntimeError as error:
        unused = places_without_gradient(error)
        if unused:
            names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
            listed = ", ".join(names[place] for place in unused)
            raise InvalidOption(
                f"A step of training does not use {listed}, but processes wait for the gradients of all parameters. "
                "Call requires_grad_(False) on these, train in one process, or give a fabric with "
                "DDPStrategy(find_unused_parameters=True)."
            ) from error
        if fabric.world_size == 1 or not is_lost_connection(error):
            raise
        raise WorkerFailed(lost_message(f"Process {fabric.global_rank} lost the others", folder)) from error


def lost_message(what: str, folder: str | os.PathLike[str] | None) -> str:
    """The text of a `WorkerFailed`: what happened, and how to resume."""
    if folder is None:
        return f"{what}. Nothing was saved, because the run has no folder; start it again with one."
    return f"{what}. Start the same command again: it resumes from the last finished epoch in {folder}."
