"""A run folder stays valid if processes crash or compete."""

import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aacp.errors import DamagedRun, DiskError, InvalidOption, InvalidScore, RunLocked, RunMismatch, UnreadableFile
from aacp.runs.folder import RunFolder


def test_json_comes_back_and_a_missing_file_is_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.write_json("a.json", {"x": [1, 2.5, None]})
    assert folder.read_json("a.json") == {"x": [1, 2.5, None]}
    assert folder.read_json("b.json") is None
    assert folder.read("a.json", lambda data: data["x"][0]) == 1
    assert folder.read("b.json", len) is None
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


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die_locked, args=(str(tmp_path),))
    process.start()
    process.join()
    with RunFolder(tmp_path).lock():
        (tmp_path / "ok").write_text(json.dumps(1))


def test_a_reader_creates_no_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "nowhere" / "run")
    assert folder.read_json("a.json") is None
    assert folder.read_log("a.jsonl") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("planted", [".report.html.{pid}", "report.html", "history.jsonl", ".lock"])
def test_a_planted_link_leads_to_no_file_of_the_user(tmp_path: Path, planted: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run / planted.format(pid=os.getpid())).symlink_to(precious)
    folder = RunFolder(run)
    for writing in (
        lambda: folder.write_text("report.html", "page"),
        lambda: folder.append("history.jsonl", {}),
        lambda: folder.lock().__enter__(),
    ):
        with contextlib.suppress(DiskError):
            writing()
    assert precious.read_text() == "mine"


@pytest.mark.slow
def test_leftovers_of_a_killed_process_are_removed_when_the_folder_is_next_locked(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from aacp.runs.folder import RunFolder\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "RunFolder(os.path.join(sys.argv[1], sys.argv[2])).write_text('a.json', 'x' * 1000)\n"
    )
    places = (tmp_path, tmp_path / "trainings" / "finetuned")
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", code, str(tmp_path), str(place.relative_to(tmp_path))])
        assert [path for path in place.iterdir() if path.is_file()] != []
    with RunFolder(tmp_path).lock():
        assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {".lock"}


@pytest.mark.slow
def test_two_processes_never_share_a_history_if_a_folder_is_deleted_and_begun_anew(tmp_path: Path) -> None:
    run = tmp_path / "run"
    older = RunFolder(run)
    newer = (
        "import sys\n"
        "from aacp.runs.folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).lock(): RunFolder(sys.argv[1]).append('history.jsonl', {'by': 'newer'})\n"
    )
    with older.lock():
        older.append("history.jsonl", {"by": "older"})
        shutil.rmtree(run)
        subprocess.run([sys.executable, "-c", newer, str(run)], check=True)
        with pytest.raises(RunMismatch, match="was deleted or replaced"):
            older.append("history.jsonl", {"by": "older"})
        with pytest.raises(RunMismatch, match="was deleted or replaced"):
            RunFolder(run / "trainings" / "finetuned").write_json("training.json", {})
    assert older.read_log("history.jsonl") == [{"by": "newer"}]
    assert not (run / "trainings").exists()


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[" * 5000, b'{"a": NaN}', b"1e999", b"1" * 400, b"", b'"\\ud800"'], ids=range(7)
)
def test_a_damaged_file_is_named_and_never_to_be_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    (tmp_path / "history.jsonl").write_bytes(content + b"\n")
    for reading, name in ((RunFolder.read_json, "run.json"), (RunFolder.read_log, "history.jsonl")):
        with pytest.raises(DamagedRun, match=name) as raised:
            reading(RunFolder(tmp_path), name)
        assert isinstance(raised.value, RunMismatch)
        assert "emove" not in str(raised.value)


def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    os.mkfifo(tmp_path / "history.jsonl")
    with pytest.raises(UnreadableFile, match=r"run\.json is a folder"):
        RunFolder(tmp_path).read_json("run.json")
    with pytest.raises(UnreadableFile, match=r"history\.jsonl is a pipe"):
        RunFolder(tmp_path).read_log("history.jsonl")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, value: float) -> None:
    folder = RunFolder(tmp_path)
    for writing in (folder.write_json, folder.append):
        with pytest.raises(InvalidScore, match="would hold NaN or infinity"):
            writing("a.json", {"score": value})
    assert list(tmp_path.iterdir()) == []
