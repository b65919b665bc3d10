"""Captured updates on a GPU: CUDA graphs give the results of plain steps."""

from __future__ import annotations

import copy
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from aacp.accelerate.capture import WARM_UP_STEPS, CapturedUpdate
from aacp.accelerate.convolutions import convolution_kernels, fast_convolutions
from aacp.accelerate.norms import FastBatchNorm2d, fast_norms, norm_kernels
from aacp.accelerate.update import ConcurrentUpdate
from aacp.train.checkpoint import Checkpoint
from aacp.train.fabric import make_fabric
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.session import Session
from aacp.train.sources import batches_of
from train.small_data import network, small_images, weights
from written_kernels import wide_network

RECIPE = Recipe(epochs=3, batch_size=16, lr=0.1, warmup_epochs=1, nesterov=True, weight_decay=1e-3)
TAUGHT = replace(RECIPE, distillation=0.6, temperature=2.0)


class Killed(BaseException):
    """Nothing in aacp may catch it."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_captured_steps_give_what_plain_ones_give(average: float) -> None:
    recipe = replace(TAUGHT, precision="32-true", average=average, epochs=2)
    found = []
    for accelerate in (False, True):
        fabric, model = make_fabric("32-true"), network().cuda()
        source = batches_of(small_images(), recipe, fabric)
        session = Session(model, source, recipe, fabric, network(5), accelerate=accelerate)
        epochs = [session.run_epoch(number) for number in range(2)]
        if accelerate:
            assert isinstance(session.update, CapturedUpdate)
            assert session.update.graph is not None
        found.append((epochs, copy.deepcopy(model).cpu().state_dict(), session.average and session.average.state()))
    (one, state, mean), (other, captured, captured_mean) = found
    assert [epoch.loss for epoch in one] == pytest.approx([epoch.loss for epoch in other], rel=1e-3)
    for name, tensor in state.items():
        torch.testing.assert_close(captured[name], tensor, rtol=1e-2, atol=1e-3, msg=name)
    for name in mean or {}:
        torch.testing.assert_close(captured_mean[name], mean[name], rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_network_that_waits_for_the_device_trains_without_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    class Waiting(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert float(x.sum()) == float(x.sum())
            return super().forward(x)

    model = Waiting(*network(dropout=0.2))
    trained = fit(model, small_images(), replace(RECIPE, epochs=4), device="cuda")
    assert trained.last.loss < trained.epochs[0].loss
    assert next(model.parameters()).device.type == "cpu"
    said = capsys.readouterr().err
    assert said.startswith("The training step runs without a CUDA graph, because it cannot be captured: the network")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_loaders_with_ragged_batches_and_dropout_are_captured_too() -> None:
    images = small_images(100, padding=0)
    loader = DataLoader(
        TensorDataset(images.normalised(images.pixels), images.labels), 16, num_workers=1, pin_memory=True
    )
    fabric = make_fabric()
    recipe = replace(RECIPE, epochs=8)
    session = Session(network(dropout=0.2), batches_of(loader, recipe, fabric), recipe, fabric)
    epochs = [session.run_epoch(number) for number in range(8)]
    assert isinstance(session.update, CapturedUpdate)
    assert session.update.graph is not None
    assert epochs[-1].loss < epochs[0].loss / 1.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_with_fast_norms_and_half_weights_learn_what_they_learn_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels, calls, found = norm_kernels(), [], []
    assert kernels is not None
    normalise = kernels.normalise
    monkeypatch.setattr(kernels, "normalise", lambda *given: calls.append(1) or normalise(*given))
    for is_fast in (False, True):
        fabric, model = make_fabric("bf16-mixed", "cuda"), network()
        with fast_norms(model, fabric) if is_fast else nullcontext():
            assert type(model[1]) is (FastBatchNorm2d if is_fast else torch.nn.BatchNorm2d)  # type: ignore[index]
            session = Session(model, batches_of(small_images(), RECIPE, fabric), RECIPE, fabric)
            assert isinstance(session.update, CapturedUpdate)
            assert isinstance(session.update.update, ConcurrentUpdate)
            assert session.update.update.half_weights is not None
            if not is_fast:
                session.update.update.half_weights = None
            epochs = [session.run_epoch(number) for number in range(3)]
            assert session.update.graph is not None
        assert int(model[1].num_batches_tracked) == 3 * session.source.steps  # type: ignore[index,union-attr]
        assert len(calls) == is_fast * (WARM_UP_STEPS + 1)
        found.append([epoch.loss for epoch in epochs])
    assert found[0] == pytest.approx(found[1], rel=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_with_all_fast_layers_learn_what_plain_ones_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, calls, found = convolution_kernels(), [], []
    assert kernels is not None
    convolve = kernels.convolve_with_moments
    monkeypatch.setattr(kernels, "convolve_with_moments", lambda *given: calls.append(1) or convolve(*given))
    recipe = replace(TAUGHT, precision="bf16-mixed")
    for is_fast in (False, True):
        fabric, model = make_fabric("bf16-mixed", "cuda"), wide_network()
        with ExitStack() as stack:
            for fast in (fast_convolutions, fast_norms) if is_fast else ():
                stack.enter_context(fast(model, fabric))
            source = batches_of(small_images(), recipe, fabric)
            session = Session(model, source, recipe, fabric, wide_network(5), accelerate=is_fast)
            epochs = [session.run_epoch(number) for number in range(recipe.epochs)]
        if is_fast:
            assert isinstance(session.update, CapturedUpdate)
            assert session.update.graph is not None
        assert int(model[4].num_batches_tracked) == recipe.epochs * source.steps  # type: ignore[index,union-attr]
        found.append([epoch.loss for epoch in epochs])
    assert len(calls) == WARM_UP_STEPS  # from the second step on, and in the capture
    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert found[0][-1] < 0.9 * found[0][0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_run_resumes_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(folder: Path) -> dict[str, torch.Tensor]:
        model = network()
        recipe = replace(TAUGHT, epochs=4, average=0.9, mixing=0.5, label_smoothing=0.1, precision="32-true")
        fit(model, small_images(), recipe, teacher=network(5), folder=folder, device="cuda")
        return weights(model)

    original = Checkpoint.write

    def write(self: Checkpoint, epochs: int) -> None:
        original(self, epochs)
        if epochs == 2:
            raise Killed

    whole = run(tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", write)
        with pytest.raises(Killed):
            run(tmp_path / "killed")
    for name, tensor in run(tmp_path / "killed").items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-2, atol=1e-3, msg=name)
