"""The folder of a check: the original and the pruned network as files, which are timed on another device.

A search with the latency table of another device chooses its structure by predictions. `write_check` writes the files
that are timed on the device to find out whether the limit is met, and `read_check` reads the result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aacp.channels.structure import Structure
from aacp.cost.budget import Limit
from aacp.cost.kinds import LATENCY
from aacp.disk.reading import read_bytes, sha256_of
from aacp.disk.writing import remove_file, replace_file
from aacp.errors import DeviceMismatch, UnreadableFile
from aacp.latency.check import ORIGINAL, LatencyCheck
from aacp.latency.devices.exporting import described_inputs, listed_network, write_manifest
from aacp.latency.devices.files import (
    CHECK,
    FORMAT,
    MANIFEST,
    CheckManifest,
    ListedNetwork,
    PrunedNetwork,
    WrittenLimit,
)
from aacp.latency.devices.results import MANIFEST_REMEDIES, DeviceResults, read_checked
from aacp.latency.pieces import MeasurementConditions
from aacp.latency.timing import Timing

PRUNED = "pruned"  # the name of the pruned network among the two that are timed


@dataclass(frozen=True)
class DeviceMeasurement:
    """The result of a check: both networks timed in turns on the device."""

    checked: LatencyCheck
    limit: Limit
    conditions: MeasurementConditions
    turns: int


def write_check(
    folder: Path,
    original: Sequence[Path],
    pruned: Sequence[Path],
    *,
    model: str,
    structure: Structure,
    limit: Limit,
    conditions: MeasurementConditions,
    batch: Any,
) -> None:
    """Write the folder of a check.

    Args:
        folder: where to write; files of an earlier check there are replaced.
        original: the files of the unpruned network; the runtime opens the first.
        pruned: the files of the pruned network, likewise.
        model: the class of the network.
        structure: the structure of the pruned network.
        limit: the limit on its latency.
        conditions: the conditions of the latency table that the search used; the check must be made under them.
        batch: one batch of inputs.
    """
    remove_file(folder / MANIFEST)  # until the new one is written, there is no check
    manifest = CheckManifest(
        format=FORMAT,
        kind=CHECK,
        model=model,
        **asdict(conditions),
        inputs=described_inputs(batch),
        original=_copied(original, folder),
        networks=(PrunedNetwork(**vars(_copied(pruned, folder)), structure=tuple(structure)),),
        limit=WrittenLimit(limit.pruning_rate, limit.at_most),
    )
    write_manifest(folder, manifest)


def _copied(files: Sequence[Path], folder: Path) -> ListedNetwork:
    for file in files:
        replace_file(folder / file.name, read_bytes(file))
    return listed_network(folder / files[0].name, [folder / file.name for file in files[1:]])


def is_whole_check(folder: Path) -> bool:
    """Whether a folder holds a check with all its files as the manifest lists them."""
    try:
        manifest = read_checked(folder / MANIFEST, CheckManifest, MANIFEST_REMEDIES[CHECK])
        sums = {**manifest.original.checksums, **manifest.networks[0].checksums}
        return all(sha256_of(folder / name) == sums[name] for name in sums)
    except UnreadableFile:
        return False


def read_check(file: str | os.PathLike[str], folder: Path) -> DeviceMeasurement:
    """Read the results of a check; reject those of another folder, runtime, version, machine or clock.

    Args:
        file: results.json, wherever it lies.
        folder: the folder of the check, as it was written.
    """
    found = DeviceResults.read(file, folder / MANIFEST, CheckManifest)
    manifest = found.manifest
    for name, measured in asdict(found.conditions).items():
        expected = getattr(manifest, name)
        if measured != expected:
            raise DeviceMismatch(
                f"The latency table was measured with {name} {expected!r}, but {file} with {name} {measured!r}. Run "
                "the check where the table was measured, or measure a new table where it ran and prune with that."
            )
    network = manifest.networks[0]
    turns = found.turns(network.file)
    original = Timing(ORIGINAL, tuple(turns[:, 0].tolist()))
    pruned = Timing(PRUNED, tuple(turns[:, 1].tolist()))
    checked = LatencyCheck.of(Structure(network.structure), original, pruned)
    limit = Limit(LATENCY, manifest.limit.pruning_rate, manifest.limit.at_most)
    return DeviceMeasurement(checked, limit, found.conditions, len(turns))
