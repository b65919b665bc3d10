"""PruningTask: a loader gives the same batches in every call, and a user's loss is minimised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

import aacp
from aacp.graph.unverified import trace_unverified
from aacp.pipeline import pruning, training
from aacp.pipeline.task import PruningTask
from aacp.pytorch.layout import CHANNELS_LAST, PLAIN
from aacp.user.progress import show_progress
from pipeline.own_parts import first_first, last_first

PLAN = aacp.Plan(evaluations=3, recipe=aacp.Recipe(epochs=1, batch_size=64, lr=0.01), calibration_images=48)


class Augmented(TensorDataset):
    """Examples that noise from torch's global generator is added to."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        inputs, label = super().__getitem__(index)
        return inputs + torch.randn(inputs.shape), label


def network() -> nn.Module:
    widths = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*widths, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


@pytest.fixture(autouse=True)
def _no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "export_both", lambda *_: None)


@pytest.fixture
def data() -> aacp.Data:
    examples = torch.arange(96 * 36.0).reshape(96, 1, 6, 6) % 7, torch.arange(96) % 2
    train = DataLoader(Augmented(*examples), 16, shuffle=True, generator=torch.Generator())
    return aacp.Data.of(train, TensorDataset(*examples), holdout=0.25)


@pytest.mark.parametrize("wrapper", [nn.DataParallel, AveragedModel, torch.compile])
def test_the_network_inside_of_a_wrapper_is_pruned(wrapper: Any, data: aacp.Data, tmp_path: Path) -> None:
    plan = replace(PLAN, recipe=None, reconstruction=None, export=False)
    given = network()
    found = aacp.prune(wrapper(given), data, {"macs": 0.5}, tmp_path, plan=plan, device="cpu")
    assert type(found.network) is nn.Sequential
    assert isinstance(aacp.load(tmp_path, into=given), nn.Sequential)


def test_what_a_shuffling_augmenting_loader_draws_is_the_same_in_every_call(data: aacp.Data) -> None:
    subject = PruningTask(network(), data, "mine", torch.device("cpu"))
    draws = []
    for _ in range(2):
        torch.randn(5)  # whatever happened before
        state = torch.random.get_rng_state()
        draws.append([subject.example(), *subject.calibration(PLAN).inputs()])
        assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(*draws, strict=True))


def test_a_long_score_names_the_data_in_its_progress(
    data: aacp.Data, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aacp.user.progress.MAX_SILENCE", 0.0)
    subject = PruningTask(network(), data, "mine", torch.device("cpu"))
    with show_progress():
        subject.score_network(subject.model, data.test)
        subject.score_network(subject.model, data.holdout)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scoring on the test data, 0 batches done"
    assert lines[-1].startswith("scoring on the held-out data, ")


@pytest.mark.slow
def test_a_run_with_such_a_loader_comes_to_the_same_end_again(data: aacp.Data, tmp_path: Path) -> None:
    model, files = network(), []
    for place in ("first", "second"):
        torch.randn(5)
        aacp.prune(model, data, {"macs": 0.4}, tmp_path / place, plan=PLAN)
        files.append((tmp_path / place / "trainings" / "finetuned" / "pruned.safetensors").read_bytes())
    assert files[0] == files[1]
    assert (
        aacp.RunFolder(tmp_path / "first/trainings/finetuned").read_json("training.json")["recipe"]["batch_size"] == 16
    )  # the loader's


def halved(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * F.cross_entropy(outputs, targets)


@pytest.mark.slow
@pytest.mark.parametrize("from_scratch", [False, True])
def test_a_loss_of_the_users_is_minimised_and_written_down(data: aacp.Data, from_scratch: bool, tmp_path: Path) -> None:
    model, losses = network(), []
    assert PLAN.recipe is not None
    plan = replace(PLAN, recipe=replace(PLAN.recipe, lr=1e-12), from_scratch=from_scratch)
    for loss in (None, halved):
        pruned = aacp.prune(model, data, {"macs": 0.4}, tmp_path / str(loss), plan=plan, loss=loss)
        (epoch,) = aacp.RunFolder(pruned.training.path / "training").read_log("log.jsonl")
        losses.append(epoch["loss"])
    assert losses[1] == pytest.approx(0.5 * losses[0], rel=1e-4)
    assert pruned.training.read_json("training.json")["loss"] == "halved"
    with pytest.raises(aacp.RunMismatch, match="loss: halved then, cross_entropy now"):
        aacp.prune(model, data, {"macs": 0.4}, pruned.folder.path, plan=plan)


def test_mixed_labels_and_a_loss_of_the_users_are_rejected_before_anything_is_done(data, tmp_path: Path) -> None:
    plan = aacp.Plan(recipe=aacp.Recipe(epochs=1, batch_size=32, lr=0.01, mixing=1.0))
    with pytest.raises(aacp.InvalidOption, match=r"your loss function may not accept mixed labels\. Use"):
        aacp.prune(network(), data, {"macs": 0.4}, tmp_path / "run", plan=plan, loss=F.cross_entropy)
    assert not (tmp_path / "run").exists()


class Competing(nn.Module):
    """A softmax goes over the channels of the first layer: cut, it is another function than masked."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 3), nn.Conv2d(16, 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        shares: Tensor = self.first(images).softmax(1)
        return self.third(self.second(shares).relu()).mean((2, 3))


def test_a_structure_that_is_not_the_masked_network_is_not_delivered() -> None:
    torch.manual_seed(0)
    model, part = Competing(), (torch.randn(20, 3, 12, 12), torch.randint(0, 4, (20,)))
    subject = PruningTask(model, aacp.Data.of(part, part), "competing", torch.device("cpu"))
    traced = aacp.trace(model, subject.example())
    assert [group.name for group in traced.free] == ["second"]
    mistaken = replace(
        traced, groups=tuple(replace(group, frozen=None) for group in traced.groups[:2]) + traced.groups[2:]
    )
    inheritance = aacp.Inheritance(model, mistaken, part[0])
    subject.require_equal(inheritance, aacp.Structure((8, 9)))
    with pytest.raises(aacp.UntraceableModel, match=r"cut to \[5, 16\] does not compute .* differ by .*\. Freeze"):
        subject.require_equal(inheritance, aacp.Structure((5, 16)))


class Numbered(nn.Module):
    """Each channel of the first layer is multiplied by its position, which changes if an earlier channel is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        torch.rand(1)  # a network may draw random numbers
        found: Tensor = self.first(images)
        positions = torch.arange(1, found.shape[1] + 1).view(1, -1, 1, 1)
        return self.second(found * positions).mean((2, 3))


def test_the_cut_that_is_checked_removes_the_channels_that_the_delivered_network_loses() -> None:
    model, part = Numbered(), (torch.randn(20, 3, 12, 12), torch.randint(0, 4, (20,)))
    subject = PruningTask(model, aacp.Data.of(part, part), "numbered", torch.device("cpu"))
    traced = trace_unverified(model, subject.example(), "module", torch.float32)[1].graph
    free = replace(traced, groups=tuple(replace(group, frozen=None) for group in traced.groups[:1]) + traced.groups[1:])
    state = torch.random.get_rng_state()
    first = aacp.Inheritance(model, free, part[0], importance=first_first)
    subject.require_equal(first, aacp.Structure((5,)))
    last = aacp.Inheritance(model, free, part[0], importance=last_first)
    with pytest.raises(aacp.UntraceableModel, match=r"cut to \[5\] does not compute"):
        subject.require_equal(last, aacp.Structure((5,)))
    assert torch.equal(torch.random.get_rng_state(), state)


class Joining(nn.Module):
    """Gives the outputs of a convolution as an image, or joins them with `view`, which needs the plain layout."""

    def __init__(self, is_view: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.is_view = is_view

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.conv(images)
        return found.view(len(found), -1) if self.is_view else found


@pytest.mark.parametrize(("is_view", "layout"), [(False, CHANNELS_LAST), (True, PLAIN)])
def test_a_network_is_scored_in_the_layout_in_which_it_computes_fastest(is_view: bool, layout) -> None:
    def score(network: nn.Module, batches: aacp.Batches) -> float:
        seen.append(network.conv.weight.is_contiguous(memory_format=layout))
        return float(all(network(inputs).is_contiguous() for inputs in batches.inputs()))

    seen: list[bool] = []
    model, part = Joining(is_view), (torch.randn(20, 3, 12, 12), torch.randint(0, 4, (20,)))
    subject = PruningTask(model, aacp.Data.of(part, part), "joining", torch.device("cpu"), score)
    assert subject.score_network(model, subject.data.test) == 1  # outputs are contiguous, as before
    assert seen == [True]
    assert model.conv.weight.is_contiguous()
    assert not model._forward_hooks


def test_a_budget_out_of_reach_is_rejected_before_a_training_step_is_tried(data, tmp_path: Path, monkeypatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("a step of training")

    monkeypatch.setattr(pruning, "check_training_step", unexpected)
    with pytest.raises(aacp.InfeasibleBudget, match=r"0\.9999 cannot be met"):
        aacp.prune(network(), data, {"macs": 0.9999}, tmp_path / "run", plan=PLAN)
