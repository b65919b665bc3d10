"""The requests of a run hold every part of its plan."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import aacp
from aacp.pipeline.plan import Plan
from aacp.runs.requests import Request, TrainingRequest
from pipeline import tiny_run


def test_every_part_of_a_plan_is_written_down_in_one_of_the_two_requests_and_so_compared() -> None:
    # The name of the folder of the training, and where structures are estimated, do not change any result.
    plan = {field.name for field in fields(Plan)} - {"training", "workers"}
    search = {field.name for field in fields(Request)}
    training = {field.name for field in fields(TrainingRequest)}
    assert plan <= search | training
    assert plan & search & training == set()


RECIPE = aacp.Recipe(epochs=1, batch_size=8, lr=0.01)


def test_the_folder_of_a_training_is_not_taken_for_that_of_a_run(tmp_path: Path) -> None:
    aacp.fit(tiny_run.network(), tiny_run.data().train, RECIPE, folder=tmp_path, device="cpu")
    with pytest.raises(
        aacp.RunMismatch, match=r"^The run\.json of this folder describes a training .*\. Name the folder"
    ):
        tiny_run.pruned(tmp_path)
    with pytest.raises(aacp.NothingToReport, match=r"The run\.json of this folder describes a training"):
        aacp.write_report(tmp_path)


def test_the_folder_of_a_run_is_not_taken_for_that_of_a_training(tmp_path: Path) -> None:
    tiny_run.pruned(tmp_path, plan=aacp.Plan(evaluations=1, recipe=None, export=False))
    with pytest.raises(aacp.RunMismatch, match=r"holds a run that prunes, not a training\. Choose another folder\.$"):
        aacp.fit(tiny_run.network(), tiny_run.data().train, RECIPE, folder=tmp_path, device="cpu")
