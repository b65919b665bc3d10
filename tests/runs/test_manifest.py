"""A manifest lists what stages write: changed, missing and exchanged files are noticed, crashes are not mistaken."""

import json
import shutil
from pathlib import Path

import pytest

from aacp.errors import DamagedRun
from aacp.runs import folder as folder_module
from aacp.runs.files import stage_of
from aacp.runs.folder import RunFolder
from aacp.runs.manifest import MANIFEST, read_manifest
from aacp.runs.mending import mend
from aacp.runs.verification import opened, sealed, verified

REQUEST = {"model": "m", "weights": "w", "seed": 0, "threads": 2}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A folder with a request, a graph, a state and two lines of history."""
    folder = RunFolder(tmp_path / "run")
    folder.write_json("run.json", REQUEST)
    folder.write_json("graph.json", {"layers": [1, 2, 3]})
    folder.write_json("search.json", {"evaluated": 0})
    folder.append("history.jsonl", {"number": 0, "score": 0.5})
    folder.append("history.jsonl", {"number": 1, "score": 0.25})
    folder.write_json("search.json", {"evaluated": 2})
    return folder


def flip(path: Path, place: int = -3) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def states(folder: RunFolder) -> dict[str, str]:
    return {name: state for name, state in verified(folder.path).items() if state != "whole"}


def test_every_file_of_a_stage_is_listed_and_no_other(run: RunFolder) -> None:
    run.write_text("report.html", "page")
    manifest = read_manifest(run.path)
    assert manifest is not None
    assert set(manifest.entries) == {"run.json", "graph.json", "search.json", "history.jsonl"}
    assert states(run) == {}


def test_a_folder_that_holds_no_run_gets_no_manifest(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_bytes("pruned.safetensors", b"a network that a user saves")
    folder.write_json("latency.json", {})
    folder.append("checks.jsonl", {"n": 1})
    assert not (tmp_path / MANIFEST).exists()
    assert (tmp_path / "checks.jsonl").read_text() == '{"n": 1}\n'


def test_a_manifest_of_others_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"format": 1, "kind": "table"}')
    RunFolder(tmp_path).write_json("latency.json", {})
    RunFolder(tmp_path).append("history.jsonl", {"score": 1.0})
    assert (tmp_path / MANIFEST).read_text() == '{"format": 1, "kind": "table"}'


@pytest.mark.parametrize("name", ["run.json", "graph.json", "search.json", "history.jsonl"])
def test_no_flipped_bit_goes_unnoticed(name: str, run: RunFolder) -> None:
    content = (run.path / name).read_bytes()
    for place in range(len(content)):
        flip(run.path / name, place)
        assert states(run) == {name: "damaged"}, place
        (run.path / name).write_bytes(content)


@pytest.mark.parametrize("name", ["run.json", "graph.json", "search.json", "history.jsonl"])
def test_missing_files_and_folders_in_their_place_are_noticed(name: str, run: RunFolder) -> None:
    (run.path / name).unlink()
    assert states(run) == {name: "missing"}
    (run.path / name).mkdir()
    assert states(run) == {name: "damaged"}


def test_a_file_that_no_stage_wrote_is_not_listed(run: RunFolder) -> None:
    (run.path / "structure.json").write_text("{}")
    assert states(run) == {"structure.json": "not listed"}


@pytest.mark.parametrize("name", ["graph.json", "search.json"])
def test_a_crash_between_manifest_and_file_leaves_both_whole(
    name: str, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "replace_file", crash)
        with pytest.raises(KeyboardInterrupt):
            run.write_json(name, {"new": 1})
    assert states(run) == {}
    again = RunFolder(run.path)  # another process, which computes something else
    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "replace_file", crash)
        with pytest.raises(KeyboardInterrupt):
            again.write_json(name, {"new": 2})
    assert states(run) == {}
    again.write_json(name, {"new": 2})
    assert states(run) == {}


def test_lines_after_the_listed_part_are_verified_by_their_seals(run: RunFolder) -> None:
    run.append("history.jsonl", {"number": 2, "score": 0.75})
    path = run.path / "history.jsonl"
    whole = path.read_bytes()
    assert states(run) == {}
    for place in range(-len(whole.splitlines()[2]) - 1, -1):
        flip(path, place)
        assert states(run) == {"history.jsonl": "damaged"}, place
        path.write_bytes(whole)
    path.write_bytes(whole[:-4])  # a crash cut the last line
    assert states(run) == {}


def test_the_history_of_a_run_with_other_weights_is_not_intact(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.write_json("run.json", {**REQUEST, "weights": "others"})
    other.append("history.jsonl", {"number": 0, "score": 0.9})
    for place in (run.path, run.path / "probes" / "0.5"):
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(other.path / "history.jsonl", place / "history.jsonl")
        with pytest.raises(DamagedRun, match=r"Line 1 of .*history\.jsonl is damaged: its checksum is not"):
            RunFolder(place).read_log("history.jsonl")


def test_a_search_inside_a_run_has_the_key_of_the_run(run: RunFolder) -> None:
    inside = RunFolder(run.path / "corrected-1")
    line = {"number": 0, "score": 0.5}
    inside.append("history.jsonl", line)
    assert (inside.path / "history.jsonl").read_bytes() == (run.path / "history.jsonl").read_bytes().splitlines(True)[0]
    assert inside.read_log("history.jsonl") == [line]


@pytest.mark.parametrize("line", [b"{}", b"[1, 2]", b"7", b'{"a": 1}'])
def test_a_line_comes_back_as_it_was(line: bytes) -> None:
    assert opened(sealed(line, 5), 5) == json.loads(line)


def test_a_seal_that_does_not_end_its_line_is_noticed() -> None:
    with pytest.raises(ValueError, match="checksum"):
        opened(b'{"crc32": "00000000", "a": 1}')


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("pruned.onnx", "export"),
        ("original.onnx.data", "export"),
        ("pruned.pt2", "export"),
        ("pruned.safetensors", "delivery"),
        ("weights-3.safetensors", "training"),
        ("report.html", None),
        ("pruned.onnx.damaged", None),
        ("notes.txt", None),
    ],
)
def test_files_belong_to_stages_by_their_names(name: str, stage: str | None) -> None:
    assert stage_of(name) == stage


# -- mending ----------------------------------------------------------------------------------------------------------


def test_a_small_file_is_restored_and_the_damaged_one_is_kept(run: RunFolder, capsys) -> None:
    before = (run.path / "run.json").read_bytes()
    (run.path / "run.json").write_text('{"model": "edited"}')
    assert run.read_json("run.json") == REQUEST  # readers need not wait for the repair
    assert mend(run) == frozenset()
    assert (run.path / "run.json").read_bytes() == before
    assert (run.path / "run.json.damaged").read_text() == '{"model": "edited"}'
    assert "run.json is damaged" in capsys.readouterr().err
    assert mend(run) == frozenset()
    assert capsys.readouterr().err == ""


def test_a_second_damaged_file_does_not_replace_the_first(run: RunFolder) -> None:
    for content in ("first", "second"):
        (run.path / "run.json").write_text(content)
        mend(run)
    assert (run.path / "run.json.damaged").read_text() == "first"
    assert (run.path / "run.json.damaged-2").read_text() == "second"


def test_a_file_without_a_copy_is_set_aside_and_said(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    flip(run.path / "graph.json")
    assert mend(run) == {"graph.json"}
    assert not (run.path / "graph.json").exists()
    assert "graph.json is damaged" in (said := capsys.readouterr().err)
    assert "kept as graph.json.damaged. What follows: the network is traced again." in said
    assert mend(run) == frozenset()


def test_the_intact_lines_of_a_log_stay(run: RunFolder) -> None:
    flip(run.path / "history.jsonl", 14)
    assert mend(run) == {"history.jsonl"}
    assert [line["number"] for line in run.read_log("history.jsonl")] == [1]


def test_a_foreign_file_that_is_not_listed_is_not_used(run: RunFolder) -> None:
    (run.path / "structure.json").write_text('{"counts": [1]}')
    assert mend(run) == {"structure.json"}
    assert run.read_json("structure.json") is None


@pytest.mark.parametrize("is_common", [True, False])
def test_nothing_is_restored_from_the_manifest_of_another_run(run: RunFolder, is_common: bool, capsys) -> None:
    run.remove("history.jsonl")  # its lines would show that the request is another
    other = RunFolder(run.path.parent / "other")
    other.write_json("run.json", {**REQUEST, "seed": 1})
    other.write_json("structure.json", {"counts": [1]})
    other.write_json("steps.json", {"steps": [1]})
    if is_common:  # two runs of one network have the same graph
        other.write_text("graph.json", (run.path / "graph.json").read_text())
    (run.path / MANIFEST).write_bytes((other.path / MANIFEST).read_bytes())
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.name != MANIFEST}
    assert mend(run) == frozenset()
    assert "lists other files than those in the folder" in capsys.readouterr().err
    assert {name: (run.path / name).read_bytes() for name in before} == before
    assert states(run) == {}


def test_a_damaged_request_is_restored_although_other_files_are_missing(run: RunFolder) -> None:
    flip(run.path / "run.json", 4)
    (run.path / "search.json").unlink()
    assert mend(run) == {"search.json"}
    assert run.read_json("run.json") == REQUEST


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"format": 1}'])
def test_a_lost_manifest_is_said_and_written_again(run: RunFolder, content: str | None, capsys) -> None:
    (run.path / MANIFEST).unlink()
    if content is not None:
        (run.path / MANIFEST).write_text(content)
    assert mend(run) == frozenset()
    assert "cannot be verified" in capsys.readouterr().err
    assert states(run) == {}
    assert mend(run) == frozenset()
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_no_flipped_bit_of_a_manifest_goes_unnoticed(run: RunFolder) -> None:
    path = run.path / MANIFEST
    content = path.read_bytes()
    for place in range(0, len(content) - 1, 7):
        flip(path, place)
        with pytest.raises(DamagedRun, match="manifest"):
            read_manifest(run.path)
        path.write_bytes(content)


def test_the_manifest_of_another_folder_restores_nothing(run: RunFolder, tmp_path: Path, capsys) -> None:
    other = RunFolder(tmp_path / "other")
    for name in ("run.json", "graph.json", "search.json"):
        other.write_json(name, {"threads": 2, "of": "another", "name": name})
    shutil.copy(other.path / MANIFEST, run.path / MANIFEST)
    assert mend(run) == frozenset()
    assert run.read_json("run.json") == REQUEST
    assert "lists other files" in capsys.readouterr().err


def test_a_folder_of_an_older_version_is_listed_without_a_word(tmp_path: Path, capsys) -> None:
    (tmp_path / "run.json").write_text('{"model": "m"}')
    (tmp_path / "history.jsonl").write_text('{"number": 0}\n')
    assert mend(RunFolder(tmp_path)) == frozenset()
    assert capsys.readouterr().err == ""
    assert verified(tmp_path) == {"run.json": "whole", "history.jsonl": "whole"}
