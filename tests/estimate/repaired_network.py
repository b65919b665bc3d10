"""The small network of these tests with repaired weights, and estimates of it."""

from __future__ import annotations

from typing import Any

import aacp
from estimate.small_network import CALIBRATION, IMAGES, LABELS, negative_loss, network


def repaired(graph: aacp.ChannelGraph, **options: Any) -> aacp.Inheritance:
    return aacp.Inheritance(network(), graph, CALIBRATION, reconstruction="repair", **options)


def estimated(inheritance: aacp.Inheritance, execution: Any = "sliced") -> aacp.PSAE:
    return aacp.PSAE(inheritance, (IMAGES, LABELS), score=negative_loss, execution=execution)
