"""results.json and manifest.json of a device, changed at random: one of our errors, and no table of half a file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import aacp
from aacp.cost.budget import Limit
from aacp.latency.devices.check_folder import read_check
from faults.fuzzing import any_bytes, changed_bytes, changed_json, few, read_or_reject
from faults.subjects import Net
from latency.simulator import FileSimulator

X = torch.zeros(1, 1, 8, 8)
TWO_SENTENCES = re.compile(r"[.)] +\S")
# A device may report any value in these fields: no reader can tell whether another was meant.
FREE = ("version", "machine", "clock_resolution")
FREE_OF_NETWORK = ("repeats", "turns")


def timed(manifest: Path) -> dict[str, Any]:
    """What a device with a time for each MAC writes about the networks of a manifest."""
    listed = json.loads(manifest.read_text())

    def seconds(network: dict[str, Any]) -> float:
        return 1e-4 + 1e-9 * int((manifest.parent / network["file"]).read_text())

    before = seconds(listed["original"])
    networks = {
        each["file"]: {"sha256": each["sha256"], "repeats": [9, 9], "turns": [[before, seconds(each)]] * 9}
        for each in listed["networks"]
    }
    return {
        "format": 1, "kind": listed["kind"], "manifest": hashlib.sha256(manifest.read_bytes()).hexdigest(),
        "runtime": listed["runtime"], "version": "1.0", "machine": "a board", "clock_resolution": 1e-9,
        "networks": networks,
    }  # fmt: skip


def written(folder: Path) -> Path:
    (folder / "results.json").write_text(json.dumps(timed(folder / "manifest.json")))
    return folder


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a latency table."""
    folder = tmp_path_factory.mktemp("fuzz") / "networks"
    model = Net().eval()
    graph = aacp.trace(model, X)
    where = aacp.Deployment(FileSimulator(), "npu", threads=1)
    space = aacp.SearchSpace(graph, 1 / 4)
    aacp.export_networks(model, graph, space, where, example=X, folder=folder, structures=8, held_out=5)
    return written(folder)


@pytest.fixture(scope="module")
def check(networks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a check, with two of the networks of a table."""
    folder = tmp_path_factory.mktemp("fuzz") / "check"
    folder.mkdir()
    known = json.loads((networks / "manifest.json").read_text())
    pruned = {name: known["networks"][1][name] for name in ("file", "sha256", "beside", "structure")}
    for each in (known["original"], pruned):
        (folder / each["file"]).write_bytes((networks / each["file"]).read_bytes())
    same = ("format", "model", "runtime", "device", "precision", "batch", "threads", "inputs", "original")
    limit = Limit("latency", pruning_rate=0.1)
    manifest = {
        **{name: known[name] for name in same}, "kind": "check", "networks": [pruned], "version": "1.0",
        "machine": "a board", "limit": {"pruning_rate": limit.pruning_rate, "at_most": limit.at_most},
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return written(folder)


def readers(networks: Path, check: Path) -> list[tuple[Path, Callable[[Path], object]]]:
    """The folders of both kinds, each with what reads its results."""
    return [(networks, aacp.table_from_results), (check, lambda file: read_check(file, file.parent))]


def fixed(results: Any) -> Any:
    """Results without the values that a device is free to report; None if they have another form."""
    try:
        parts = {
            name: {key: value for key, value in each.items() if key not in FREE_OF_NETWORK}
            for name, each in results["networks"].items()
        }
        return {**{key: value for key, value in results.items() if key not in FREE}, "networks": parts}
    except (AttributeError, LookupError, TypeError):
        return None


def changed(data: st.DataObject, valid: bytes) -> bytes:
    """A valid file, changed by bytes or by values."""
    if data.draw(st.booleans()):
        return bytes(data.draw(st.one_of(any_bytes(), changed_bytes(valid))))
    return json.dumps(data.draw(changed_json(json.loads(valid)))).encode()


def rejected(read: Callable[[Path], object], folder: Path) -> bool:
    """Whether a reader rejects the results in a folder, with two sentences."""
    found: list[object] = []
    errors: list[str] = []

    def attempt() -> None:
        try:
            found.append(read(folder / "results.json"))
        except aacp.AACPError as error:
            errors.append(str(error))
            raise

    read_or_reject(attempt)
    assert all(TWO_SENTENCES.search(error) for error in errors), errors
    return not found


@given(st.data())
@few
def test_fuzz_results(networks: Path, check: Path, tmp_path_factory: pytest.TempPathFactory, data) -> None:
    for folder, read in readers(networks, check):
        place = tmp_path_factory.mktemp("changed")
        (place / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
        valid = (folder / "results.json").read_bytes()
        content = changed(data, valid)
        (place / "results.json").write_bytes(content)
        if not rejected(read, place):
            assert fixed(json.loads(content)) == fixed(json.loads(valid))


@given(st.data())
@few
def test_fuzz_manifests(networks: Path, check: Path, tmp_path_factory: pytest.TempPathFactory, data) -> None:
    for folder, read in readers(networks, check):
        place = tmp_path_factory.mktemp("changed")
        valid = (folder / "manifest.json").read_bytes()
        content = changed(data, valid)
        (place / "manifest.json").write_bytes(content)
        results = json.loads((folder / "results.json").read_bytes())
        (place / "results.json").write_text(json.dumps(results))
        if content != valid:
            assert rejected(read, place)
        # One whose results say that they belong to it.
        results["manifest"] = hashlib.sha256(content).hexdigest()
        (place / "results.json").write_text(json.dumps(results))
        rejected(read, place)


def changed_manifest(folder: Path, place: Path, **change: Any) -> Path:
    """A manifest with other values, and results that say that they belong to it."""
    manifest = json.dumps({**json.loads((folder / "manifest.json").read_text()), **change})
    (place / "manifest.json").write_text(manifest)
    results = json.loads((folder / "results.json").read_text())
    results["manifest"] = hashlib.sha256(manifest.encode()).hexdigest()
    (place / "results.json").write_text(json.dumps(results))
    return place


@pytest.mark.parametrize("change", [{"kind": []}, {"networks": []}])  # found by the test above
def test_a_manifest_without_a_kind_or_networks_is_rejected(networks: Path, tmp_path: Path, change) -> None:
    assert rejected(aacp.table_from_results, changed_manifest(networks, tmp_path, **change))


@pytest.mark.parametrize("kind", ["table", "check"])
def test_a_manifest_of_the_other_kind_is_rejected(networks: Path, check: Path, tmp_path: Path, kind: str) -> None:
    of_kind = {"table": networks, "check": check}
    read = dict(readers(networks, check))[of_kind[kind]]
    other = next(of_kind[each] for each in of_kind if each != kind)
    changed_manifest(other, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({**results, "kind": kind}))
    assert rejected(read, tmp_path)


def test_what_is_changed_is_valid(networks: Path, check: Path) -> None:
    assert [rejected(read, folder) for folder, read in readers(networks, check)] == [False] * 2
