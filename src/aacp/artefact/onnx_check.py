"""An ONNX file compared with torch: on several batch sizes and, where height and width are free, on other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aacp.artefact.onnx_session import open_session, session_inputs
from aacp.data.examples import tensors_in
from aacp.errors import ExportFailed, failing_as, first_line
from aacp.graph.examples import FlatNetwork, with_batch, with_more
from aacp.pytorch.internals import pytree

# The largest difference from torch that is accepted, relative to the largest value of an output, by precision.
TOLERANCE = {torch.bfloat16: 8e-2, torch.float16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-7}
# The steps by which height and width grow until the file agrees with torch: detectors need multiples of 32 or 64.
SIZE_STEPS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Agreement:
    """How far an ONNX file is away from torch, and where it was compared."""

    largest_difference: float
    largest_output: float  # for comparison with the difference
    size_step: int | None = None  # height and width may differ from the example's by multiples of this


def compare(
    flat: FlatNetwork, arguments: tuple[Any, ...], path: Path, batches: Sequence[int], free: Sequence[int]
) -> Agreement:
    """Compare a file with torch in ONNX Runtime; a difference above the tolerance is an error.

    Args:
        flat: the network that was exported.
        arguments: the example.
        path: the file.
        batches: the batch sizes on which to compare.
        free: the dimensions of height and width, if other sizes are accepted.
    """
    comparison = _Comparison(flat, path)
    for batch in batches:
        comparison.on(with_batch(arguments, batch), f"a batch of {batch}")
    step = _size_step(comparison, arguments, free) if free else None
    return Agreement(comparison.difference, comparison.largest, step)


class _Comparison:
    """The largest difference between a file and torch on the inputs that were compared so far."""

    def __init__(self, flat: FlatNetwork, path: Path) -> None:
        self.flat = flat
        self.path = path
        self.session = open_session(path, torch.get_num_threads())
        self.difference = 0.0
        self.largest = 0.0

    def on(self, arguments: tuple[Any, ...], where: str) -> None:
        """Compare on inputs like these; `where` describes them in an error."""
        inputs = similar_inputs(arguments)
        with torch.no_grad():
            expected = self.flat(*tensors_in(inputs))
        for name, ours, theirs in zip(self.flat.outputs, expected, self._run(inputs, where), strict=True):
            far, size = difference(ours, theirs)
            allowed = _explained(ours, size)
            if not far <= allowed:
                self._require_repeatable(inputs, expected)
                raise ExportFailed(
                    f"{name} of {self.path.name} is {far:.3g} away from torch on {where}, more than the "
                    f"{allowed:.3g} that rounding explains. Do not use this export; try another opset."
                )
            self.difference = max(self.difference, far)
            self.largest = max(self.largest, size)

    def _require_repeatable(self, inputs: tuple[Any, ...], expected: Sequence[Tensor]) -> None:
        """Reject a network that draws random numbers, with which no file can agree."""
        with torch.no_grad():
            again = self.flat(*tensors_in(inputs))
        for ours, repeated in zip(expected, again, strict=True):
            far, size = difference(ours, repeated)
            if far > _explained(ours, size):
                raise ExportFailed(
                    f"The outputs of the network differ from call to call, so {self.path.name} cannot be compared with "
                    "it. Let it draw no random numbers in evaluation mode."
                )

    def _run(self, inputs: tuple[Any, ...], where: str) -> list[Tensor]:
        what = f"ONNX Runtime cannot run {self.path.name} on {where}"
        remedy = "Export with dynamic_batch=False, or with check=False for another runtime."
        with failing_as(ExportFailed, what, remedy):
            return [torch.from_numpy(value) for value in self.session.run(None, session_inputs(self.session, inputs))]


def _explained(output: Tensor, size: float) -> float:
    """The largest difference that rounding explains in an output whose largest value is `size`."""
    return TOLERANCE.get(output.dtype, 0.0) * size


def _size_step(comparison: _Comparison, arguments: tuple[Any, ...], free: Sequence[int]) -> int:
    """Return the smallest step of height and width at which the file agrees with torch."""
    failures: list[Exception] = []
    for step in SIZE_STEPS:
        try:
            for growth in _growths(step, free):
                comparison.on(with_more(arguments, growth), f"height and width larger by {tuple(growth.values())}")
        except Exception as error:  # the file differs there, or the network itself rejects this size
            failures.append(error)
        else:
            return step
    raise ExportFailed(
        "The file agrees with torch at none of the larger sizes that were tried: "
        f"{first_line(failures[0]).removesuffix('.')}."
    ) from failures[0]


def _growths(step: int, free: Sequence[int]) -> list[Mapping[int, int]]:
    """Two larger sizes: each dimension grows by another multiple of the step, so that none can stand for another."""
    rising = {dim: step * (place + 1) for place, dim in enumerate(free)}
    falling = {dim: step * (len(free) - place + 1) for place, dim in enumerate(free)}
    return [rising, falling]


def difference(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """Return the largest difference between two outputs, and the largest finite value of the first."""
    if ours.shape != theirs.shape:
        return float("inf"), 0.0
    if not ours.numel():
        return 0.0, 0.0
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())  # infinities, too
    far = torch.where(same, 0.0, (ours.double() - theirs.double()).abs())
    finite = ours[ours.isfinite()].double().abs()
    return float(far.max()), float(finite.max()) if finite.numel() else 0.0


def similar_inputs(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Draw new inputs: floating-point tensors with the mean and deviation of the example's; others are kept."""
    generator = torch.Generator().manual_seed(0)

    def drawn(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or leaf.numel() < 2:
            return leaf
        noise = torch.randn(leaf.shape, generator=generator)
        return (leaf.float().mean() + leaf.float().std() * noise).to(leaf.dtype)

    drawn_all: tuple[Any, ...] = pytree.tree_map(drawn, arguments)
    return drawn_all
