"""Everything that only makes aacp faster. The library works, more slowly, without this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aacp.estimate.execution import Execution
    from aacp.estimate.inheritance import Inheritance


def execution_for(inheritance: Inheritance, is_requested: bool) -> Execution | None:
    """Masked execution where it is the faster way to score structures, or where it is requested; None elsewhere."""
    from aacp.accelerate.masked.execution import Masked

    is_needed = inheritance.graph.form == "exported"  # the exported form cannot be recalibrated once it is cut
    is_faster = inheritance.device.type == "cuda"
    return Masked(inheritance) if is_requested or is_needed or is_faster else None
