"""aacp check: what is whole, what is damaged, what is done again; nothing is changed."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import aacp
from aacp.cli import main
from aacp.pipeline.checking import check_folder
from aacp.report.headline import remarks
from aacp.report.run import read_run
from aacp.runs.folder import RunFolder
from pipeline.tiny_run import EXPORTING, PLAN, UNTRAINED, data, network, pruned

OLD = Path(__file__).parent.parent / "previous_version"


def check(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["check", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_whole_run_and_a_damaged_one(tmp_path: Path) -> None:
    pruned(tmp_path)
    code, out, _ = check(tmp_path)
    assert code == 0
    assert "trainings/finetuned/pruned.safetensors: whole" in out
    assert out.endswith(f"{tmp_path}: 12 whole.\n")

    path = tmp_path / "trainings" / "finetuned" / "pruned.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    (tmp_path / "run.json").unlink()
    before = tree(tmp_path)
    code, out, _ = check(tmp_path)
    assert code == 1
    assert "run.json: missing; it is restored from the copy in manifest.json" in out
    assert "pruned.safetensors: damaged; the network is written again from the trained weights" in out
    assert out.endswith(
        f"{tmp_path}: 10 whole, 1 missing, 1 damaged. The same command as before does what is listed here.\n"
    )
    code, out, _ = check(tmp_path, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["whole"] is False
    damaged = [file for file in found["files"] if file["state"] != "whole"]
    assert [(file["file"], file["state"], file["stage"]) for file in damaged] == [
        ("run.json", "missing", "request"),
        ("trainings/finetuned/pruned.safetensors", "damaged", "delivery"),
    ]
    assert tree(tmp_path) == before


@pytest.mark.slow
def test_steps_that_are_not_finished_are_named_with_their_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped_at(kind: str, name: str, step: int, plan: aacp.Plan = PLAN) -> list[str]:
        """The lines of the check about steps, once a run was stopped at an event."""

        def stop(event: aacp.Event) -> None:
            if (event.kind, event.name, event.step) == (kind, name, step):
                raise KeyboardInterrupt

        with aacp.listen(stop), suppress(KeyboardInterrupt):
            pruned(tmp_path, plan=plan)
        code, out, _ = check(tmp_path)
        assert code == 0
        lines = out.splitlines()[-1:] if "Not finished" in out else []
        is_evaluated = (tmp_path / "trainings/finetuned/evaluation.json").exists()
        assert [remark.text for remark in remarks(read_run(tmp_path)) if "Not finished" in remark.text] == (
            [] if is_evaluated else lines
        )
        return lines

    monkeypatch.setattr("sys.argv", ["aacp", "prune", "my net:x"])
    training = "the training of trainings/finetuned"
    export = "the export of trainings/finetuned, which failed or was stopped"
    how = "To continue: aacp prune 'my net:x'"
    assert stopped_at("evaluation", "search", 4) == [
        f"Not finished: the search (4 of 10 evaluations), {training} (0 of 2 epochs). {how}"
    ]
    assert stopped_at("epoch", "train", 1) == [f"Not finished: {training} (1 of 2 epochs). {how}"]
    assert stopped_at("stage", "nothing", 0) == []  # no export was requested
    assert stopped_at("stage", "export", 0, EXPORTING) == [f"Not finished: {export}. {how}"]
    unfinished = json.loads(check(tmp_path, "--json")[1])["unfinished"]
    assert unfinished == [{"step": export, "command": "aacp prune 'my net:x'"}]
    assert stopped_at("stage", "nothing", 0, EXPORTING) == []
    (tmp_path / "structure.json").unlink()  # this is damage, and not a step to finish
    assert "Not finished" not in check(tmp_path)[1]


@pytest.mark.slow
def test_a_training_and_a_sweep_that_are_not_finished_are_named(tmp_path: Path) -> None:
    for name in ("base", "training"):
        aacp.fit(network(), data().train, PLAN.recipe, folder=tmp_path / name, until=1, device="cpu")
        out = check(tmp_path / name)[1]
        assert out.endswith("Not finished: the training (1 of 2 epochs). The same command as before continues.\n")

    def stop(event: aacp.Event) -> None:
        if event.name == "search" and event.folder.endswith("macs-0.5"):
            raise KeyboardInterrupt

    with aacp.listen(stop), pytest.raises(KeyboardInterrupt):
        aacp.sweep(network(), data(), [{"macs": 0.3}, {"macs": 0.5}], tmp_path / "sweep", plan=PLAN, device="cpu")
    steps = json.loads(check(tmp_path / "sweep", "--json")[1])["unfinished"]
    assert [step["step"] for step in steps] == ["the sweep", "the search of macs-0.5 (0 of 10 evaluations)"]


@pytest.mark.slow
def test_finalists_are_not_finished_until_one_is_chosen(tmp_path: Path) -> None:
    plan = replace(PLAN, finalists=2, rungs=(1,))

    def stop(event: aacp.Event) -> None:
        if (event.kind, event.name) == ("evaluation", "finalists"):
            raise KeyboardInterrupt

    with aacp.listen(stop), pytest.raises(KeyboardInterrupt):
        pruned(tmp_path, plan=plan)
    steps = json.loads(check(tmp_path, "--json")[1])["unfinished"]
    training = "the training of trainings/finetuned (0 of 2 epochs)"
    assert [step["step"] for step in steps] == ["the comparison of finalists", training]
    pruned(tmp_path, plan=plan)
    assert json.loads(check(tmp_path, "--json")[1])["unfinished"] == []


@pytest.mark.slow
def test_a_network_that_is_not_trained_is_not_delivered_yet(tmp_path: Path) -> None:
    def stop(event: aacp.Event) -> None:
        if event.name == "train":
            raise KeyboardInterrupt

    with aacp.listen(stop), pytest.raises(KeyboardInterrupt):
        pruned(tmp_path, plan=UNTRAINED)
    assert "Not finished: the delivery of trainings/mimicked. To continue: " in check(tmp_path)[1]


def test_a_folder_of_an_older_version_is_readable_but_not_verified(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD, tmp_path / "old"))
    code, out, _ = check(folder)
    assert code == 0
    assert "structure.json: not listed; not verified, since a folder of an older version has no manifest" in out
    (folder / "history.jsonl").write_text("nonsense\n")
    code, out, _ = check(folder)
    assert code == 1
    assert "history.jsonl: damaged; the evaluations that are lost are repeated" in out


def test_a_long_check_reports_its_progress_and_a_short_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("macs-0.3", "macs-0.5"):
        shutil.copytree(OLD, tmp_path / name)
    _, out, err = check(tmp_path, "--json")
    assert err == ""
    monkeypatch.setattr("aacp.user.progress.MAX_SILENCE", 0.0)
    _, same, err = check(tmp_path, "--json")
    assert same == out
    folders = sum(path.is_dir() for path in tmp_path.rglob("*")) + 1
    lines = err.splitlines()
    assert len(lines) == folders + 2  # every folder, and the results of both runs
    assert lines[0] == f"0/{folders + 2} checks of folders, now the files of {tmp_path}"
    assert lines[-1] == f"{folders + 1}/{folders + 2} checks of folders, now the results of {tmp_path / 'macs-0.5'}"


def test_the_folder_of_a_sweep_is_checked_with_its_runs(tmp_path: Path) -> None:
    for name in ("macs-0.3", "macs-0.5"):
        RunFolder(tmp_path / name).write_json("run.json", {"name": name})
    assert check(tmp_path)[0] == 0
    (tmp_path / "macs-0.5" / "run.json").write_text("{}")
    code, out, _ = check(tmp_path)
    assert code == 1
    assert "macs-0.5/run.json: damaged" in out
    assert "macs-0.3/run.json: whole" in out


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_manifest_is_named(content: str, tmp_path: Path) -> None:
    RunFolder(tmp_path).write_json("run.json", {})
    (tmp_path / "manifest.json").write_text(content)
    code, out, _ = check(tmp_path)
    assert code == 1
    assert "manifest.json: damaged; the files of its folder cannot be verified" in out


def test_a_lost_manifest_is_named(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_json("run.json", {"threads": 2})
    (tmp_path / "manifest.json").unlink()
    code, out, _ = check(tmp_path)
    assert code == 1
    assert "manifest.json: missing" in out


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    code, _, error = check(tmp_path)
    assert code == 1
    assert error == f"RunMismatch: {tmp_path} does not hold a run. Give the folder of one.\n"
    assert check(tmp_path / "nowhere")[0] == 2


def test_a_folder_in_place_of_a_file_is_damaged(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_json("graph.json", {})
    (tmp_path / "graph.json").unlink()
    (tmp_path / "graph.json").mkdir()
    found = check_folder(tmp_path)
    assert [(file.file, file.state) for file in found.files] == [("graph.json", "damaged")]


def test_a_run_and_a_training_may_have_the_name_of_the_folder_of_a_check(tmp_path: Path) -> None:
    run = tmp_path / "check"
    training = run / "trainings" / "check"
    RunFolder(run).write_json("run.json", {})
    RunFolder(training).write_json("training.json", {})
    RunFolder(training / "check").write_json("manifest.json", {})  # of the networks for the device, not of a run folder
    files = [(file.file, file.state) for file in check_folder(run).files]
    assert files == [("run.json", "whole"), ("trainings/check/training.json", "whole")]
