"""A run folder stays valid if processes crash or compete."""

import json
import multiprocessing
from pathlib import Path

import pytest

from aacp.errors import InvalidOption, RunLocked, RunMismatch
from aacp.runs.folder import RunFolder


def test_json_comes_back_and_a_missing_file_is_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.write_json("a.json", {"x": [1, 2.5, None]})
    assert folder.read_json("a.json") == {"x": [1, 2.5, None]}
    assert folder.read_json("b.json") is None
    assert folder.read_log("b.jsonl") == []


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.write_json("a.json", {"version": 1})
    monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        folder.write_json("a.json", {"version": 2})
    assert folder.read_json("a.json") == {"version": 1}


@pytest.mark.parametrize("torn", [0, 1, 5, 8, 9])
def test_a_torn_last_line_is_passed_over_and_does_not_swallow_the_next(tmp_path: Path, torn: int) -> None:
    folder = RunFolder(tmp_path)
    for number in range(3):
        folder.append("log.jsonl", {"n": number})
    path = tmp_path / "log.jsonl"
    content = path.read_bytes()
    assert len(content) == 3 * 9
    path.write_bytes(content[: len(content) - torn])
    whole = 3 if torn == 0 else 2
    assert [record["n"] for record in folder.read_log("log.jsonl")] == list(range(whole))
    folder.append("log.jsonl", {"n": 7})
    assert [record["n"] for record in folder.read_log("log.jsonl")] == [*range(whole), 7]


def test_damage_elsewhere_is_reported_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"n": 1}\nnonsense\n{"n": 2}\n')
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(RunMismatch, match=r"log\.jsonl"):
        RunFolder(tmp_path).read_log("log.jsonl")
    with pytest.raises(RunMismatch, match=r"a\.json"):
        RunFolder(tmp_path).read_json("a.json")


@pytest.mark.parametrize("inside", [".", "deeper", "much/deeper"])
def test_a_file_is_no_folder(tmp_path: Path, inside: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(InvalidOption, match=rf"since {file} is a file\. Name a folder"):
        RunFolder(file / inside)
    assert file.read_text() == "mine"


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(RunLocked, match="Another process"), RunFolder(tmp_path).lock():
        pass
    with RunFolder(tmp_path).lock():
        pass


def test_who_holds_the_lock_may_take_it_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.lock():
        with RunFolder.of(folder).lock():
            pass
        with pytest.raises(RunLocked), RunFolder.of(tmp_path).lock():
            pass


def _die_locked(path: str) -> None:
    import os

    with RunFolder(path).lock():
        os._exit(0)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die_locked, args=(str(tmp_path),))
    process.start()
    process.join()
    with RunFolder(tmp_path).lock():
        (tmp_path / "ok").write_text(json.dumps(1))
