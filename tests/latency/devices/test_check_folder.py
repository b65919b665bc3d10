"""The folder of a check holds every part of both networks, and knows whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import aacp
from aacp.cost.budget import Limit
from aacp.latency.devices.check_folder import is_whole_check, write_check
from aacp.runs.exports import files_of

CONDITIONS = aacp.MeasurementConditions("openvino", "1.0", "cpu", "float32", 1, 1, "a small board")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A check of networks in two parts, as OpenVINO has them."""
    for name in ("original", "pruned"):
        for suffix in ("xml", "bin"):
            (tmp_path / f"{name}.{suffix}").write_text(f"{suffix} of {name}")
    write_check(
        tmp_path / "check",
        files_of(tmp_path / "original.xml"),
        files_of(tmp_path / "pruned.xml"),
        model="Net",
        structure=aacp.Structure([3, 4]),
        limit=Limit("latency", at_most=0.003),
        conditions=CONDITIONS,
        batch=torch.zeros(1, 3, 8, 8),
    )
    return tmp_path / "check"


def test_a_check_holds_both_parts_of_both_networks(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["original"]["file"] == "original.xml"
    assert list(manifest["original"]["beside"]) == ["original.bin"]
    assert list(manifest["networks"][0]["beside"]) == ["pruned.bin"]
    assert (folder / "pruned.bin").read_text() == "bin of pruned"
    assert manifest["inputs"] == [{"shape": [1, 3, 8, 8], "dtype": "float32"}]
    assert is_whole_check(folder)


@pytest.mark.parametrize("name", ["original.bin", "pruned.xml", "manifest.json"])
def test_a_check_with_a_part_that_was_changed_is_not_whole(folder: Path, name: str) -> None:
    (folder / name).write_text("another")
    assert not is_whole_check(folder)
    (folder / name).unlink()
    assert not is_whole_check(folder)
