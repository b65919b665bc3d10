"""Reads the results of a device, compares them with the manifest of the timed files, and makes a latency table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from aacp.disk.reading import read_json, sha256_of
from aacp.disk.records import WrongValue, read_value
from aacp.errors import DamagedFile, InconclusiveMeasurement, RunMismatch
from aacp.latency.devices.files import (
    CHECK,
    MANIFEST,
    RESULTS,
    TABLE,
    Manifest,
    NetworkOfTable,
    Results,
    TableManifest,
)
from aacp.latency.pieces import MeasurementConditions, TimedStructure
from aacp.latency.table import LatencyTable
from aacp.latency.timers import agreed_seconds, noise_of

AnyData = TypeVar("AnyData")
AnyManifest = TypeVar("AnyManifest", bound=Manifest)

MAX_BYTES = 1 << 26  # 64 MiB: the largest results.json or manifest.json that is read
# A sample must take this many ticks of the device's clock. Its length is then known to about 2 %, and measurements on
# quiet machines are not more accurate than that.
MIN_TICKS = 50
RUN_AGAIN = "Run runner.py on the device again, with the whole folder."
COPY_AGAIN = f"Copy {RESULTS} from the device again, or run runner.py there."
# What to do if the manifest cannot be read, for each kind of folder.
MANIFEST_REMEDIES = {
    TABLE: f"Put {RESULTS} into the folder that was exported and timed: its {MANIFEST} describes the networks.",
    CHECK: "Repeat the command of the run, which writes the folder again.",
}
# The command that reads the results of each kind of folder.
READERS = {TABLE: "aacp measure --from FILE", CHECK: "aacp check RUN --from FILE"}


@dataclass(frozen=True)
class DeviceResults(Generic[AnyManifest]):
    """The times of a folder's networks on a device.

    Args:
        manifest: what the folder holds, as `export_networks` or `write_check` describes it.
        results: the content of results.json; `read` compares it with the manifest.
    """

    manifest: AnyManifest
    results: Results

    @classmethod
    def read(
        cls, file: str | os.PathLike[str], manifest_file: Path, manifest_type: type[AnyManifest]
    ) -> DeviceResults[AnyManifest]:
        """Read results.json and its manifest; reject results that are incomplete or of other files.

        Args:
            file: results.json.
            manifest_file: the manifest of the folder that was timed.
            manifest_type: the class of that manifest.
        """
        path = Path(file)
        kind = TABLE if manifest_type is TableManifest else CHECK
        results = read_results(path, kind)
        found = cls(read_checked(manifest_file, manifest_type, MANIFEST_REMEDIES[kind]), results)
        if results.manifest != sha256_of(manifest_file):
            raise RunMismatch(f"{path} belongs to another {MANIFEST} than {manifest_file}. {MANIFEST_REMEDIES[kind]}")
        found._require_same_networks(path)
        for network in found.manifest.networks:
            found._require_fine_clock(network.file)
        return found

    @property
    def conditions(self) -> MeasurementConditions:
        """The conditions on the device, with its own version of the runtime."""
        return MeasurementConditions(
            runtime=self.manifest.runtime,
            version=self.results.version,
            device=self.manifest.device,
            precision=self.manifest.precision,
            batch=self.manifest.batch,
            threads=self.manifest.threads,
            machine=self.results.machine,
        )

    def turns(self, file: str) -> NDArray[np.float64]:
        """Return the seconds of the unpruned network and of a file, one turn per row."""
        return np.array(self.results.networks[file].turns, dtype=np.float64)

    def _require_same_networks(self, path: Path) -> None:
        """Reject the results of another runtime or other files, and results without all networks of the manifest."""
        if self.results.runtime != self.manifest.runtime:
            raise RunMismatch(
                f"{path} is of the runtime {self.results.runtime!r}, but the files are for {self.manifest.runtime!r}. "
                f"{RUN_AGAIN}"
            )
        timed = self.results.networks
        missing = [network.file for network in self.manifest.networks if network.file not in timed]
        if missing:
            raise RunMismatch(
                f"{path} is incomplete: {len(missing)} of {len(self.manifest.networks)} networks were not timed, "
                f"{missing[0]} for example. {RUN_AGAIN}"
            )
        for network in self.manifest.networks:
            if timed[network.file].sha256 != network.sha256:
                raise RunMismatch(f"{path} holds times of another {network.file}. {RUN_AGAIN}")

    def _require_fine_clock(self, file: str) -> None:
        """Reject times of a file that are too short for the clock of the device."""
        turns = self.turns(file)
        samples = np.median(turns, axis=0) * np.array(self.results.networks[file].repeats)
        resolution = self.results.clock_resolution
        if samples.min() < MIN_TICKS * resolution or not turns.all():  # a time of 0 cannot be compared with another
            raise InconclusiveMeasurement(
                f"The clock of the device steps by {resolution:.3g} s, but a sample of {file} took {samples.min():.3g} "
                f"s, less than {MIN_TICKS} steps. Use a clock with a finer resolution, or a larger batch."
            )


def table_from_results(file: str | os.PathLike[str], *, accept_noise: bool = False) -> LatencyTable:
    """Make a latency table from the results of a device; a table that cannot decide anything is rejected.

    Args:
        file: results.json with manifest.json beside it, or the folder that holds both.
        accept_noise: make a table even if it cannot decide anything.
    """
    path = results_file(file)
    found = DeviceResults.read(path, path.parent / MANIFEST, TableManifest)
    manifest = found.manifest
    if all(network.held_out for network in manifest.networks):
        raise DamagedFile(f"{path.parent / MANIFEST} has no networks to fit a table to. {MANIFEST_REMEDIES[TABLE]}")
    timed = [(network.held_out, _timed(network, found.turns(network.file))) for network in manifest.networks]
    table = LatencyTable(
        model=manifest.model,
        conditions=found.conditions,
        names=manifest.names,
        choices=manifest.choices,
        pieces=manifest.pieces,
        measured=tuple(each for is_held_out, each in timed if not is_held_out),
        held_out=tuple(each for is_held_out, each in timed if is_held_out),
        accepts_noise=accept_noise,
        elsewhere=True,
    )
    try:
        table.require_predictions()
    except ValueError as error:
        raise DamagedFile(f"{file} makes no latency table: {error}. {RUN_AGAIN}") from None
    table.require_decisive()
    return table


def results_file(given: str | os.PathLike[str]) -> Path:
    """Return the path of results.json, given this path or that of its folder."""
    path = Path(given)
    return path / RESULTS if path.is_dir() else path


def read_results(path: Path, kind: str) -> Results:
    """Read results.json alone, without its manifest; reject the results of a folder of the other kind."""
    results = read_checked(path, Results, COPY_AGAIN)
    if results.kind != kind:
        other = "checks one network" if kind == TABLE else "times the networks of a latency table"
        raise RunMismatch(f"{path} holds the results of a folder that {other}. Read them with {READERS[results.kind]}.")
    return results


def read_checked(path: Path, data_type: type[AnyData], remedy: str) -> AnyData:
    """Read results.json or a manifest as a dataclass; `remedy` says what to do if that is not possible."""
    data = read_json(path, remedy, MAX_BYTES)
    try:
        found: AnyData = read_value(data_type, data)
    except WrongValue as error:
        raise DamagedFile(f"{path} is damaged: {error}. {remedy}") from None
    return found


def _timed(network: NetworkOfTable, turns: NDArray[np.float64]) -> TimedStructure:
    """Return the measurement of a structure, whose time is divided among the pieces in proportion to their MACs."""
    whole, reference = agreed_seconds(turns[:, 1], turns[:, 0])
    return TimedStructure(
        structure=network.structure,
        whole=float(whole),
        reference=reference,
        pieces=tuple((whole * np.array(network.shares)).tolist()),
        reference_pieces=reference,
        noise=noise_of(turns.tolist()),
    )
