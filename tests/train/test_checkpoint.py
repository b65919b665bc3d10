"""Resuming: a run that was cut off at any moment ends with the same weights, to the last bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import MixedPrecision
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aacp.errors import Diverged, RunLocked, RunMismatch
from aacp.runs.files import LOG, RUN, STATE, WEIGHTS
from aacp.runs.folder import RunFolder
from aacp.runs.manifest import MANIFEST
from aacp.train.checkpoint import Checkpoint
from aacp.train.loop import Trained, fit
from aacp.train.recipe import Recipe
from aacp.train.trained_as import TrainedDirectly
from aacp.train.update import PlainUpdate
from train.small_data import network, same, small_images, weights

RECIPE = Recipe(
    epochs=4,
    batch_size=24,
    lr=0.1,
    warmup_epochs=1,
    nesterov=True,
    average=0.9,
    distillation=0.5,
    label_smoothing=0.1,
    mixing=0.5,
)
STEPS = 4  # an epoch


class Killed(BaseException):
    """Nothing in aacp may catch it."""


def train(folder: Path | None, data: Any = None, recipe: Recipe = RECIPE) -> tuple[nn.Module, Trained]:
    model = network(dropout=0.2)
    teacher = network(5) if recipe.distillation else None
    source = small_images() if data is None else data
    return model, fit(model, source, recipe, teacher=teacher, folder=folder, holdout=small_images(30), device="cpu")


def killed_at_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    counter, original = iter(range(10**9)), PlainUpdate.__call__

    def step(self: PlainUpdate, inputs: Any, targets: Any, lr: float) -> torch.Tensor:
        if next(counter) == number:
            raise Killed
        return original(self, inputs, targets, lr)

    monkeypatch.setattr(PlainUpdate, "__call__", step)


@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, 4 * STEPS, 3))
def test_killed_in_the_middle_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    whole, expected = train(None)
    with monkeypatch.context() as patched:
        killed_at_step(patched, step)
        with pytest.raises(Killed):
            train(tmp_path)
    resumed, trained = train(tmp_path)
    assert same(weights(resumed), weights(whole))
    assert [epoch.loss for epoch in trained.epochs] == [epoch.loss for epoch in expected.epochs]
    assert [epoch.holdout for epoch in trained.epochs] == [epoch.holdout for epoch in expected.epochs]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before the state", "after the state", "while the state is written"])
def test_killed_between_log_and_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    whole, _ = train(None)
    original = Checkpoint.write

    def write(self: Checkpoint, epochs: int) -> None:
        if epochs < 2:
            return original(self, epochs)
        if moment == "after the state":
            original(self, epochs)
        if moment == "while the state is written":
            (self.folder.path / f".{STATE}.123").write_bytes(b"half of it")
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", write)
        with pytest.raises(Killed):
            train(tmp_path)
    assert len(RunFolder(tmp_path).read_log(LOG)) == 2
    resumed, _ = train(tmp_path)
    assert same(weights(resumed), weights(whole))
    assert [record["epoch"] for record in RunFolder(tmp_path).read_log(LOG)] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dataset", "loader", "loader with a generator"])
def test_data_sets_and_shuffling_loaders_continue_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    images = small_images()
    dataset = TensorDataset(images.normalised(images.pixels), images.labels)

    def source() -> Any:
        if kind == "dataset":
            return dataset
        generator = torch.Generator() if "generator" in kind else None
        return DataLoader(dataset, batch_size=24, shuffle=True, generator=generator)

    whole, _ = train(None, source())
    with monkeypatch.context() as patched:
        killed_at_step(patched, 2 * STEPS + 1)
        with pytest.raises(Killed):
            train(tmp_path, source())
    resumed, _ = train(tmp_path, source())
    assert same(weights(resumed), weights(whole))


@pytest.mark.slow
def test_a_finished_run_returns_at_once_with_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, trained = train(tmp_path)
    killed_at_step(monkeypatch, 0)
    again, found = train(tmp_path)
    assert same(weights(again), weights(model))
    assert found == trained


def test_the_folder_holds_the_weights_and_a_line_for_each_epoch(tmp_path: Path) -> None:
    model, trained = train(tmp_path)
    assert same(load_file(tmp_path / WEIGHTS), weights(model))
    lines = RunFolder(tmp_path).read_log(LOG)
    assert lines == [epoch.to_json() for epoch in trained.epochs]
    assert set(lines[0]) == {"epoch", "lr", "loss", "accuracy", "holdout", "seconds", "images_per_second", "limit"}


@pytest.mark.slow
def test_a_folder_of_another_run_is_rejected_and_says_what_differs(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(RunMismatch, match=r"recipe lr was 0.1, now 0.2"):
        train(tmp_path, recipe=replace(RECIPE, lr=0.2))
    with pytest.raises(RunMismatch, match=r"data digest was .*data shape was \[96, 2, 6, 6\], now \[80, 2, 6, 6\]"):
        train(tmp_path, small_images(80))
    with pytest.raises(RunMismatch, match="starting weights"):
        fit(network(3), small_images(), RECIPE, teacher=network(5), folder=tmp_path, device="cpu")
    with pytest.raises(RunMismatch, match="teachers was"):
        fit(network(dropout=0.2), small_images(), RECIPE, teacher=network(6), folder=tmp_path, device="cpu")


@pytest.mark.slow
def test_statistics_that_differ_in_their_last_bits_are_the_same_start(tmp_path: Path) -> None:
    """An inherited network is recalibrated again when a run resumes, perhaps on another device."""
    train(tmp_path)
    model = network(dropout=0.2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean += 1e-7
    fit(model, small_images(), RECIPE, teacher=network(5), folder=tmp_path, device="cpu")
    assert same(load_file(tmp_path / WEIGHTS), weights(model))


def test_a_folder_from_before_a_setting_was_there_resumes(tmp_path: Path) -> None:
    plain = replace(RECIPE, mixing=0.0, epochs=1)
    train(tmp_path, recipe=plain)
    request = json.loads((tmp_path / "run.json").read_text())
    del request["recipe"]["mixing"]
    (tmp_path / "run.json").write_text(json.dumps(request))
    train(tmp_path, recipe=plain)
    with pytest.raises(RunMismatch, match=r"recipe mixing was 0\.0, now 0\.5"):
        train(tmp_path, recipe=replace(RECIPE, epochs=1))


def test_a_training_with_another_loss_is_rejected(tmp_path: Path) -> None:
    def trained(loss: Any, until: int | None = None) -> Trained:
        recipe = Recipe(epochs=2, batch_size=24, lr=0.1)
        return fit(network(), small_images(), recipe, loss=loss, folder=tmp_path, device="cpu", until=until)

    trained(nn.CrossEntropyLoss(label_smoothing=0.1), 1)
    for other in (None, nn.CrossEntropyLoss(label_smoothing=0.2), lambda outputs, targets: outputs.sum()):
        with pytest.raises(RunMismatch, match=r"another training run: loss was torch.*CrossEntropyLoss#"):
            trained(other)
    request = json.loads((tmp_path / RUN).read_text())
    del request["loss"]  # as in a folder of an older version
    (tmp_path / RUN).write_text(json.dumps(request))
    assert trained(nn.CrossEntropyLoss(label_smoothing=0.1)).last.epoch == 2


def test_a_folder_in_use_is_rejected(tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(RunLocked):
        train(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"\x00" * 40, b"not a state at all, but long enough to be read as one"])
def test_a_state_that_cannot_be_read_is_rejected_by_name(tmp_path: Path, content: bytes) -> None:
    train(tmp_path)
    (tmp_path / STATE).write_bytes(content)
    (tmp_path / MANIFEST).unlink()  # as in a folder of an older version, whose files cannot be verified
    with pytest.raises(RunMismatch, match=f"{STATE} is not the state of this training run"):
        train(tmp_path)


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", [STATE, WEIGHTS, LOG, RUN])
def test_one_flipped_bit_of_a_finished_training_changes_neither_weights_nor_epochs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, trained = train(tmp_path)
    before = {each: (tmp_path / each).read_bytes() for each in (WEIGHTS, RUN)}
    flip(tmp_path / name, -60)
    again, found = train(tmp_path)
    assert f"{name} is damaged" in capsys.readouterr().err
    assert same(weights(again), weights(model))
    assert [epoch.loss for epoch in found.epochs] == [epoch.loss for epoch in trained.epochs]
    assert {each: (tmp_path / each).read_bytes() for each in before} == before
    train(tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_the_log_of_a_training_is_restored_if_it_is_deleted(tmp_path: Path) -> None:
    _, trained = train(tmp_path)
    (tmp_path / LOG).unlink()
    assert train(tmp_path)[1] == trained


@pytest.mark.slow
def test_a_training_continues_with_the_threads_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with monkeypatch.context() as patched:
        killed_at_step(patched, 2 * STEPS)
        with pytest.raises(Killed):
            train(tmp_path)
    assert json.loads((tmp_path / RUN).read_text())["threads"] == 3
    assert used == []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    train(tmp_path)
    assert used == [3, 5]
    assert "began with 3 threads and continues with 3, not 5" in capsys.readouterr().err
    train(tmp_path)  # nothing is left to compute
    assert used == [3, 5]


@pytest.mark.slow
def test_a_training_in_float16_continues_with_its_loss_scaling(tmp_path: Path) -> None:
    """The scale doubles after every second step, until gradients overflow and a step is skipped."""

    def trained(folder: Path | None, until: int | None = None) -> dict[str, torch.Tensor]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=2)
        fabric = Fabric(accelerator="cpu", devices=1, plugins=[MixedPrecision("16-mixed", "cpu", scaler=scaler)])
        model = network()
        fit(model, small_images(), Recipe(epochs=3, batch_size=24, lr=0.05), folder=folder, until=until, fabric=fabric)
        return weights(model)

    trained(tmp_path, until=1)
    trained(tmp_path, until=2)
    assert same(trained(tmp_path), trained(None))


@pytest.mark.parametrize(("name", "is_on_host"), [("step", True), ("distance", False), ("mu_product", True)])
def test_numbers_that_an_optimiser_keeps_in_tensors_return_to_their_device(
    tmp_path: Path, name: str, is_on_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch itself keeps the numbers of steps on the CPU, and NAdam another one, except in fused optimisers."""
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    first = next(model.parameters())
    optimiser.state[first][name] = torch.tensor(3.0)
    checkpoint = Checkpoint(RunFolder(tmp_path), TrainedDirectly(model), optimiser)
    if name == "mu_product":  # as with a network on a GPU
        monkeypatch.setattr(Checkpoint, "_host_entries", lambda _: [["0.weight", name]])
    checkpoint.write(1)
    monkeypatch.setattr("aacp.train.checkpoint.device_of_model", lambda _: torch.device("meta"))
    checkpoint.restore()
    assert optimiser.state[first][name].device.type == ("cpu" if is_on_host else "meta")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine")
def test_the_state_of_an_optimiser_is_on_the_same_devices_after_a_resumption(tmp_path: Path) -> None:
    def nadam(parameters: Any, lr: float) -> torch.optim.Optimizer:
        made.append(torch.optim.NAdam(parameters, lr=lr))
        return made[-1]

    made: list[torch.optim.Optimizer] = []
    recipe = Recipe(epochs=2, batch_size=24, lr=0.01, optimiser=nadam)
    for until in (1, None):
        fit(network(), small_images(), recipe, folder=tmp_path, until=until, device="cuda")
    before, after = (
        [{key: value.device.type for key, value in state.items()} for state in each.state.values()] for each in made
    )
    assert before == after
    assert "cpu" in before[0].values()


def test_a_run_that_diverges_keeps_the_state_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, original = iter(range(10**9)), PlainUpdate.__call__

    def step(self: PlainUpdate, inputs: Any, targets: Any, lr: float) -> torch.Tensor:
        outcome = original(self, inputs, targets, lr)
        return outcome * torch.nan if next(counter) == 2 * STEPS + 1 else outcome

    whole, _ = train(None)
    with monkeypatch.context() as patched:
        patched.setattr(PlainUpdate, "__call__", step)
        with pytest.raises(Diverged, match="step 2 of epoch 3"):
            train(tmp_path)
    assert len(RunFolder(tmp_path).read_log(LOG)) == 2
    resumed, _ = train(tmp_path)
    assert same(weights(resumed), weights(whole))


def test_the_request_is_on_disk_in_readable_form(tmp_path: Path) -> None:
    train(tmp_path)
    request = json.loads((tmp_path / RUN).read_text())
    assert request["recipe"]["lr"] == 0.1
    assert request["data"]["shape"] == [96, 2, 6, 6]
