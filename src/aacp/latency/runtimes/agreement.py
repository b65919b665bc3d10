"""Agreement: how far the outputs of a runtime are from those of torch, and the error if they are too far."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from aacp.artefact.onnx_check import TOLERANCE, difference
from aacp.errors import ExportFailed


def largest_difference(
    expected: Sequence[Tensor],
    found: Sequence[Tensor],
    *,
    names: Sequence[str],
    network: str,
    title: str,
    tolerance: float | None = None,
) -> float:
    """Return the largest difference of an output from torch's; ExportFailed above the tolerance.

    Args:
        expected: the outputs of torch.
        found: the outputs of the runtime for the same inputs.
        names: the name of each output.
        network: what was run: the name of a file or a module.
        title: the name of the runtime.
        tolerance: the largest accepted difference, relative to the largest value of an output; None is that of the
            precision of each output.
    """
    largest = 0.0
    for name, ours, theirs in zip(names, expected, found, strict=True):
        far, size = difference(ours, theirs)
        allowed = size * (TOLERANCE.get(ours.dtype, 0.0) if tolerance is None else tolerance)
        if not far <= allowed:
            raise ExportFailed(
                f"{name} of {network} is {far:.3g} away from torch, more than the {allowed:.3g} that rounding "
                f"explains. Do not deploy this network in {title}; use another runtime."
            )
        largest = max(largest, far)
    return largest
