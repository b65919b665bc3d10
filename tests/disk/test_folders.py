"""Folders are listed with errors of our own, and a whole disk is not read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aacp.disk import folders
from aacp.disk.folders import MAX_DEPTH, folders_in, names_in
from aacp.disk.locking import locked
from aacp.errors import InvalidOption, MissingFile, RunMismatch


def test_the_names_in_a_folder_are_sorted(tmp_path: Path) -> None:
    for name in "bca":
        (tmp_path / name).touch()
    assert names_in(tmp_path) == ["a", "b", "c"]


def test_a_folder_that_is_not_there_is_an_error_of_our_own(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"nowhere\. Check the path"):
        names_in(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(MissingFile, match="file"):
        names_in(tmp_path / "file")


def test_a_locked_folder_that_was_deleted_or_begun_anew_is_not_listed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with locked(run):
        assert names_in(run) == [".lock"]
        shutil.rmtree(run)
        with pytest.raises(RunMismatch, match="deleted or replaced"):
            names_in(run)
        run.mkdir()
        with pytest.raises(RunMismatch, match="deleted or replaced"):
            names_in(run)


def test_folders_are_found_as_deep_as_a_repeated_sweep_writes_them(tmp_path: Path) -> None:
    written = tmp_path / "seed-0" / "macs-0.5" / "trainings" / "finetuned" / "training"
    deeper = written / "other"
    deeper.mkdir(parents=True)
    assert folders_in(tmp_path) == [tmp_path, *reversed([written, *written.parents[: MAX_DEPTH - 1]])]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    assert folders_in(tmp_path) == [tmp_path]


def test_a_folder_with_more_folders_than_a_run_has_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_FOLDERS", 12)
    for number in range(11):
        (tmp_path / str(number)).mkdir()
    assert len(folders_in(tmp_path)) == 12
    (tmp_path / "11").mkdir()
    with pytest.raises(InvalidOption, match=r"holds more than 12 folders\. Give the folder of a run"):
        folders_in(tmp_path)
