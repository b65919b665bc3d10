"""Evaluations of earlier runs: they are reused, they may win, and only scores of the same kind are accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

import aacp
from glue.recorder import Recorder
from glue.subjects import data

pytestmark = pytest.mark.slow

PLAN = aacp.Plan(method="random", evaluations=12, recipe=None, reconstruction=None, calibration_images=16, export=False)


def smallness(network: nn.Module, batches: aacp.Batches) -> float:
    """A score that only depends on the structure: the fewer parameters, the better."""
    return 1 / sum(parameter.numel() for parameter in network.parameters())


def pruned(model: nn.Module, folder: Path, rate: float, plan: aacp.Plan, *earlier: Path) -> aacp.Pruned:
    return aacp.prune(
        model, data(), {"macs": rate}, folder, plan=plan, score=smallness, known_from=earlier, device="cpu"
    )


def test_the_better_structure_is_delivered_wherever_it_was_found(model: nn.Module, tmp_path: Path) -> None:
    tight = pruned(model, tmp_path / "tight", 0.8, PLAN)
    hasty = replace(PLAN, evaluations=1)
    loose = pruned(model, tmp_path / "loose", 0.1, hasty, tmp_path / "tight")
    (own,) = loose.folder.read_log("history.jsonl")
    assert own["score"] < tight.choice.score  # or this shows nothing
    assert loose.choice.counts == tight.choice.counts
    # A worse structure of an earlier run does not win.
    again = pruned(model, tmp_path / "again", 0.8, PLAN, tmp_path / "loose")
    assert again.choice.score >= tight.choice.score


def test_a_known_structure_is_not_scored_again(model: nn.Module, tmp_path: Path) -> None:
    """The method shrinks all widths alike, so that both runs propose the same structures."""
    plan = replace(PLAN, method="uniform", evaluations=3)
    scored = []
    for name, earlier in (("first", ()), ("second", (tmp_path / "first",))):
        recorder = Recorder(tmp_path / name, model)
        with recorder.recording():
            aacp.prune(
                model, recorder.data, {"macs": 0.5}, recorder.folder, plan=plan, score=recorder.score,
                known_from=earlier, device="cpu",
            )  # fmt: skip
        scored.append("score pruned" in recorder.passes().get("search", {}))
    assert scored == [True, False]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"importance": "l2"}, "importance: l1 then, l2 now"),
        ({"calibration_images": 17}, "calibration images: 16 then"),
        ({"seed": 1}, "seed: 0 then, 1 now"),  # which draws other calibration images
        ({"reconstruction": "repair"}, "reconstruction: none then, repair now"),
    ],
)
def test_scores_that_were_estimated_differently_are_rejected(
    model: nn.Module, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    quick = replace(PLAN, evaluations=1)
    pruned(model, tmp_path / "first", 0.5, quick)
    with pytest.raises(aacp.RunMismatch, match=words):
        pruned(model, tmp_path / "second", 0.4, replace(quick, **change), tmp_path / "first")
