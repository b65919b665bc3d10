"""Preflight: plans and data that cannot work are rejected before the search, and doubtful networks are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import aacp
from aacp.data.scores import accuracy
from aacp.pipeline.preflight import (
    check_deployment,
    check_scoring,
    check_training,
    warning_about_holdout,
    warning_about_network,
    warning_about_parts,
    warning_about_statistics,
)
from aacp.pipeline.task import PruningTask
from pipeline.small_tasks import (
    INPUTS,
    LABELS,
    SEARCHED,
    TRAINED,
    Examples,
    dictionary,
    pair,
    task_of,
)


def test_processes_share_the_batches_of_a_loader_not_of_the_recipe() -> None:
    loaders = task_of(pair)  # batches of 4
    images = replace(loaders, data=aacp.Data(*[TensorDataset(INPUTS, LABELS)] * 3))
    for batch_size, processes, error in ((1, 2, aacp.InvalidOption), (2, 2, aacp.InvalidData)):
        plan = replace(TRAINED, recipe=replace(TRAINED.recipe, batch_size=batch_size))
        check_training(loaders, plan, processes)
        with pytest.raises(error, match=f"A batch of {batch_size} "):
            check_training(images, plan, processes)
    with pytest.raises(aacp.InvalidData, match=r"A batch of 4 leaves at most one example for each process"):
        check_training(loaders, TRAINED, 3)


@pytest.mark.parametrize(("part", "name"), [("test", "Test"), ("holdout", "Held-out")])
def test_labels_of_no_class_are_rejected_before_the_search_with_the_part_they_are_in(
    part: str, name: str, tmp_path: Path
) -> None:
    known = task_of(pair, **{part: (INPUTS, LABELS + 1)})
    with pytest.raises(aacp.InvalidData, match=rf"^{name} data: 6 of 12 labels are outside 0\.\.1, .*\. Give labels"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)
    assert not (tmp_path / "run" / "run.json").exists()


def test_test_batches_without_targets_are_rejected_before_the_search() -> None:
    with pytest.raises(aacp.InvalidData, match="A batch of the test data is a dictionary"):
        check_scoring(task_of(pair, test=Examples(dictionary)))


@pytest.mark.slow
def test_the_unpruned_network_is_scored_once(tmp_path: Path) -> None:
    widths: list[int] = []

    def counted(network: Any, batches: aacp.Batches) -> float:
        widths.append(network[0].out_channels)
        return aacp.accuracy(network, batches)

    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)]
    model, data = nn.Sequential(*layers), task_of(pair).data
    plan = replace(SEARCHED, evaluations=3, calibration_images=12, export=False)
    pruned = aacp.prune(model, data, {"macs": 0.3}, tmp_path / "run", plan=plan, score=counted)
    assert widths.count(8) == 2  # on test data, and on the hold-out
    assert widths[:2] == [8, 8]  # before the search
    with torch.no_grad():
        right = (model.eval()(INPUTS).argmax(1) == LABELS).float().mean()
    assert pruned.evaluation.before.test == pytest.approx(float(right))


class CountsCalls(nn.Module):
    """A network that counts its calls in whole numbers, in a list and in a tensor, of which a copy has its own."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(8, 2))
        self.calls = 0
        self.log: list[int] = []
        self.total = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.log.append(len(x))
        self.total += 1
        return self.layers(x)  # type: ignore[no-any-return]

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.calls, len(self.log), int(self.total)


@pytest.mark.slow
def test_a_network_that_counts_its_calls_is_as_it_was_after_a_run_which_is_resumed(tmp_path: Path) -> None:
    model, data = CountsCalls(), task_of(pair).data
    plan = replace(TRAINED, evaluations=3, calibration_images=12, export=False)
    for _ in range(2):
        aacp.prune(model, data, {"macs": 0.3}, tmp_path / "run", plan=plan, loss=nn.CrossEntropyLoss())
        assert model.counts == (0, 0, 0)


def test_scoring_draws_no_random_numbers_from_what_follows() -> None:
    known, state = task_of(pair), torch.random.get_rng_state()
    check_scoring(known)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_test_data_that_the_network_cannot_read_are_rejected_before_the_search() -> None:
    wide = (torch.randn(4, 3, 6, 6), torch.zeros(4, dtype=torch.long))
    with pytest.raises(
        aacp.InvalidData, match=r"Test data: the network does not run on them: RuntimeError: .*channels"
    ):
        check_scoring(task_of(pair, test=wide))


class Reader(nn.Module):
    """A network that reads the class from a pixel: it knows everything whose pixel is right."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.one_hot(x[:, 0, 0, 0].long(), 4).float()


def marked(wrong: int = 0) -> tuple[Tensor, Tensor]:
    """200 images that carry their label in all pixels; the first `wrong` carry another one."""
    labels = torch.arange(200) % 4
    carried = torch.where(torch.arange(200) < wrong, (labels + 1) % 4, labels)
    return carried.view(-1, 1, 1, 1).expand(-1, 1, 4, 4).float(), labels


@pytest.mark.parametrize(
    ("train", "holdout", "change", "is_doubted"),
    [
        (marked(), marked(), {}, True),
        (marked(), marked(wrong=1), {}, False),  # it knows its training data better
        (marked(wrong=20), marked(wrong=20), {}, False),  # it knows neither by heart
        (marked(), marked(), {"max_drop": None}, False),
        (marked(), marked(), {"probe_epochs": 1, "recipe": aacp.Recipe(epochs=1, batch_size=8, lr=0.1)}, False),
    ],
)
def test_a_hold_out_that_the_network_knows_by_heart_is_doubted_before_a_search_for_a_drop(
    train: Any, holdout: Any, change: dict[str, Any], is_doubted: bool
) -> None:
    task = PruningTask(Reader(), aacp.Data(train, holdout, marked(wrong=100)), None, torch.device("cpu"))
    said = warning_about_holdout(task, replace(aacp.Plan(recipe=None, max_drop=0.01), **change))
    assert bool(said) == is_doubted
    if is_doubted:
        assert said.startswith("The unpruned network is right on 100.0% of the held-out data")
        assert "Hold out data that it was not trained on" in said


@pytest.mark.parametrize(
    ("holdout", "score", "is_doubted"),
    [
        (marked(wrong=150), accuracy, True),  # 25 %: as many as each of the four labels has
        (marked(wrong=138), accuracy, True),  # 31 %, and two standard errors above 25 % are 31.1 %
        (marked(wrong=137), accuracy, False),  # 31.5 %
        (marked(), accuracy, False),
        (tuple(part[::4] for part in marked()), accuracy, False),  # one label alone says nothing
        (marked(wrong=150), lambda model, batches: 0.25, False),  # not an accuracy
    ],
)
def test_a_network_that_is_no_better_than_a_constant_answer_is_doubted(
    holdout: Any, score: Any, is_doubted: bool
) -> None:
    task = PruningTask(Reader(), aacp.Data(marked(), holdout, marked()), None, torch.device("cpu"), score)
    said = warning_about_network(task)
    assert bool(said) == is_doubted
    if is_doubted:
        assert "of the held-out data, and one constant answer on 25.0%. Check that its trained weights" in said


class Normalised(Reader):
    """A reader behind a batch norm, whose statistics may be those of other weights."""

    def __init__(self, mean: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1, affine=False)
        self.norm.running_mean.fill_(mean)
        self.norm.running_var.fill_(1.25 - self.norm.eps)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((self.norm(x) * 1.25**0.5 + 1.5).round().clamp(0, 3))


@pytest.mark.parametrize(("mean", "is_doubted"), [(1.5, False), (3.5, True)])
def test_statistics_that_do_not_fit_the_weights_are_doubted(mean: float, is_doubted: bool) -> None:
    data = aacp.Data(marked(), marked(), marked())
    task = PruningTask(Normalised(mean).eval(), data, None, torch.device("cpu"), aacp.accuracy)
    said = warning_about_statistics(task, task.calibration(SEARCHED))
    assert bool(said) == is_doubted
    if is_doubted:
        assert "right on 100.0% of the held-out data instead of 25.0%. Call aacp.recalibrate(model, data)" in said
    assert float(task.model.norm.running_mean) == mean


def test_a_hold_out_that_is_another_part_is_doubted() -> None:
    train, test, other = (DataLoader(Examples(pair), 4) for _ in range(3))
    given = {
        "The hold-out is the training data, so that scores would be too high": {"train": train, "holdout": train},
        "The hold-out is the test data, so that the search would be fitted to them": {"holdout": test, "test": test},
    }
    for words, parts in given.items():
        assert warning_about_parts(task_of(pair, **parts)).startswith(words)
    assert warning_about_parts(task_of(pair, train=train, holdout=other, test=test)) == ""
    assert warning_about_parts(task_of(pair, train=train, holdout=train, test=train)) == ""


def test_a_runtime_that_is_not_installed_is_rejected_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(runtime: aacp.Runtime) -> None:
        raise aacp.MissingPackage(f"{runtime.name} is not installed. Install it.")

    monkeypatch.setattr(aacp.Runtime, "require_installed", missing)
    with pytest.raises(aacp.MissingPackage, match=r"openvino is not installed\."):
        check_deployment(aacp.Plan(deployment=aacp.Deployment("openvino")))
    check_deployment(aacp.Plan())
    check_deployment(aacp.Plan(deployment=aacp.Deployment("openvino"), export=False))
