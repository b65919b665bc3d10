"""Jobs: names that the run folder records need not be given again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aacp
from aacp.pipeline.job import FinishingJob, TaskNames
from aacp.runs.requests import Request, TrainingRequest
from pipeline import own_parts

ASKED = Request("aacp prune", "resnet20", "cifar10", (), 0.125, "default", 10, 0, {}, "", "")


def test_a_run_knows_where_its_data_and_functions_were(tmp_path: Path) -> None:
    sources = {"data_source": "cifar10:/there", "metric_source": "my:iou", "loss": "loss", "loss_source": "my:loss"}
    aacp.RunFolder(tmp_path).write_json("run.json", replace(ASKED, weights_file="/w.pth", **sources).to_json())
    found = FinishingJob(str(tmp_path)).names
    assert found == TaskNames("resnet20", "cifar10:/there", "/w.pth", "my:iou", None, "my:loss")
    moved = FinishingJob(str(tmp_path), {"data": "cifar10:/elsewhere", "weights": "/v.pth", "loss": None}).names
    assert moved == replace(found, data="cifar10:/elsewhere", weights="/v.pth")


def test_only_functions_that_the_run_names_need_trust(tmp_path: Path) -> None:
    sources = {"metric_source": "my:iou", "loss_source": "my:loss"}
    aacp.RunFolder(tmp_path).write_json("run.json", replace(ASKED, **sources).to_json())
    with pytest.raises(aacp.UntrustedCode, match=r"my:iou \(score.*my:loss \(loss"):
        FinishingJob(str(tmp_path)).plan()
    with pytest.raises(aacp.UntrustedCode, match=r"executed: my:loss \(loss"):
        FinishingJob(str(tmp_path), {"metric": "own:score", "loss": None}).plan()
    assert FinishingJob(str(tmp_path), {"metric": "own:score", "loss": "own:loss"}).plan().evaluations == 10


@pytest.mark.parametrize(("name", "use"), [("loss", "loss"), ("metric", "score")])
def test_a_function_that_cannot_be_imported_is_not_replaced_by_the_default(name: str, use: str, tmp_path: Path) -> None:
    recorded: dict[str, Any] = {name: "dice"}
    aacp.RunFolder(tmp_path).write_json("run.json", replace(ASKED, **recorded).to_json())
    with pytest.raises(aacp.InvalidOption, match=rf"^The {use} of .* is dice, which cannot .*\. Name one .*--{name} "):
        _ = FinishingJob(str(tmp_path)).names
    assert getattr(FinishingJob(str(tmp_path), {name: "my:dice"}).names, name) == "my:dice"
    recorded = {f"{name}_source": "__main__:cross_entropy#0a1b2c3d"}  # which has the name of the default
    aacp.RunFolder(tmp_path).write_json("run.json", replace(ASKED, **recorded).to_json())
    FinishingJob(str(tmp_path)).plan()  # which imports nothing
    with pytest.raises(aacp.InvalidOption, match="cannot be imported"):
        _ = FinishingJob(str(tmp_path)).names


def test_of_an_older_run_the_name_of_the_data_is_taken(tmp_path: Path) -> None:
    aacp.RunFolder(tmp_path).write_json("run.json", replace(ASKED, data="digits").to_json())
    assert FinishingJob(str(tmp_path)).names.data == "digits"


def test_what_is_named_is_kept_in_the_task() -> None:
    assert TaskNames("digits_resnet", "digits").load(0).data_source == "digits"


def test_a_recorded_recipe_with_functions_of_the_user_needs_trust(tmp_path: Path) -> None:
    aacp.RunFolder(tmp_path).write_json("run.json", ASKED.to_json())
    recipe = replace(aacp.Recipe(epochs=2, batch_size=8, lr=0.1), optimiser=own_parts.rmsprop)
    request = TrainingRequest("", recipe.to_json(), {}, "", "")
    place = aacp.RunFolder(tmp_path / "trainings" / "finetuned")
    place.write_json("training.json", request.to_json())
    with pytest.raises(aacp.UntrustedCode, match=r"own_parts:rmsprop \(optimiser"):
        FinishingJob(str(tmp_path)).recorded_recipe("finetuned")
    found = FinishingJob(str(tmp_path), trust=True).recorded_recipe("finetuned")
    assert found is not None
    assert found.to_json() == recipe.to_json()
