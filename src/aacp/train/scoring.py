"""Batches to score a network on: kept if they fit, and read in every pass otherwise."""

from __future__ import annotations

from typing import Any

import torch

from aacp.data.batches import Batches
from aacp.data.scores import WatchedBatches


def scoring_batches(source: Any, device: torch.device, keep: bool = True) -> WatchedBatches:
    """Held-out or test data as batches on a device; data that is scored once need not be kept."""
    return WatchedBatches(Batches.of(source, device=device, keep=keep))
