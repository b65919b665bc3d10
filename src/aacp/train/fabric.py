"""Devices: the engine a run is on, and what happens when one of several processes is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric

from aacp.data.devices import device_of
from aacp.errors import WorkerFailed
from aacp.train.recipe import Precision


def make_fabric(precision: Precision = "auto", device: torch.device | str | None = None, processes: int = 1) -> Fabric:
    """An engine of one process or several; the GPU if there is one, unless a device is named."""
    place = device_of(device, processes)
    if precision == "auto":
        precision = "bf16-mixed" if place.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces what we asked for
    devices = [place.index] if place.index is not None and processes == 1 else processes
    return Fabric(
        accelerator=place.type,
        devices=devices,
        precision=precision,
        strategy="auto" if processes == 1 else "ddp_spawn",
    )


@contextmanager
def collective_errors(fabric: Fabric, folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """A lost connection between processes, told as such."""
    try:
        yield
    except RuntimeError as error:
        lost = any(sign in str(error) for sign in ("gloo", "Gloo", "NCCL", "Connection closed", "Connection reset"))
        if fabric.world_size == 1 or not lost:
            raise
        raise WorkerFailed(lost_message(f"Process {fabric.global_rank} lost the others", folder)) from error


def lost_message(what: str, folder: str | os.PathLike[str] | None) -> str:
    if folder is None:
        return f"{what}. Nothing was saved, since the run has no folder; start again with one."
    return f"{what}. Start the same command again: it goes on from the last finished epoch in {folder}."
