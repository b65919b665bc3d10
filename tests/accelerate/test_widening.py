"""Widening: training inside a wider network gives the same result as training at the network's own widths."""

from __future__ import annotations

import shutil
from collections.abc import Callable
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
from aacp.accelerate.widening import TrainedWider, example_inputs, growth_for, is_worthwhile, widened
from aacp.runs.files import STATE, WEIGHTS
from aacp.train.fabric import make_fabric
from aacp.train.loop import fit
from aacp.train.optimisers import optimiser_for
from aacp.train.recipe import Recipe
from aacp.train.session import Session
from aacp.train.sources import batches_of
from aacp.train.update import PlainUpdate
from aacp.user.progress import show_progress
from train.small_data import digits, farthest, in_double, network, odd_resnet, same, small_images, weights

pytestmark = pytest.mark.slow

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


@pytest.fixture
def widening_pays(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Decides whether `fit` trains wider networks, which by itself it never does on a CPU."""

    def decide(pays: bool) -> None:
        monkeypatch.setattr(widening, "is_worthwhile", lambda steps, fabric: pays and steps > 0)

    return decide


Decide = Callable[[bool], None]


def shown(data: Any) -> Any:
    fabric = make_fabric(device="cpu")
    return example_inputs(batches_of(data, RECIPE, fabric), fabric)


@pytest.mark.parametrize(("name", "size"), [("digits_resnet", (1, 8, 8)), ("resnet20", (3, 8, 8))])
def test_a_widened_run_gives_the_weights_of_a_run_in_its_own_widths(
    name: str, size: tuple[int, int, int], widening_pays: Decide
) -> None:
    data, found = in_double(16, size), []
    for pays in (False, True):
        widening_pays(pays)
        model = odd_resnet(name, size).double()
        fit(model, data, replace(RECIPE, epochs=2, batch_size=8), device="cpu")
        found.append(model)
    assert any(layer.out_channels % 8 for layer in found[0].modules() if isinstance(layer, nn.Conv2d))
    assert 0 < farthest(*found) < 1e-9


def test_it_does_so_in_single_precision_on_the_digits_too(widening_pays: Decide) -> None:
    found, epochs = [odd_resnet(), odd_resnet()], []
    for model, pays in zip(found, (False, True), strict=True):
        widening_pays(pays)
        epochs.append(fit(model, digits(), RECIPE, holdout=digits(), device="cpu").last)
    assert farthest(*found) > 0
    assert farthest(*found) < 1e-3
    assert epochs[0].loss == pytest.approx(epochs[1].loss, rel=1e-3)
    assert epochs[0].holdout == pytest.approx(epochs[1].holdout, abs=0.05)


def test_the_callers_network_is_the_one_that_learns_and_comes_back_as_it_came(widening_pays: Decide) -> None:
    widening_pays(True)
    model = odd_resnet()
    model.bn1.eval()
    held, modes = list(model.parameters()), [module.training for module in model.modules()]
    before, shapes = weights(model), [parameter.shape for parameter in model.parameters()]
    fit(model, digits(), replace(RECIPE, epochs=1), device="cpu")
    assert all(one is other for one, other in zip(model.parameters(), held, strict=True))
    assert [parameter.shape for parameter in model.parameters()] == shapes
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class KeepsItsLastOutput(nn.Module):
    """Keeps the outputs of the last batch in an attribute, and what they were multiplied with in another."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.zeros(0)
        self.factor = torch.ones(4)
        self.body = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.logits = self.body(x).detach()
        return self.body(x) * self.factor


def test_outputs_that_a_network_keeps_do_not_prevent_that_its_weights_come_back() -> None:
    model = KeepsItsLastOutput()
    model.eval()(torch.randn(3, 2, 6, 6))
    before = weights(model)
    with widened(model, torch.randn(4, 2, 6, 6), make_fabric(device="cpu"), 8) as trained_as:
        assert isinstance(trained_as, TrainedWider)
        trained_as.network.factor.fill_(2)
        with torch.no_grad():
            for parameter in trained_as.network.parameters():
                parameter += 1
        trained_as.network(torch.randn(16, 2, 6, 6))
    assert all(torch.equal(value, before[name] + 1) for name, value in model.named_parameters())
    assert model.factor.tolist() == [2, 2, 2, 2]


class Killed(BaseException):
    """Nothing in aacp may catch it."""


def test_a_run_that_was_killed_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widening_pays: Decide
) -> None:
    def run(folder: Path | None, pays: bool = True) -> nn.Module:
        widening_pays(pays)
        model = odd_resnet()
        fit(model, digits(), RECIPE, holdout=digits(), folder=folder, device="cpu")
        return model

    whole, counter, original = run(None), iter(range(10**9)), PlainUpdate.__call__

    def step(self: PlainUpdate, inputs: Any, targets: Any, lr: float) -> torch.Tensor:
        if next(counter) == 6:
            raise Killed
        return original(self, inputs, targets, lr)

    with monkeypatch.context() as patched:
        patched.setattr(PlainUpdate, "__call__", step)
        with pytest.raises(Killed):
            run(tmp_path / "same")
    shutil.copytree(tmp_path / "same", tmp_path / "elsewhere")
    for folder, again in ((tmp_path / "same", True), (tmp_path / "elsewhere", False)):
        # The state is that of the caller's network, so that a machine without tensor cores can resume it.
        kept = {name: value for name, value in load_file(folder / STATE).items() if name.startswith("model/")}
        assert {name.removeprefix("model/"): value.shape for name, value in kept.items()} == {
            name: value.shape for name, value in whole.state_dict().items()
        }
        resumed = run(folder, again)
        assert same(load_file(folder / WEIGHTS), weights(resumed))
        assert same(weights(resumed), weights(whole)) if again else farthest(resumed, whole) < 1e-3


def test_a_run_that_fails_leaves_what_it_had_learnt(monkeypatch: pytest.MonkeyPatch, widening_pays: Decide) -> None:
    widening_pays(True)
    original, counter = PlainUpdate.__call__, iter(range(10**9))

    def step(self: PlainUpdate, inputs: Any, targets: Any, lr: float) -> torch.Tensor:
        if next(counter) == 2:
            raise OSError("the data is gone")
        return original(self, inputs, targets, lr)

    monkeypatch.setattr(PlainUpdate, "__call__", step)
    model = odd_resnet()
    before = weights(model)
    with pytest.raises(OSError, match="the data is gone"):
        fit(model, digits(), RECIPE, device="cpu")
    assert not same(weights(model), before)


def test_the_optimiser_decays_the_same_parameters() -> None:
    model, recipe = odd_resnet(), replace(RECIPE, decays_norms=False)
    growth = growth_for(model, shown(digits()), 8)
    assert isinstance(growth, Growth)
    decays = []
    for one in (model, growth.grown(model)):
        optimiser = optimiser_for(one, recipe, CPU)
        decay = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
        decays.append({name: decay[id(parameter)] for name, parameter in one.named_parameters()})
    assert decays[0] == decays[1]


def test_it_is_the_wider_network_that_is_trained_and_what_is_new_in_it_stays_zero() -> None:
    model, fabric = odd_resnet(), make_fabric(device="cpu")
    source = batches_of(digits(), RECIPE, fabric)
    with widened(model, shown(digits()), fabric, 8) as trained_as:
        assert isinstance(trained_as, TrainedWider)
        layers = [layer for layer in trained_as.network.modules() if isinstance(layer, nn.Conv2d)]
        assert all(layer.out_channels % 8 == 0 for layer in layers)
        session = Session(trained_as.network, source, RECIPE, fabric)
        for number in range(5):  # 20 steps
            session.run_epoch(number)
        assert session.average is not None
        for held in (dict(trained_as.network.named_parameters()), session.average.state()):
            for name, value in held.items():
                if "running" not in name:
                    own = trained_as.growth.narrowed(name, value)
                    assert torch.equal(trained_as.growth.widened(name, own), value), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_in_half_precision_and_captured_what_is_new_stays_zero_too() -> None:
    model, fabric = odd_resnet(), make_fabric("bf16-mixed", "cuda")
    recipe = replace(RECIPE, distillation=0.5)
    source = batches_of(digits(), recipe, fabric)
    with widened(model, example_inputs(source, fabric), fabric, 8) as trained_as:
        assert isinstance(trained_as, TrainedWider)
        session = Session(trained_as.network, source, recipe, fabric, odd_resnet())
        epochs = [session.run_epoch(number) for number in range(5)]
        for name, value in trained_as.network.named_parameters():
            own = trained_as.growth.narrowed(name, value.detach())
            assert torch.equal(trained_as.growth.widened(name, own), value), name
    assert epochs[-1].loss < epochs[0].loss


# -- what is left alone -----------------------------------------------------------------------------------------------


def layer_norm_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(1, 6), nn.SiLU(), nn.Flatten(), nn.Linear(96, 4))


def test_a_network_that_would_notice_is_trained_as_it_is_and_reports_why(
    capsys: pytest.CaptureFixture[str], widening_pays: Decide
) -> None:
    one, other = layer_norm_network(), layer_norm_network()
    widening_pays(True)
    fit(one, small_images(), RECIPE, device="cpu")
    assert capsys.readouterr().err == ""
    fit(other, small_images(), RECIPE, accelerate=False, device="cpu")
    assert same(weights(one), weights(other))
    with show_progress():
        fit(other, small_images(), replace(RECIPE, epochs=1), device="cpu")
    assert capsys.readouterr().err.startswith("The network is trained in its own widths: outputs differ by")


@pytest.mark.parametrize("reason", ["own loss", "own score", "accelerate", "finished"])
def test_the_network_itself_is_trained_if_others_may_refer_to_it_or_nothing_is_left_to_do(
    reason: str, monkeypatch: pytest.MonkeyPatch, widening_pays: Decide, tmp_path: Path
) -> None:
    tried: list[nn.Module] = []
    widening_pays(True)
    monkeypatch.setattr(widening, "growth_for", lambda model, inputs, multiple: tried.append(model) or "as a test")
    recipe = replace(RECIPE, epochs=1)
    fit(network(), small_images(), recipe, folder=tmp_path, device="cpu")
    assert len(tried) == 1
    if reason == "own loss":
        fit(network(), small_images(), recipe, loss=nn.CrossEntropyLoss(), device="cpu")
    elif reason == "own score":
        fit(network(), small_images(), recipe, score=lambda model, batches: 0.0, device="cpu")
    elif reason == "accelerate":
        fit(network(), small_images(), recipe, accelerate=False, device="cpu")
    else:
        fit(network(), small_images(), recipe, folder=tmp_path, device="cpu")
    assert len(tried) == 1


def test_networks_that_others_know_are_left_alone() -> None:
    inputs = shown(small_images())
    assert isinstance(growth_for(network(), inputs, 8), Growth)
    assert growth_for(network(), inputs, 3) == "they are multiples of 3"
    hooked, watched, compiled = network(), network(), network()
    hooked[0].register_forward_hook(lambda *_: None)  # type: ignore[index, operator]
    next(watched.parameters()).register_hook(lambda gradient: gradient)
    compiled.compile()
    assert {growth_for(model, inputs, 8) for model in (hooked, watched, compiled)} == {
        "it is compiled or has hooks, which refer to it"
    }
    assert "does not run on the example" in str(growth_for(nn.Sequential(nn.Conv2d(3, 5, 1)), inputs, 8))


def test_dropout_draws_other_masks_and_trains_as_well(widening_pays: Decide) -> None:
    found = []
    for pays in (False, True):
        widening_pays(pays)
        found.append(fit(network(dropout=0.2), small_images(), replace(RECIPE, epochs=4), device="cpu").last)
    assert found[0].loss != found[1].loss
    assert found[0].loss == pytest.approx(found[1].loss, rel=0.3)


def test_any_source_shows_its_first_examples_and_leaves_torchs_generator_alone() -> None:
    images = small_images()
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
    assert is_worthwhile(2000, gpu)  # type: ignore[arg-type]
    assert not is_worthwhile(1999, gpu)  # type: ignore[arg-type]
    assert not is_worthwhile(2000, cpu)  # type: ignore[arg-type]
    assert not is_worthwhile(2000, single)  # type: ignore[arg-type]
