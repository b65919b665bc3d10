"""export_onnx: a network as an ONNX file, compared with torch before the file appears."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aacp.artefact.header import Artefact, artefact_path
from aacp.artefact.onnx_session import INSTALL, open_session, session_inputs
from aacp.artefact.storage import load
from aacp.disk.failures import writing_errors
from aacp.disk.writing import move_file, temporary_folder
from aacp.errors import ExportFailed, InvalidOption, first_line
from aacp.graph.examples import FlatNetwork, batch_of, from_plain, tensors_in, with_batch
from aacp.modules import copy_module, positional, require_network
from aacp.runs.folder import RunFolder
from aacp.torch_internals import pytree
from aacp.values import path_text, whole_number
from aacp.zoo.imports import require_package

OPSET = 18  # the oldest opset that torch's exporter writes, which most runtimes can read
MAX_BATCH = 1_000_000  # inputs in the only batch size of a file
CHECKED_BATCHES = (1, 2, 5)  # batch sizes on which an export with a free batch size is compared with torch
# The largest difference from torch that is accepted, relative to the largest value of an output, by precision.
TOLERANCE = {torch.float16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-7}
SINGLE_FILE_BYTES = 2**31 - 2**24  # protocol buffers are limited to 2 GB; larger weights go to a second file


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file, and the largest difference of its outputs from torch's."""

    path: Path
    opset: int
    file_bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic_batch: bool
    checked_batches: tuple[int, ...]  # empty if it was not compared
    largest_difference: float | None  # None if it was not compared
    largest_output: float | None  # the largest output, for comparison with the difference

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    def __str__(self) -> str:
        batch = "any batch size" if self.dynamic_batch else "one batch size"
        checked = "not compared with torch"
        if self.largest_difference is not None:
            sizes = ", ".join(map(str, self.checked_batches))
            checked = f"at most {self.largest_difference:.2g} away from torch on batches of {sizes}"
        return f"{self.path}: {self.file_bytes:,} bytes, opset {self.opset}, {batch}, {checked}"


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Any,
    *,
    opset: int = OPSET,
    dynamic_batch: bool = True,
    check: bool = True,
) -> OnnxFile:
    """Write a network as ONNX; by default for any batch size, and compared with torch.

    A file whose outputs differ by more than `TOLERANCE` of their largest value is an error, and is not written.

    Args:
        model: the network, which is not changed.
        path: the file to write.
        example: one input, a tuple of several, or a dictionary of them by name. The batch is the first dimension of
            every tensor whose first dimension has the size of the first tensor's.
        opset: the version of the ONNX operators.
        dynamic_batch: whether the file accepts any batch size; otherwise only that of the example.
        check: whether to compare the outputs in ONNX Runtime with those of torch.
    """
    require_network(model)
    for package in ("onnx", "onnxscript", *(("onnxruntime",) if check else ())):
        require_package(package, INSTALL)
    _require_opset(opset)
    arguments = pytree.tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf, example)
    arguments = positional(model, arguments)
    if dynamic_batch and batch_of(arguments) < 2:
        arguments = with_batch(arguments, 2)  # torch.export would treat a size of one as a constant
    flat = FlatNetwork(copy_module(model).cpu().eval(), arguments)
    program = _converted(flat, arguments, opset, dynamic_batch)
    path = Path(path_text("path", path))
    with temporary_folder(path) as folder:
        draft = folder / path.name
        with writing_errors(path):
            program.save(str(draft), external_data=_bytes(flat) > SINGLE_FILE_BYTES)
        batches = CHECKED_BATCHES if dynamic_batch else (batch_of(arguments),)
        found = _compared(flat, arguments, draft, batches) if check else (None, None)
        size = _move_all(folder, path.parent)
    return OnnxFile(path, opset, size, flat.inputs, flat.outputs, dynamic_batch, batches if check else (), *found)


def export_artefact(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    model: str | None = None,
    shape: Sequence[int] | None = None,
    opset: int = OPSET,
    batch: int | None = None,
    trust: bool = False,
) -> OnnxFile:
    """Write the pruned network of a file, or of a run folder, as ONNX.

    Args:
        path: a file that `save` wrote, or the folder of a run.
        out: the file to write; by default beside the first, with the ending `.onnx`.
        model: the name of the original network; by default the one in the file.
        shape: the shape of an input; by default that of the example in the file.
        opset: the version of the ONNX operators.
        batch: the only batch size that the file accepts; by default any.
        trust: whether code that the file names may be imported, see `load`.
    """
    if batch is not None:
        batch = whole_number("batch", batch, 1, MAX_BATCH)
    path = artefact_path(path)
    network = load(path, into=model, trust=trust)
    example = from_plain(Artefact.read(path).example)
    if shape is not None or example is None:
        from aacp.zoo.models import example_input

        example = example_input(network, None if shape is None else tuple(shape), batch)
    if batch is not None:
        example = with_batch(example, batch)
    target = Path(out or path.with_suffix(".onnx"))
    exported = export_onnx(network, target, example, opset=opset, dynamic_batch=batch is None)
    if target.parent == path.parent:  # a file of the training, which its manifest may list
        RunFolder(target.parent).listing.add(target.name, f"{target.name}.data")
    return exported


def _converted(flat: FlatNetwork, arguments: tuple[Any, ...], opset: int, dynamic_batch: bool) -> Any:
    """Convert the network, and remove the notes on source files from its operators."""
    tensors = tensors_in(arguments)
    batch = batch_of(arguments)
    free = [{0: torch.export.Dim("batch")} if t.dim() and t.shape[0] == batch else None for t in tensors]
    shapes = (tuple(free),) if dynamic_batch else None
    with warnings.catch_warnings(), _silent("torch.onnx"), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(flat, tensors, dynamic_shapes=shapes, strict=False)
            program: Any = torch.onnx.export(
                exported,
                dynamo=True,
                opset_version=opset,
                verbose=False,
                input_names=flat.inputs,
                output_names=flat.outputs,
                dynamic_shapes=shapes,  # for the name: without it the dimension `batch` would be called s95
            )
        except Exception as error:  # whatever the network's code or the exporters raise
            hint = "A network whose code depends on the batch size needs dynamic_batch=False." if dynamic_batch else ""
            raise ExportFailed(
                f"{type(flat.network).__name__} cannot be converted to ONNX: {first_line(_root(error))}. "
                f"{hint or 'Replace that part of the network, or try another opset.'}"
            ) from error
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    if program.model.opset_imports[""] != opset:
        raise ExportFailed(
            f"Opset {opset} was requested, but {type(flat.network).__name__} needs operators of opset "
            f"{program.model.opset_imports['']}. Request that one."
        )
    return program


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Silence the warnings of a logger: the exporter warns about every optional package that is not installed."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _compared(flat: FlatNetwork, arguments: tuple[Any, ...], path: Path, batches: Sequence[int]) -> tuple[float, float]:
    """Return the largest difference between ONNX Runtime and torch, and the largest output.

    A difference above the tolerance is an error.
    """
    session = open_session(path, torch.get_num_threads())
    difference = largest = 0.0
    for batch in batches:
        inputs = _similar_inputs(with_batch(arguments, batch))
        with torch.no_grad():
            expected = flat(*tensors_in(inputs))
        for name, ours, theirs in zip(flat.outputs, expected, _run(session, inputs, path, batch), strict=True):
            far, size = _difference(ours, theirs)
            allowed = TOLERANCE.get(ours.dtype, 0.0) * size
            if not far <= allowed:
                raise ExportFailed(
                    f"{name} of {path.name} is {far:.3g} away from torch on a batch of {batch}, more than the "
                    f"{allowed:.3g} that rounding explains. Do not use this export; try another opset."
                )
            difference, largest = max(difference, far), max(largest, size)
    return difference, largest


def _run(session: Any, inputs: tuple[Any, ...], path: Path, batch: int) -> list[Tensor]:
    try:
        return [torch.from_numpy(value) for value in session.run(None, session_inputs(session, inputs))]
    except Exception as error:  # ONNX Runtime has a dozen exception classes of its own
        raise ExportFailed(
            f"ONNX Runtime cannot run {path.name} on a batch of {batch}: {first_line(error)}. "
            "Export with dynamic_batch=False, or with check=False for another runtime."
        ) from error


def _difference(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """Return the largest difference between two outputs, and the largest finite value of the first."""
    if ours.shape != theirs.shape:
        return float("inf"), 0.0
    if not ours.numel():
        return 0.0, 0.0
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())  # infinities, too
    far = torch.where(same, 0.0, (ours.double() - theirs.double()).abs())
    finite = ours[ours.isfinite()].double().abs()
    return float(far.max()), float(finite.max()) if finite.numel() else 0.0


def _similar_inputs(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Draw new inputs: floating-point tensors with the mean and deviation of the example's; others are kept."""
    generator = torch.Generator().manual_seed(0)

    def drawn(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or leaf.numel() < 2:
            return leaf
        noise = torch.randn(leaf.shape, generator=generator)
        return (leaf.float().mean() + leaf.float().std() * noise).to(leaf.dtype)

    drawn_all: tuple[Any, ...] = pytree.tree_map(drawn, arguments)
    return drawn_all


def _bytes(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in model.state_dict().values() if isinstance(tensor, Tensor))


def _move_all(source: Path, target: Path) -> int:
    """Move finished files to a folder, the `.onnx` file last since it refers to the other; return their bytes."""
    files = sorted(source.iterdir(), key=lambda file: file.suffix == ".onnx")
    size = sum(file.stat().st_size for file in files)
    for file in files:
        move_file(file, target / file.name)
    return size


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _require_opset(opset: int) -> None:
    newest = require_package("onnx", INSTALL).defs.onnx_opset_version()
    if not OPSET <= opset <= newest:
        raise InvalidOption(f"Opset {opset} cannot be written here. Choose one from {OPSET} to {newest}.")
