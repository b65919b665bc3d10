"""The files of an export, as its record describes them."""

from __future__ import annotations

from pathlib import Path

from aacp.runs.exports import ExportRecord
from aacp.runs.manifest import Manifest, usable_manifest

PRUNED_ONNX = "pruned.onnx"
ORIGINAL_ONNX = "original.onnx"
# The ending of the second file, which holds the weights, by that of the first. ONNX has one only for large weights.
WEIGHTS_BESIDE = {".onnx": ".onnx.data", ".xml": ".bin", ".param": ".bin"}


def missing_export(folder: Path, record: ExportRecord) -> str:
    """The first exported file that is not there; empty if all are.

    A file that the manifest does not list must have its recorded size.
    """
    sizes = {ORIGINAL_ONNX: record.before_bytes, PRUNED_ONNX: record.after_bytes}
    sizes |= {other.file: other.after_bytes for other in record.others}
    manifest = usable_manifest(folder) or Manifest()
    lost = [
        name
        for name, size in sizes.items()
        if not (folder / name).is_file() or (name not in manifest.entries and _bytes_of(folder / name) != size)
    ]
    return lost[0] if lost else ""


def files_of(path: Path) -> list[Path]:
    """The files of an exported network that are there: the one that the runtime opens, and one of weights."""
    files = [path]
    if path.suffix in WEIGHTS_BESIDE:
        files.append(path.with_suffix(WEIGHTS_BESIDE[path.suffix]))
    return [file for file in files if file.is_file()]


def _bytes_of(path: Path) -> int:
    """The size of an exported network, with that of the second file that holds its weights."""
    return sum(file.stat().st_size for file in files_of(path))
