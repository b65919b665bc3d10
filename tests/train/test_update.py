"""One update of the weights, against a loop written out with torch's own parts; and the captured one against it."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from aacp.accelerate.norms import QuickBatchNorm2d, our_kernels, quick_norms
from aacp.errors import InvalidOption
from aacp.train.averaging import Average
from aacp.train.devices import make_fabric
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.session import Session
from aacp.train.sources import source_of
from aacp.train.step import WARM_UP, CapturedStep, hits, sgd
from train.small_data import network, pictures, weights

RECIPE = Recipe(epochs=3, batch_size=16, lr=0.1, warmup_epochs=1, nesterov=True, weight_decay=1e-3)
TAUGHT = replace(RECIPE, distillation=0.6, temperature=2.0)
CPU = torch.device("cpu")


def written_out(recipe: Recipe, average: float = 0.0) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The same training in the plainest terms: the network, and the moving average of its state."""
    model, teacher = network(), network(5).eval()
    optimiser = torch.optim.SGD(
        model.parameters(), recipe.lr, recipe.momentum, nesterov=recipe.nesterov, weight_decay=recipe.weight_decay
    )
    source = source_of(pictures(), recipe, make_fabric(device="cpu"))
    mean = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for epoch in range(recipe.epochs):
        for step, (inputs, labels) in enumerate(source.epoch(epoch)):
            optimiser.param_groups[0]["lr"] = recipe.lr_at(epoch * source.steps + step, source.steps)
            outputs = model(inputs)
            loss = F.cross_entropy(outputs, labels)
            if recipe.distillation:
                soft, answer = ((logits / 2).log_softmax(1) for logits in (teacher(inputs).detach(), outputs))
                loss = 0.4 * loss + 0.6 * 4 * F.kl_div(answer, soft, log_target=True, reduction="batchmean")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            for name, tensor in model.state_dict().items():
                if tensor.is_floating_point():
                    mean[name] = average * mean[name] + (1 - average) * tensor
    return model, mean


@pytest.mark.parametrize("recipe", [RECIPE, TAUGHT], ids=["labels", "teacher"])
def test_training_is_the_loop_one_would_write_by_hand(recipe: Recipe) -> None:
    model = network()
    fit(model, pictures(), recipe, teacher=network(5) if recipe.distillation else None, device="cpu")
    expected, _ = written_out(recipe)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_the_average_is_kept_as_the_result_if_the_recipe_says_so() -> None:
    model = network()
    fit(model, pictures(), replace(RECIPE, average=0.8), device="cpu")
    _, expected = written_out(RECIPE, average=0.8)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_an_average_in_place_gives_the_network_back() -> None:
    model = network()
    average, before = Average(model, 0.5), weights(model)
    with torch.no_grad():
        model[0].weight.add_(1.0)  # type: ignore[union-attr,operator]
    average.update()
    with average.in_place():
        torch.testing.assert_close(model[0].weight, before["0.weight"] + 0.5)  # type: ignore[union-attr]
    torch.testing.assert_close(model[0].weight, before["0.weight"] + 1.0)  # type: ignore[union-attr]


def test_norms_and_biases_are_spared_weight_decay_when_asked() -> None:
    model = network()
    optimiser = sgd(model, replace(RECIPE, decays_norms=False), CPU)
    decay = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    found = {name: decay[id(parameter)] for name, parameter in model.named_parameters()}
    assert found == {"0.weight": 1e-3, "1.weight": 0.0, "1.bias": 0.0, "6.weight": 1e-3, "6.bias": 0.0}


def test_hits_are_the_share_of_right_answers_and_nothing_where_that_has_no_meaning() -> None:
    assert float(hits(torch.eye(4), torch.tensor([0, 1, 0, 0]))) == 0.5
    assert hits(torch.zeros(4, 1), torch.zeros(4)).isnan()


def test_capturing_is_refused_where_there_is_no_gpu() -> None:
    with pytest.raises(InvalidOption, match="capture=True needs one CUDA device"):
        fit(network(), pictures(), RECIPE, device="cpu", capture=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_captured_steps_give_what_written_ones_give(average: float) -> None:
    recipe = replace(TAUGHT, precision="32-true", average=average, epochs=2)
    found = []
    for capture in (False, True):
        fabric, model = make_fabric("32-true"), network().cuda()
        session = Session(model, source_of(pictures(), recipe, fabric), recipe, fabric, network(5), capture=capture)
        epochs = [session.run_epoch(number) for number in range(2)]
        if capture:
            assert isinstance(session.step, CapturedStep)
            assert session.step.graph is not None
        found.append((epochs, copy.deepcopy(model).cpu().state_dict(), session.average and session.average.state()))
    (one, state, mean), (other, captured, captured_mean) = found
    assert [epoch.loss for epoch in one] == pytest.approx([epoch.loss for epoch in other], rel=1e-3)
    for name, tensor in state.items():
        torch.testing.assert_close(captured[name], tensor, rtol=1e-2, atol=1e-3, msg=name)
    for name in mean or {}:
        torch.testing.assert_close(captured_mean[name], mean[name], rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_network_that_waits_for_the_device_trains_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    class Waiting(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert float(x.sum()) == float(x.sum())
            return super().forward(x)

    model = Waiting(*network(dropout=0.2))
    trained = fit(model, pictures(), replace(RECIPE, epochs=4), device="cuda")
    assert trained.last.loss < trained.epochs[0].loss
    assert next(model.parameters()).device.type == "cpu"
    assert capsys.readouterr().err.startswith("The step cannot be captured and runs as written: the network waits")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_loaders_with_ragged_batches_and_dropout_are_captured_too() -> None:
    images = pictures(100, padding=0)
    loader = DataLoader(
        TensorDataset(images.normalised(images.pixels), images.labels), 16, num_workers=1, pin_memory=True
    )
    fabric = make_fabric()
    recipe = replace(RECIPE, epochs=8)
    session = Session(network(dropout=0.2), source_of(loader, recipe, fabric), recipe, fabric)
    epochs = [session.run_epoch(number) for number in range(8)]
    assert isinstance(session.step, CapturedStep)
    assert session.step.graph is not None
    assert epochs[-1].loss < epochs[0].loss / 1.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_with_quick_norms_and_halves_learn_what_they_learn_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels, calls, found = our_kernels(), [], []
    assert kernels is not None
    normalise = kernels.normalise
    monkeypatch.setattr(kernels, "normalise", lambda *given: calls.append(1) or normalise(*given))
    for is_quick in (False, True):
        fabric, model = make_fabric("bf16-mixed", "cuda"), network()
        with quick_norms(model, fabric) if is_quick else nullcontext():
            assert type(model[1]) is (QuickBatchNorm2d if is_quick else torch.nn.BatchNorm2d)  # type: ignore[index]
            session = Session(model, source_of(pictures(), RECIPE, fabric), RECIPE, fabric)
            assert isinstance(session.step, CapturedStep)
            assert session.step.step.halves is not None
            if not is_quick:
                session.step.step.halves = None
            epochs = [session.run_epoch(number) for number in range(3)]
            assert session.step.graph is not None
        assert int(model[1].num_batches_tracked) == 3 * session.source.steps  # type: ignore[index,union-attr]
        assert len(calls) == is_quick * (WARM_UP + 1)
        found.append([epoch.loss for epoch in epochs])
    assert found[0] == pytest.approx(found[1], rel=0.05)
