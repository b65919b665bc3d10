"""Options of aacp train and aacp export reach what does the work."""

from __future__ import annotations

from itertools import pairwise

import pytest
from click.testing import CliRunner

from aacp.artefact import onnx
from aacp.cli import main
from aacp.pipeline import evaluation
from aacp.train import job

pytestmark = pytest.mark.slow


class Reached(BaseException):
    """The work would begin now; `given` is what it begins with. The command line does not catch this class."""

    def __init__(self, *given: object, **named: object) -> None:
        self.given = given
        self.named = named


def reached(*arguments: str) -> Reached:
    with pytest.raises(Reached) as found:
        CliRunner().invoke(main, arguments)
    return found.value


def _raise(*given: object, **named: object) -> None:
    raise Reached(*given, **named)


def test_a_teacher_reaches_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "TrainingJob", _raise)
    given = reached("train", "vgg16", "--data", "digits", "--teacher", "resnet20", "--teacher-weights", "t.pth").given
    assert ("resnet20", "t.pth") in pairwise(given)


def test_the_hold_out_and_the_cache_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "TrainingJob", _raise)
    named = reached("train", "vgg16", "--data", "digits", "--holdout", "0", "--cache", "pixels").named
    assert (named["holdout"], named["cache"]) == (0, "pixels")


def test_the_hold_out_and_the_cache_reach_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "load_data", _raise)
    named = reached("evaluate", "digits_resnet", "--data", "digits", "--holdout", "0.25", "--cache", "pixels").named
    assert (named["holdout"], named["cache"]) == (0.25, "pixels")


def test_the_opset_and_the_batch_reach_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "export_artefact", _raise)
    named = reached("export", "run", "--opset", "19", "--batch", "4").named
    assert (named["opset"], named["batch"]) == (19, 4)
