"""export_onnx: a network as an ONNX file, compared with torch before the file appears."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from aacp.artefact.header import Artefact, artefact_path
from aacp.artefact.onnx_check import Agreement, compare
from aacp.artefact.onnx_program import FreeSizes, named_sizes, needs_second_file, write_program
from aacp.artefact.onnx_session import INSTALL
from aacp.artefact.onnx_traced import write_traced
from aacp.artefact.storage import load
from aacp.disk.failures import writing_errors
from aacp.disk.writing import move_files, temporary_folder
from aacp.errors import ExportFailed, InvalidOption
from aacp.graph.examples import FlatNetwork, batch_of, from_plain, with_batch
from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import copy_module, positional, require_network
from aacp.runs.files import EXPORT, stage_of
from aacp.runs.folder import RunFolder
from aacp.user.values import path_text, whole_number
from aacp.zoo.imports import require_package

OPSET = 18  # the oldest opset that torch's exporter writes, which most runtimes can read
MAX_BATCH = 1_000_000  # inputs in the only batch size of a file
CHECKED_BATCHES = (1, 2, 5)  # batch sizes on which an export with a free batch size is compared with torch


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file, and the largest difference of its outputs from torch's."""

    path: Path
    opset: int
    file_bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic_batch: bool
    dynamic_size: bool  # whether other heights and widths are accepted
    checked_batches: tuple[int, ...]  # empty if it was not compared
    largest_difference: float | None  # None if it was not compared
    largest_output: float | None  # the largest output, for comparison with the difference
    size_step: int | None  # heights and widths may differ from the example's by multiples of this; None if not compared
    notes: tuple[str, ...] = ()  # the dimensions that were to be free but that the network fixes

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    def __str__(self) -> str:
        sizes = "any batch size" if self.dynamic_batch else "one batch size"
        if self.dynamic_size:
            sizes += ", other heights and widths" + (f" in steps of {self.size_step}" if self.size_step else "")
        checked = "not compared with torch"
        if self.largest_difference is not None:
            batches = ", ".join(map(str, self.checked_batches))
            checked = f"at most {self.largest_difference:.2g} away from torch on batches of {batches}"
        return "\n".join(
            [f"{self.path}: {self.file_bytes:,} bytes, opset {self.opset}, {sizes}, {checked}", *self.notes]
        )


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Any,
    *,
    opset: int = OPSET,
    dynamic_batch: bool = True,
    dynamic_size: bool = False,
    check: bool = True,
) -> OnnxFile:
    """Write a network as ONNX; by default for any batch size, and compared with torch.

    A file whose outputs differ by more than `TOLERANCE` of their largest value is an error, and is not written.
    A size that was to be free but that the network's code fixes is that of the example, and the result has a note.

    Args:
        model: the network, which is not changed.
        path: the file to write.
        example: one input, a tuple of several, or a dictionary of them by name. The batch is the first dimension of
            every tensor whose first dimension has the size of the first tensor's.
        opset: the version of the ONNX operators.
        dynamic_batch: whether the file accepts any batch size; otherwise only that of the example.
        dynamic_size: whether the file accepts other heights and widths (the third and later dimensions of the inputs).
        check: whether to compare the outputs in ONNX Runtime with those of torch.
    """
    require_network(model)
    for package in ("onnx", "onnxscript", *(("onnxruntime",) if check else ())):
        require_package(package, INSTALL)
    _require_opset(opset)
    arguments = pytree.tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf, example)
    arguments = positional(model, arguments)
    flat = FlatNetwork(copy_module(model).cpu().eval(), arguments)
    path = Path(path_text("path", path))
    with temporary_folder(path) as folder:
        draft = _Draft(flat, arguments, folder / path.name, opset, dynamic_batch, check)
        with writing_errors(path):
            free, found = draft.write_for_any_size() if dynamic_size else draft.write(dynamic_size=False)
        size = move_files(folder, path)
    return OnnxFile(
        path=path,
        opset=opset,
        file_bytes=size,
        inputs=flat.inputs,
        outputs=flat.outputs,
        dynamic_batch=free.dynamic_batch,
        dynamic_size=bool(free.free_sizes),
        checked_batches=draft.batches(free) if found else (),
        largest_difference=found.largest_difference if found else None,
        largest_output=found.largest_output if found else None,
        size_step=found.size_step if found else None,
        notes=free.notes,
    )


@dataclass(frozen=True)
class _Draft:
    """A file that is written and compared before it gets its place; the fields are arguments of `export_onnx`."""

    flat: FlatNetwork
    arguments: tuple[Any, ...]
    path: Path
    opset: int
    dynamic_batch: bool
    check: bool

    def write(self, *, dynamic_size: bool) -> tuple[FreeSizes, Agreement | None]:
        """Write the file; the agreement with torch is None if it is not compared."""
        if self.check and not dynamic_size and not needs_second_file(self.flat):
            with suppress(ExportFailed):
                return self._write_traced()
        free = write_program(self.flat, self.arguments, self.path, self.opset, self.dynamic_batch, dynamic_size)
        return free, self._compare(free) if self.check else None

    def _write_traced(self) -> tuple[FreeSizes, Agreement]:
        """Write the file by the faster exporter, whose result counts only if it agrees with torch."""
        write_traced(
            self.flat, self.arguments, self.path, self.opset, dynamic_batch=self.dynamic_batch, strict=True
        )  # fmt: skip
        free = FreeSizes(self.dynamic_batch)
        return free, self._compare(free)

    def write_for_any_size(self) -> tuple[FreeSizes, Agreement | None]:
        """Write the file for any height and width or, if that fails, for those of the example, with a note."""
        try:
            return self.write(dynamic_size=True)
        except ExportFailed as error:
            free, found = self.write(dynamic_size=False)
            sizes = ", ".join(f"{name} {size}" for name, size in named_sizes(self.arguments))
            note = f"The file accepts only the sizes of the example: {sizes}. {error}"
            return replace(free, notes=(*free.notes, note)), found

    def _compare(self, free: FreeSizes) -> Agreement:
        return compare(self.flat, self.arguments, self.path, self.batches(free), free.free_sizes)

    def batches(self, free: FreeSizes) -> tuple[int, ...]:
        """The batch sizes on which the file is compared with torch."""
        return CHECKED_BATCHES if free.dynamic_batch else (batch_of(self.arguments),)


def export_artefact(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    model: str | None = None,
    shape: Sequence[int] | None = None,
    opset: int = OPSET,
    batch: int | None = None,
    dynamic_size: bool = False,
    trust: bool = False,
) -> OnnxFile:
    """Write the pruned network of a file, or of a run folder, as ONNX.

    Args:
        path: a file that `save` wrote, or the folder of a run.
        out: the file to write; by default beside the first, with the ending `.onnx`. Where a run has delivered a file
            of this name, one with other options has them in its name, such as `pruned-batch4.onnx`.
        model: the name of the original network; by default the one in the file.
        shape: the shape of an input; by default that of the example in the file.
        opset: the version of the ONNX operators.
        batch: the only batch size that the file accepts; by default any.
        dynamic_size: whether the file accepts other heights and widths.
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
    others = {
        f"batch{batch}": batch is not None,
        f"shape{'x'.join(map(str, shape or ()))}": shape is not None,
        f"opset{opset}": opset != OPSET,
        "any-size": dynamic_size,
    }
    suffix = "".join(f"-{name}" for name, is_given in others.items() if is_given)
    is_delivered = (path.parent / EXPORT).exists()  # with the default options; its check on a device refers to it
    target = Path(out or path.with_name(f"{path.stem}{suffix if is_delivered else ''}.onnx"))
    exported = export_onnx(
        network, target, example, opset=opset, dynamic_batch=batch is None, dynamic_size=dynamic_size
    )
    is_listed = stage_of(target.name) is not None  # if the folder is that of a training with a manifest
    if is_listed and os.path.samefile(target.parent, path.parent):
        RunFolder(target.parent).listing.add(target.name, f"{target.name}.data")
    return exported


def _require_opset(opset: int) -> None:
    newest = require_package("onnx", INSTALL).defs.onnx_opset_version()
    if not OPSET <= opset <= newest:
        raise InvalidOption(f"Opset {opset} cannot be written here. Choose one from {OPSET} to {newest}.")
