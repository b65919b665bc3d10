"""Widening: what is trained inside a wider network comes out as if it had been trained in its own widths."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aacp.accelerate import widening
from aacp.accelerate.growing import Growth
from aacp.accelerate.widening import examples, growth_for, is_worthwhile, multiple_of, widened
from aacp.errors import InvalidOption
from aacp.train.checkpoint import STATE, WEIGHTS
from aacp.train.devices import make_fabric
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.session import Session
from aacp.train.sources import source_of
from aacp.train.step import Step, sgd
from train.small_data import digits, farthest, in_double, network, odd_resnet, pictures, same, weights

RECIPE = Recipe(
    epochs=3,
    batch_size=16,
    lr=0.05,
    warmup_epochs=1,
    nesterov=True,
    weight_decay=1e-3,
    average=0.9,
    label_smoothing=0.1,
)
CPU = torch.device("cpu")


def shown(data: Any) -> Any:
    fabric = make_fabric(device="cpu")
    return examples(source_of(data, RECIPE, fabric), fabric)


@pytest.mark.parametrize(("name", "size"), [("digits_resnet", (1, 8, 8)), ("resnet20", (3, 8, 8))])
def test_a_widened_run_gives_the_weights_of_a_run_in_its_own_widths(name: str, size: tuple[int, int, int]) -> None:
    data, found = in_double(16, size), []
    for widen in (1, 8):
        model = odd_resnet(name, size).double()
        fit(model, data, replace(RECIPE, epochs=2, batch_size=8), widen=widen, device="cpu")
        found.append(model)
    assert any(layer.out_channels % 8 for layer in found[0].modules() if isinstance(layer, nn.Conv2d))
    assert 0 < farthest(*found) < 1e-9


def test_it_does_so_in_single_precision_on_the_digits_too() -> None:
    found = [odd_resnet(), odd_resnet()]
    epochs = [
        fit(model, digits(), RECIPE, holdout=digits(), widen=widen, device="cpu").last
        for model, widen in zip(found, (1, 8), strict=True)
    ]
    assert farthest(*found) < 1e-3
    assert epochs[0].loss == pytest.approx(epochs[1].loss, rel=1e-3)
    assert epochs[0].holdout == pytest.approx(epochs[1].holdout, abs=0.05)


def test_the_callers_network_is_the_one_that_learns_and_comes_back_as_it_came() -> None:
    model = odd_resnet()
    model.bn1.eval()
    held, modes = list(model.parameters()), [module.training for module in model.modules()]
    before, shapes = weights(model), [parameter.shape for parameter in model.parameters()]
    fit(model, digits(), replace(RECIPE, epochs=1), widen=8, device="cpu")
    assert all(one is other for one, other in zip(model.parameters(), held, strict=True))
    assert [parameter.shape for parameter in model.parameters()] == shapes
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Killed(BaseException):
    """Nothing of ours may catch it."""


def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(folder: Path | None, widen: int = 8) -> nn.Module:
        model = odd_resnet()
        fit(model, digits(), RECIPE, holdout=digits(), folder=folder, widen=widen, device="cpu")
        return model

    whole, counter, original = run(None), iter(range(10**9)), Step.__call__

    def step(self: Step, inputs: Any, targets: Any, lr: float) -> torch.Tensor:
        if next(counter) == 6:
            raise Killed
        return original(self, inputs, targets, lr)

    with monkeypatch.context() as patched:
        patched.setattr(Step, "__call__", step)
        with pytest.raises(Killed):
            run(tmp_path / "same")
    shutil.copytree(tmp_path / "same", tmp_path / "elsewhere")
    for folder, again in ((tmp_path / "same", 8), (tmp_path / "elsewhere", 1)):
        # The state is that of the caller's network, so that a machine without tensor cores can go on with it.
        kept = {name: value for name, value in load_file(folder / STATE).items() if name.startswith("model/")}
        assert {name.removeprefix("model/"): value.shape for name, value in kept.items()} == {
            name: value.shape for name, value in whole.state_dict().items()
        }
        resumed = run(folder, again)
        assert same(load_file(folder / WEIGHTS), weights(resumed))
        assert same(weights(resumed), weights(whole)) if again == 8 else farthest(resumed, whole) < 1e-3


def test_a_run_that_fails_leaves_what_it_had_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    original, counter = Step.__call__, iter(range(10**9))

    def step(self: Step, inputs: Any, targets: Any, lr: float) -> torch.Tensor:
        if next(counter) == 2:
            raise OSError("the data is gone")
        return original(self, inputs, targets, lr)

    monkeypatch.setattr(Step, "__call__", step)
    model = odd_resnet()
    before = weights(model)
    with pytest.raises(OSError, match="the data is gone"):
        fit(model, digits(), RECIPE, widen=8, device="cpu")
    assert not same(weights(model), before)


def test_the_optimiser_decays_the_same_parameters() -> None:
    model, recipe = odd_resnet(), replace(RECIPE, decays_norms=False)
    growth = growth_for(model, shown(digits()), 8)
    assert isinstance(growth, Growth)
    decays = []
    for one in (model, growth.grown(model)):
        optimiser = sgd(one, recipe, CPU)
        decay = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
        decays.append({name: decay[id(parameter)] for name, parameter in one.named_parameters()})
    assert decays[0] == decays[1]


def test_it_is_the_wider_network_that_is_trained_and_what_is_new_in_it_stays_zero() -> None:
    model, fabric = odd_resnet(), make_fabric(device="cpu")
    source = source_of(digits(), RECIPE, fabric)
    with widened(model, shown(digits()), fabric, 8) as stand_in:
        assert stand_in.growth is not None
        layers = [layer for layer in stand_in.trained.modules() if isinstance(layer, nn.Conv2d)]
        assert all(layer.out_channels % 8 == 0 for layer in layers)
        session = Session(stand_in.trained, source, RECIPE, fabric)
        for number in range(5):  # 20 steps
            session.run_epoch(number)
        assert session.average is not None
        for held in (dict(stand_in.trained.named_parameters()), session.average.state()):
            for name, value in held.items():
                if "running" not in name:
                    own = stand_in.growth.narrowed(name, value)
                    assert torch.equal(stand_in.growth.widened(name, own), value), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_in_half_precision_and_captured_what_is_new_stays_zero_too() -> None:
    model, fabric = odd_resnet(), make_fabric("bf16-mixed", "cuda")
    recipe = replace(RECIPE, distillation=0.5)
    source = source_of(digits(), recipe, fabric)
    with widened(model, examples(source, fabric), fabric, 8) as stand_in:
        assert stand_in.growth is not None
        session = Session(stand_in.trained, source, recipe, fabric, odd_resnet())
        epochs = [session.run_epoch(number) for number in range(5)]
        for name, value in stand_in.trained.named_parameters():
            own = stand_in.growth.narrowed(name, value.detach())
            assert torch.equal(stand_in.growth.widened(name, own), value), name
    assert epochs[-1].loss < epochs[0].loss


# -- what is left alone -----------------------------------------------------------------------------------------------


def layer_norm_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(1, 6), nn.SiLU(), nn.Flatten(), nn.Linear(96, 4))


def test_a_network_that_would_notice_is_trained_as_it_is_and_says_so_if_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = layer_norm_network(), layer_norm_network()
    fit(one, pictures(), RECIPE, widen=8, device="cpu")
    assert capsys.readouterr().err == ""
    fit(other, pictures(), RECIPE, widen=1, device="cpu")
    assert same(weights(one), weights(other))
    fit(other, pictures(), replace(RECIPE, epochs=1), widen=8, device="cpu", verbose=True)
    assert capsys.readouterr().err.startswith("The network is trained in its own widths: outputs differ by")


def test_networks_that_others_know_are_left_alone() -> None:
    inputs = shown(pictures())
    assert isinstance(growth_for(network(), inputs, 8), Growth)
    assert growth_for(network(), inputs, 3) == "they are multiples of 3"
    hooked, watched, compiled = network(), network(), network()
    hooked[0].register_forward_hook(lambda *_: None)  # type: ignore[index, operator]
    next(watched.parameters()).register_hook(lambda gradient: gradient)
    compiled.compile()
    assert {growth_for(model, inputs, 8) for model in (hooked, watched, compiled)} == {
        "it is compiled or has hooks, which might know it"
    }
    assert "does not run on the example" in str(growth_for(nn.Sequential(nn.Conv2d(3, 5, 1)), inputs, 8))


def test_dropout_draws_other_masks_and_trains_as_well() -> None:
    found = [
        fit(network(dropout=0.2), pictures(), replace(RECIPE, epochs=4), widen=widen, device="cpu").last
        for widen in (1, 8)
    ]
    assert found[0].loss != found[1].loss
    assert found[0].loss == pytest.approx(found[1].loss, rel=0.3)


def test_any_source_shows_its_first_examples_and_leaves_torchs_generator_alone() -> None:
    images = pictures()
    tensors = TensorDataset(images.normalised(images.pixels), images.labels)
    model, before = network(), torch.get_rng_state()
    for data in (images, tensors, DataLoader(tensors, 16, shuffle=True)):
        assert shown(data).shape == (4, 2, 6, 6)
    assert isinstance(growth_for(model, shown(images), 8), Growth)
    assert torch.equal(torch.get_rng_state(), before)


def test_widths_are_rounded_where_it_is_faster_and_repaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widening, "half_type", lambda fabric: fabric.half)
    gpu, cpu = (SimpleNamespace(device=torch.device(kind), half=torch.bfloat16) for kind in ("cuda", "cpu"))
    single = SimpleNamespace(device=torch.device("cuda"), half=None)
    source = SimpleNamespace(steps=390)

    def found(fabric: Any, epochs: int = 100) -> bool:
        return is_worthwhile(replace(RECIPE, epochs=epochs), source, fabric)  # type: ignore[arg-type]

    assert [found(gpu), found(cpu), found(single), found(gpu, epochs=3)] == [True, False, False, False]
    assert [multiple_of(None, True), multiple_of(None, False)] == [8, 1]
    assert [multiple_of(16, False), multiple_of(1, True)] == [16, 1]
    with pytest.raises(InvalidOption, match="widen is 0"):
        multiple_of(0, True)
