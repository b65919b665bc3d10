"""Files of a finished run are verified before they are used, and what is damaged is done again with the same result."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aacp
from aacp.pipeline import training
from aacp.pipeline.checking import check_folder
from aacp.pipeline.delivery import usable_export
from aacp.pipeline.reuse import mend_search
from aacp.pipeline.training import TrainingRun
from aacp.runs.exports import ExportRecord, RuntimeFiles
from aacp.runs.folder import RunFolder
from aacp.runs.manifest import MANIFEST
from aacp.search import loop as search_loop
from aacp.train import loop
from pipeline.tiny_run import PLAN, UNTRAINED, network, pruned
from sampling import sampled

pytestmark = pytest.mark.slow

PLACE = "trainings/finetuned"
# Every file of a finished run that a later call reads.
FILES = [
    *("run.json", "graph.json", "search.json", "history.jsonl", "structure.json"),
    *(f"{PLACE}/{name}" for name in ("training.json", "pruned.safetensors", "evaluation.json")),
    *(f"{PLACE}/training/{name}" for name in ("run.json", "log.jsonl", "training.safetensors", "weights.safetensors")),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    pruned(folder)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another network with the same settings, which ends with another structure."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    pruned(folder, seed=3)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def results(folder: Path) -> dict[str, bytes]:
    """All files but the states of search and training, which are only needed to continue."""
    states = ("search.json", f"{PLACE}/training/training.safetensors")
    return {name: (folder / name).read_bytes() for name in FILES if name not in states}


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "report.html"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def without_manifests(folder: Path) -> None:
    """Make a folder one of an older version."""
    for path in folder.rglob(MANIFEST):
        path.unlink()
    for path in [*folder.rglob("run.json"), *folder.rglob("training.json")]:
        path.write_text(json.dumps({**json.loads(path.read_text()), "threads": 0}))


@pytest.mark.parametrize("name", sampled(FILES, 2))
def test_one_flipped_bit_is_noticed_and_mended(
    name: str, run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(run / name)
    assert not check_folder(run).is_whole
    pruned(run)
    said = capsys.readouterr().err
    assert f"{Path(name).name} is damaged" in said
    assert results(run) == results(whole)
    assert check_folder(run).is_whole
    pruned(run)
    assert capsys.readouterr().err == ""


def test_a_network_with_a_flipped_bit_is_not_loaded(run: Path) -> None:
    flip(run / PLACE / "pruned.safetensors")
    for path in (run, run / PLACE, run / PLACE / "pruned.safetensors"):
        with pytest.raises(aacp.BrokenArtefact, match=r"its checksum is not the one in manifest\.json\. Repeat"):
            aacp.load(path, into=network())


@pytest.mark.parametrize("name", sampled((name for name in FILES if name not in ("graph.json", "search.json")), 2))
def test_the_file_of_another_run_is_not_taken(name: str, run: Path, whole: Path, other: Path) -> None:
    shutil.copy(other / name, run / name)
    assert not check_folder(run).is_whole
    pruned(run)
    assert results(run) == results(whole)
    assert check_folder(run).is_whole


def test_all_files_of_another_training_are_not_taken(run: Path, whole: Path, other: Path) -> None:
    shutil.rmtree(run / PLACE)
    shutil.copytree(other / PLACE, run / PLACE)
    counts = json.loads((other / "structure.json").read_text())["counts"]
    assert counts != json.loads((whole / "structure.json").read_text())["counts"]
    with pytest.raises(aacp.RunMismatch, match=r"a training of the structure .*--as.*--again"):
        pruned(run)
    assert tree(run / PLACE) == tree(other / PLACE)
    assert results(run)["structure.json"] == results(whole)["structure.json"]


def test_lost_lines_of_a_finished_history_are_evaluated_again(run: Path, whole: Path) -> None:
    lines = (run / "history.jsonl").read_bytes().splitlines(True)
    (run / "history.jsonl").write_bytes(b"".join(lines[:3] + lines[5:]))
    pruned(run)
    assert results(run) == results(whole)


def test_without_the_state_of_the_training_the_delivered_network_is_used(
    run: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / PLACE / "training" / "training.safetensors").unlink()
    monkeypatch.setattr(loop, "_run_epochs", None)  # nothing may train
    (run / PLACE / "evaluation.json").unlink()
    pruned(run)
    assert results(run) == results(whole)


def test_scores_of_a_network_that_is_lost_are_measured_again(run: Path, whole: Path) -> None:
    shutil.rmtree(run / PLACE / "training")
    (run / PLACE / "pruned.safetensors").unlink()
    found = json.loads((run / PLACE / "evaluation.json").read_text())
    pruned(run)
    assert results(run)[f"{PLACE}/pruned.safetensors"] == results(whole)[f"{PLACE}/pruned.safetensors"]
    assert json.loads((run / PLACE / "evaluation.json").read_text()) == found


def test_a_recovery_that_is_lost_is_repeated(tmp_path: Path) -> None:
    first = pruned(tmp_path, plan=UNTRAINED)
    record = first.training.path / "recovery.json"
    content = record.read_bytes()
    record.unlink()
    assert pruned(tmp_path, plan=UNTRAINED).evaluation == first.evaluation
    assert record.read_bytes() == content


# -- the request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_finished_folder_rejects_another_request_also_without_run_json(run: Path, is_damaged: bool) -> None:
    (run / "run.json").unlink()
    if is_damaged:
        (run / "run.json").write_text("{")
    with pytest.raises(aacp.RunMismatch, match="limit on macs: 40 % less then, 60 % less now"):
        pruned(run, budget={"macs": 0.6})
    assert pruned(run).choice.limits[0].pruning_rate == 0.4


def test_without_run_json_and_its_copy_no_request_is_accepted(run: Path) -> None:
    without_manifests(run)
    (run / "run.json").unlink()
    before = tree(run)
    for budget in ({"macs": 0.4}, {"macs": 0.6}):
        with pytest.raises(aacp.RunMismatch, match=r"run\.json is missing.*Put run\.json back") as raised:
            pruned(run, budget=budget)
        assert "emove" not in str(raised.value)
    assert {**before, **tree(run)} == tree(run)  # nothing but manifests is added


def test_trainings_alone_do_not_serve_another_request(run: Path) -> None:
    without_manifests(run)
    for name in ("run.json", "structure.json", "history.jsonl", "search.json"):
        (run / name).unlink()
    with pytest.raises(aacp.RunMismatch, match=r"holds trainings, but run\.json is missing"):
        pruned(run, budget={"macs": 0.6})


def test_trainings_whose_search_is_lost_do_not_serve_another_request(run: Path) -> None:
    without_manifests(run)
    for path in run.iterdir():
        if path.is_file() and path.name not in ("run.json", "graph.json"):
            path.unlink()
    assert {path.name for path in run.iterdir()} == {"run.json", "graph.json", "trainings"}
    before = (run / "run.json").read_bytes()
    with pytest.raises(aacp.RunMismatch, match="macs"):
        pruned(run, budget={"macs": 0.6})
    assert (run / "run.json").read_bytes() == before


def test_a_training_without_its_request_is_not_taken(run: Path) -> None:
    without_manifests(run)
    (run / PLACE / "training.json").unlink()
    with pytest.raises(aacp.RunMismatch, match=r"training\.json is missing.*--as.*--again"):
        pruned(run)
    assert pruned(run, again=True).evaluation is not None


def test_a_request_that_was_edited_is_restored(run: Path, whole: Path) -> None:
    edited = {**json.loads((run / "run.json").read_text()), "limits": [], "pruning_step": 5}
    (run / "run.json").write_text(json.dumps(edited))
    pruned(run)
    assert (run / "run.json").read_bytes() == (whole / "run.json").read_bytes()
    assert json.loads((run / "run.json.damaged").read_text()) == edited


# -- the structure, in folders of older versions, which have no checksums ---------------------------------------------


def wide(choice: dict[str, Any]) -> None:
    choice["counts"] = [8 for _ in choice["counts"]]


def loose(choice: dict[str, Any]) -> None:
    """Counts over the limit, with the costs that belong to them and a limit that they meet."""
    choice["counts"] = [8 for _ in choice["counts"]]
    limit = choice["limits"][0]
    limit |= {"reached": limit["full"], "bound": limit["full"], "pruning_rate": 0.0}


def long(choice: dict[str, Any]) -> None:
    choice["counts"] += [4]


def empty(choice: dict[str, Any]) -> None:
    choice["counts"][0] = 0


def wrong(choice: dict[str, Any]) -> None:
    choice["limits"][0]["reached"] -= 1


@pytest.mark.parametrize("change", [wide, loose, long, empty, wrong])
def test_a_structure_that_graph_or_limits_do_not_allow_is_searched_again(
    change: Any, run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_manifests(run)
    choice = json.loads((run / "structure.json").read_text())
    change(choice)
    (run / "structure.json").write_text(json.dumps(choice))
    assert not check_folder(run).is_whole
    pruned(run)
    assert "structure.json cannot be delivered" in capsys.readouterr().err
    assert results(run)["structure.json"] == results(whole)["structure.json"]


@pytest.mark.parametrize("name", ["pruned.safetensors", "evaluation.json"])
def test_results_of_another_structure_are_noticed_without_checksums(
    name: str, run: Path, whole: Path, other: Path
) -> None:
    without_manifests(run)
    shutil.copy(other / PLACE / name, run / PLACE / name)
    states = {file.file: file.state for file in check_folder(run).files}
    assert states[f"{PLACE}/{name}"] == "foreign"
    pruned(run)
    assert (run / PLACE / name).read_bytes() == (whole / PLACE / name).read_bytes()


def test_a_repaired_network_of_another_structure_is_not_loaded(tmp_path: Path) -> None:
    whole, plan = tmp_path / "whole", replace(UNTRAINED, mimic=0)
    file = pruned(whole, plan=plan).file
    other = pruned(tmp_path / "other", seed=1, plan=plan).file
    right = file.read_bytes()
    without_manifests(whole)
    shutil.copy(other, file)
    pruned(whole, plan=plan)
    assert file.read_bytes() == right


def test_the_evaluation_of_another_original_is_noticed_by_a_check_as_by_the_next_call(run: Path, whole: Path) -> None:
    without_manifests(run)
    file = run / PLACE / "evaluation.json"
    known = json.loads(file.read_text())
    known["before"]["macs"] += 1000
    file.write_text(json.dumps(known))
    states = {checked.file: checked.state for checked in check_folder(run).files}
    assert states[f"{PLACE}/evaluation.json"] == "foreign"
    pruned(run)
    assert file.read_bytes() == (whole / PLACE / "evaluation.json").read_bytes()


@pytest.mark.parametrize("place", ["corrected-1", "probes/0.5", "probes/0.5/corrected-1/confirmed"])
def test_a_history_of_a_search_inside_a_search_is_mended(place: str, tmp_path: Path) -> None:
    inner = RunFolder(tmp_path / place)
    inner.path.mkdir(parents=True)
    inner.write_json("search.json", {})
    history = inner.path / "history.jsonl"
    history.write_text("{}\n")
    inner.listing.add(history.name)
    history.unlink()
    assert mend_search(RunFolder(tmp_path))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_network_that_was_cut_short_is_written_again_without_checksums(share: float, run: Path, whole: Path) -> None:
    without_manifests(run)
    file = run / PLACE / "pruned.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    pruned(run)
    assert file.read_bytes() == content


# -- exported files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["pruned.onnx", "original.onnx", "pruned.pte", "original.pte"])
def test_an_export_whose_files_are_lost_is_not_used(lost: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    record = ExportRecord(18, 0.0, 5, 3, (), others=(RuntimeFiles("pruned.pte", "ExecuTorch", 0.0, 5, 3),))
    for suffix in ("onnx", "pte"):
        (tmp_path / f"original.{suffix}").write_bytes(b"12345")
        (tmp_path / f"pruned.{suffix}").write_bytes(b"123")
    folder.write_json("export.json", record.to_json())
    assert usable_export(folder) == record
    (tmp_path / lost).unlink()
    assert usable_export(folder) is None
    assert usable_export(folder) is None


def test_a_flipped_bit_of_an_exported_file_leads_to_another_export(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = []

    def export(place: RunFolder, *_: object) -> ExportRecord:
        known = usable_export(place)
        if known is not None:
            return known
        exported.append(place)
        for name in ("original.onnx", "pruned.onnx"):
            (place.path / name).write_bytes(b"network")
        place.listing.add("original.onnx", "pruned.onnx")
        record = ExportRecord(18, 0.0, 7, 7, ())
        place.write_json("export.json", record.to_json())
        return record

    monkeypatch.setattr(training, "export_both", export)
    plan = replace(PLAN, export=True)
    place = pruned(run, plan=plan).training.path
    pruned(run, plan=plan)
    assert len(exported) == 1
    flip(place / "pruned.onnx")
    pruned(run, plan=plan)
    assert len(exported) == 2
    assert (place / "pruned.onnx").read_bytes() == b"network"


# -- threads ----------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """What a test stops a run with."""


def stop(*_: object) -> None:
    raise Stopped


def test_a_run_is_resumed_with_the_threads_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)

    def run_with(threads: int, owner: Any = None, name: str = "") -> list[int]:
        """The numbers of threads that a run sets if torch has these, and if it is stopped where it calls a name."""
        used.clear()
        with monkeypatch.context() as patched:
            patched.setattr(torch, "get_num_threads", lambda: threads)
            if owner is None:
                pruned(tmp_path)
            else:
                patched.setattr(owner, name, stop)
                with pytest.raises(Stopped):
                    pruned(tmp_path)
        return list(used)

    assert run_with(3, search_loop, "_progress") == []
    assert json.loads((tmp_path / "run.json").read_text())["threads"] == 3
    assert run_with(5, TrainingRun, "save") == [3, 5]  # the search; the training begins with 5
    assert "began with 3 threads and continues with 3, not 5" in capsys.readouterr().err
    assert run_with(7) == [5, 7]  # the evaluation
    assert run_with(9) == []  # nothing is left to compute
