"""An export that was stopped continues: complete files of the same request are kept, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.disk.locking import locked
from latency.simulator import FileSimulator, SimulatorFile

MODEL = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 3)).eval()
EXAMPLE = torch.zeros(1, 3, 16, 16)
GRAPH = aacp.trace(MODEL, EXAMPLE)
SPACE = aacp.SearchSpace(GRAPH, 1 / 8)
NETWORKS = ["original", *(f"structure-{number:03}" for number in range(5))]


class Failing(FileSimulator):
    """A converter that writes half a file and then fails, at one of its networks."""

    def __init__(self, at: int | None = None, error: type[BaseException] = aacp.ExportFailed) -> None:
        super().__init__()
        self.at = at
        self.error = error
        self.written: list[str] = []

    def export(self, network: nn.Module, path: Path, example: Any) -> SimulatorFile:
        if len(self.written) == self.at:
            path.write_text("1")
            raise self.error("It cannot be converted. Use another runtime.")
        path.with_suffix(".weights").write_text(str(sum(value.numel() for value in network.parameters())))
        self.written.append(path.stem)
        return super().export(network, path, example)


def export(folder: Path, runtime: FileSimulator | None = None, where: dict[str, Any] | None = None, **given) -> Path:
    place = aacp.Deployment(runtime or Failing(), "npu", **{"threads": 1, **(where or {})})
    options = {"structures": 3, "held_out": 2, **given}
    return aacp.export_networks(MODEL, GRAPH, SPACE, place, example=EXAMPLE, folder=folder, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.mark.parametrize("error", [aacp.ExportFailed, KeyboardInterrupt])
def test_the_same_call_continues_after_a_failure(tmp_path: Path, error: type[BaseException]) -> None:
    first, second = Failing(3, error), Failing()
    with pytest.raises(error):
        export(tmp_path / "networks", first)
    assert first.written == NETWORKS[:3]
    assert not (tmp_path / "networks" / "manifest.json").exists()
    export(tmp_path / "networks", second)
    assert second.written == NETWORKS[3:]
    export(tmp_path / "at once")
    assert contents(tmp_path / "networks") == contents(tmp_path / "at once")


def test_a_finished_export_is_left_as_it_is(tmp_path: Path) -> None:
    export(tmp_path)
    before = contents(tmp_path)
    again = Failing()
    export(tmp_path, again)
    assert again.written == []
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["structure-002.macs", "structure-002.weights"])
@pytest.mark.parametrize("damage", [lambda path: path.write_text("7"), Path.unlink], ids=["changed", "missing"])
def test_a_network_with_a_part_that_is_not_as_written_is_converted_again(tmp_path: Path, name: str, damage) -> None:
    export(tmp_path)
    before = contents(tmp_path)
    damage(tmp_path / name)
    again = Failing()
    export(tmp_path, again)
    assert again.written == ["structure-002"]
    after = contents(tmp_path)
    assert {name: after[name] for name in after if name != "exported.jsonl"} == {
        name: before[name] for name in before if name != "exported.jsonl"
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"where": {"threads": 2}}, "threads is 1 there and 2 here"),
        ({"where": {"batch": 4}}, "batch is 1 there and 4 here"),
        ({"structures": 4}, "structures is 3 there and 4 here"),
        ({"seed": 1}, "counts is .* there and .* here"),
    ],
)
def test_a_folder_of_another_request_is_rejected_and_left_alone(tmp_path: Path, given, words: str) -> None:
    with pytest.raises(aacp.ExportFailed):
        export(tmp_path, Failing(2))
    before = contents(tmp_path)
    with pytest.raises(aacp.RunMismatch, match=f"holds the networks of another request: {words}. Repeat the options"):
        export(tmp_path, **given)
    assert contents(tmp_path) == before


def test_a_folder_or_file_of_others_is_rejected_and_nothing_is_written_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(aacp.InvalidOption, match=r"is not a new folder. Give the name of one that does not exist"):
            export(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("line", ["[1]", "nonsense"])
def test_a_damaged_log_is_named(tmp_path: Path, line: str) -> None:
    export(tmp_path)
    log = tmp_path / "exported.jsonl"
    log.write_text(f"{log.read_text()}{line}\n")
    with pytest.raises(aacp.DamagedFile, match=r"Line 8 of .*exported.jsonl is damaged: .*\. Remove the folder"):
        export(tmp_path)


@pytest.mark.parametrize("line", [{}, {"network": [], "files": {}}, {"network": "original", "files": {"x": 1}}])
def test_a_line_that_lists_no_files_counts_for_nothing(tmp_path: Path, line: dict[str, Any]) -> None:
    with pytest.raises(aacp.ExportFailed):
        export(tmp_path, Failing(0))
    log = tmp_path / "exported.jsonl"
    log.write_text(f"{log.read_text()}{json.dumps(line)}\n")
    again = Failing()
    export(tmp_path, again)
    assert again.written == NETWORKS


def test_one_process_exports_to_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(aacp.RunLocked):
        export(tmp_path)


def test_the_command_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FileSimulator, "export", interrupted)
    folder = tmp_path / "networks"
    small = ["--input", "1x1x8x8", "--runtime", "latency.simulator:FileSimulator", "--device", "npu"]
    found = CliRunner().invoke(main, ["measure", "digits_resnet", *small, "--export-only", str(folder)])
    assert found.exit_code == 130
    assert f"Interrupted. The same command resumes from {folder}." in found.stderr
