"""export_networks: a folder with the networks of a latency table as files, to be timed on another device."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.data.examples import moved, tensors_in
from aacp.disk.locking import locked
from aacp.disk.reading import read_bytes, sha256_of
from aacp.disk.writing import remove_leftovers, replace_file
from aacp.errors import InvalidOption
from aacp.graph.examples import with_batch
from aacp.graph.surgery import shrink
from aacp.latency.defaults import STRUCTURES
from aacp.latency.deployment import HERE, Deployment
from aacp.latency.devices import runner
from aacp.latency.devices.export_log import ExportLog, require_folder_of_export
from aacp.latency.devices.files import FORMAT, MANIFEST, TABLE, ListedNetwork, Manifest, NetworkOfTable, TableManifest
from aacp.latency.layers import describe_pieces, pieces_of_graph, timed_layers
from aacp.latency.measure import HELD_OUT, measurement_plan
from aacp.latency.runtimes.runtime import Runtime, shares_of_macs
from aacp.latency.runtimes.torch import timed_copy
from aacp.latency.timers import MeasurementProgress

RUNNER = "runner.py"
SHELL_RUNNER = "runner.sh"
CHECKSUMS = "SHA256SUMS"  # of all files of networks, for `sha256sum -c`, which runner.sh calls


def export_networks(
    model: nn.Module,
    graph: ChannelGraph,
    space: SearchSpace,
    where: Deployment = HERE,
    *,
    example: Any,
    folder: str | os.PathLike[str],
    structures: int = STRUCTURES,
    held_out: int = HELD_OUT,
    seed: int = 0,
) -> Path:
    """Write the structures that a latency table needs as files of a runtime, with a program that times them.

    Copy the folder to the device and run `python runner.py` there. `table_from_results` makes the table. If an export
    is stopped or a network cannot be converted, the same call continues with the networks that are not there yet.

    Args:
        model: the unpruned network, which is not changed.
        graph: its channel graph.
        space: the search space that the structures are drawn from.
        where: the runtime, the device, the batch and the threads that the networks are timed with.
        example: an input of the model.
        folder: a new folder, or that of an export with the same arguments.
        structures: how many structures the table is fitted to.
        held_out: how many more structures the table's error is computed on.
        seed: the seed of the random structures.

    Returns:
        The path of the manifest, which is written last.
    """
    runtime = where.resolved_runtime
    place = Path(folder)
    require_exportable(runtime)
    require_folder_of_export(place)
    batch = with_batch(moved(example, "cpu"), where.batch)
    layers, descriptions = describe_pieces(model, batch, graph)
    pieces = pieces_of_graph(graph, layers, descriptions)
    fitted, others = measurement_plan(space, structures, held_out, seed)
    chosen = [*fitted, *others]
    described: dict[str, Any] = {
        "format": FORMAT,
        "kind": TABLE,
        "model": graph.model,
        "runtime": runtime.name,
        "device": where.device,
        "precision": runtime.precision(model),
        "batch": where.batch,
        "threads": where.threads,
        "inputs": described_inputs(batch),
        "names": space.names,
        "choices": space.choices,
    }
    drawn = {"structures": len(fitted), "held_out": len(others), "counts": [list(structure) for structure in chosen]}
    request = {**described, "pieces": [asdict(piece) for piece in pieces], "version": runtime.version, **drawn}
    with locked(place):
        remove_leftovers(place)
        log = ExportLog(place, request)
        progress = MeasurementProgress("networks", len(chosen) + 1, len(log.complete))
        export = _Export(place, runtime, batch, log, progress)

        def export_structure(number: int, structure: Structure) -> NetworkOfTable:
            listed = export.write(f"structure-{number:03}", lambda: shrink(model, graph, structure, example=batch))
            return NetworkOfTable(
                **vars(listed),
                structure=tuple(structure),
                held_out=number >= len(fitted),
                shares=shares_of_macs(timed_layers(graph, layers, structure)),
            )

        original = export.write("original", lambda: model)
        networks = tuple(export_structure(number, structure) for number, structure in enumerate(chosen))
        return write_manifest(place, TableManifest(**described, pieces=pieces, original=original, networks=networks))


@dataclass(frozen=True, eq=False)
class _Export:
    """Writes networks as files of a runtime, each with the example `batch`, unless the log lists them."""

    folder: Path
    runtime: Runtime
    batch: Any
    log: ExportLog
    progress: MeasurementProgress

    def write(self, name: str, network: Callable[[], nn.Module]) -> ListedNetwork:
        """Write a network, which is built only if it is not there yet, and return it as a manifest lists it."""
        path = self.folder / f"{name}{self.runtime.suffix}"
        if name not in self.log.complete:
            self.runtime.export(timed_copy(network()), path, self.batch)
            self.log.add(name, self.folder.glob(f"{name}.*"))
            self.progress.step()
        return listed_network(path, [file for file in self.folder.glob(f"{name}.*") if file != path])


def listed_network(path: Path, beside: Iterable[Path]) -> ListedNetwork:
    """Return a network as a manifest lists it.

    Args:
        path: the file that the runtime opens.
        beside: further files of the network, such as a file of weights.
    """
    return ListedNetwork(path.name, sha256_of(path), {file.name: sha256_of(file) for file in sorted(beside)})


def write_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write the programs that time the networks of a folder, the checksums, and last of all the manifest."""
    programs = Path(runner.__file__).parent
    for name in (RUNNER, SHELL_RUNNER):
        replace_file(folder / name, read_bytes(programs / name))
    sums: dict[str, str] = {}
    for network in (manifest.original, *manifest.networks):
        sums |= network.checksums
    replace_file(folder / CHECKSUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode())
    replace_file(folder / MANIFEST, json.dumps(asdict(manifest), indent=1).encode())
    return folder / MANIFEST


def described_inputs(batch: Any) -> tuple[dict[str, Any], ...]:
    """Return the shapes and types of the tensors of a batch, in their order."""
    described = [(list(tensor.shape), str(tensor.dtype)) for tensor in tensors_in(batch)]
    return tuple({"shape": shape, "dtype": dtype.removeprefix("torch.")} for shape, dtype in described)


def require_exportable(runtime: Runtime) -> None:
    """Reject a runtime that is not installed, or that has no files."""
    runtime.require_installed()
    if runtime.suffix is None:
        raise InvalidOption(
            f"The runtime {runtime.name} has no files that could be timed elsewhere. Use onnxruntime, or another "
            "runtime with a file format."
        )
