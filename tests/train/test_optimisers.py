"""Optimisers, schedules and clipping of a recipe, compared with loops of torch, and resumed to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric.plugins.precision import MixedPrecision
from torch.nn import functional as F

import aacp
from aacp.train.fabric import make_fabric
from aacp.train.optimisers import optimiser_for
from aacp.train.recipe import DIGITS_FINETUNE, FINETUNE, FINETUNE_MIXED
from aacp.train.sources import CLIP, as_carried_out, batches_of
from train.small_data import network, same, small_images, weights

ADAMW = aacp.Recipe(epochs=3, batch_size=16, lr=2e-3, optimiser="adamw", weight_decay=0.1, warmup_epochs=1)
Step = Callable[[torch.optim.Optimizer], None]


def written_out(
    recipe: aacp.Recipe,
    make: Callable[[Any], torch.optim.Optimizer],
    clip: float = 0.0,
    build: Callable[[], torch.nn.Module] = network,
) -> torch.nn.Module:
    """The training of a recipe as a plain loop with an optimiser of torch."""
    model = build()
    optimiser = make(model.parameters())
    source = batches_of(small_images(), recipe, make_fabric(device="cpu"))
    for epoch in range(recipe.epochs):
        for step, (inputs, labels) in enumerate(source.epoch(epoch)):
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr_at(epoch * source.steps + step, source.steps)
            optimiser.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()
    return model


def trained(
    recipe: aacp.Recipe,
    folder: Path | None = None,
    until: int | None = None,
    build: Callable[[], torch.nn.Module] = network,
) -> torch.nn.Module:
    model = build()
    aacp.fit(model, small_images(), recipe, folder=folder, until=until, device="cpu")
    return model


def assert_close(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)


def rmsprop(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=lr, momentum=0.5)


class Counting(torch.optim.SGD):
    """Keeps plain numbers about parameters and about a group, as some optimisers do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["calls"] = group.get("calls", 0) + 1
            for parameter in group["params"]:
                state = self.state[parameter]
                state["calls"] = state.get("calls", 0) + 1
                parameter.grad.div_(state["calls"] + group["calls"])
        return super().step(closure)


def counting(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return Counting(parameters, lr=lr, momentum=0.9)


class Sharing(torch.optim.SGD):
    """Keeps state that belongs to no parameter, and trains a parameter that is not the network's, as for a loss."""

    def step(self, closure: Any = None) -> Any:
        self.state["steps"] = self.state.get("steps", 0) + 1
        shared = self.state["shared"]
        shared["sum"] = shared.get("sum", torch.zeros(2)) + 1
        shared["calls"] = shared.get("calls", 0) + 1
        *own, other = [parameter for group in self.param_groups for parameter in group["params"]]
        other.grad = torch.ones_like(other)
        for parameter in own:
            parameter.grad.div_(self.state["steps"] + float(shared["sum"][0]) + shared["calls"]).mul_(other.item())
        return super().step(closure)


def sharing(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return Sharing([*parameters, {"params": [torch.nn.Parameter(torch.ones(()))]}], lr=lr, momentum=0.9)


def ramp(step: int, steps: int) -> float:
    return 1 - step / steps


def test_adamw_is_that_of_torch() -> None:
    expected = written_out(ADAMW, lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.1))
    assert_close(trained(ADAMW), expected)


class LateBranch(torch.nn.Module):
    """A network with a layer that does not run in the first steps in training mode, as with stochastic depth."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.branch = torch.nn.Linear(72, 4)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        outputs = self.network(x)
        return outputs + self.branch(x.flatten(1)) if self.steps > 3 else outputs


class Spectral(torch.nn.Module):
    """A network with a complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.filter = torch.nn.Parameter(torch.ones(2, 6, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(torch.fft.irfft2(torch.fft.rfft2(x) * self.filter, s=x.shape[-2:]))


def seeded(kind: type[torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind()


@pytest.mark.parametrize("kind", [LateBranch, Spectral])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_networks_whose_parameters_cannot_all_be_updated_at_once_are_trained(
    name: str, kind: type[torch.nn.Module]
) -> None:
    recipe = aacp.Recipe(epochs=2, batch_size=16, lr=2e-3, optimiser=name, weight_decay=0.1)
    build = partial(seeded, kind)
    makes: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, weight_decay=0.1),
        "adamw": lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.1),
    }
    assert_close(trained(recipe, build=build), written_out(recipe, makes[name], build=build))


def test_a_function_makes_any_optimiser() -> None:
    recipe = replace(ADAMW, optimiser=rmsprop, weight_decay=0.01)
    make = lambda parameters: torch.optim.RMSprop(parameters, momentum=0.5, weight_decay=0.01)  # noqa: E731
    assert_close(trained(recipe), written_out(recipe, make))


def test_gradients_are_clipped_to_a_norm() -> None:
    recipe = aacp.Recipe(epochs=2, batch_size=16, lr=0.1, clip=0.05, weight_decay=0.0)
    make = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
    found = trained(recipe)
    assert_close(found, written_out(recipe, make, clip=0.05))
    free = trained(replace(recipe, clip=0.0))
    assert not torch.allclose(found[6].weight, free[6].weight, atol=1e-3)  # type: ignore[index]


def test_a_recipe_that_leaves_clipping_open_clips_in_networks_without_norms() -> None:
    class NormFreeNet(torch.nn.Sequential):
        """The name of a network says nothing about its layers."""

    class RMSNormOfAnotherPackage(torch.nn.Module):
        pass

    convolution = torch.nn.Conv2d(2, 6, 3)
    limits = {
        network(): 0.0,
        torch.nn.Sequential(convolution, torch.nn.GroupNorm(2, 6)): 0.0,
        torch.nn.Sequential(convolution, RMSNormOfAnotherPackage()): 0.0,
        torch.nn.Sequential(convolution, torch.nn.LocalResponseNorm(2)): CLIP,
        NormFreeNet(convolution): CLIP,
    }
    for recipe in (FINETUNE, FINETUNE_MIXED, DIGITS_FINETUNE):
        assert recipe.clip is None
        for model, limit in limits.items():
            assert as_carried_out(recipe, small_images(), model) == replace(recipe, clip=limit)
    own = aacp.Recipe(epochs=2, batch_size=16, lr=0.1)
    assert as_carried_out(own, small_images(), convolution) == own  # whose author chose not to clip


def test_a_fine_tuning_without_norms_is_clipped_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))

    recipe = aacp.Recipe(epochs=2, batch_size=16, lr=0.3, clip=None)
    found = {}
    for clip in (None, CLIP, 0.0):
        found[clip] = model()
        found[clip][1].weight.data *= 10  # for gradients that are too large
        with aacp.show_progress():
            aacp.fit(found[clip], small_images(), replace(recipe, clip=clip), device="cpu")
    assert "clip=5.0" in capsys.readouterr().err.splitlines()[0]
    assert same(weights(found[None]), weights(found[CLIP]))
    assert not same(weights(found[None]), weights(found[0.0]))


def test_a_schedule_of_ones_own_multiplies_the_rate_after_the_warm_up() -> None:
    recipe = aacp.Recipe(epochs=4, batch_size=16, lr=0.5, schedule=ramp, warmup_epochs=1)
    rates = [recipe.lr_at(step, 5) for step in range(20)]
    assert rates[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert rates[4:] == pytest.approx([0.5 * (1 - step / 20) for step in range(4, 20)])


def test_groups_of_the_user_keep_the_proportion_of_their_rates() -> None:
    seen: list[list[float]] = []

    class Watched(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            seen.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    def two_rates(parameters: Any, lr: float) -> torch.optim.Optimizer:
        (group,) = parameters
        first, *others = group["params"]
        return Watched([{"params": [first], "lr": lr / 10}, {"params": others}], lr=lr)

    recipe = aacp.Recipe(epochs=1, batch_size=16, lr=0.4, optimiser=two_rates, schedule=ramp)
    trained(recipe)
    expected = [[0.04 * ramp(step, len(seen)), 0.4 * ramp(step, len(seen))] for step in range(len(seen))]
    assert len(seen) == 6
    assert [rate for pair in seen for rate in pair] == pytest.approx([rate for pair in expected for rate in pair])


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["adamw", rmsprop, counting, sharing])
def test_a_run_is_resumed_with_the_state_of_its_optimiser(optimiser: Any, tmp_path: Path) -> None:
    recipe = replace(ADAMW, optimiser=optimiser, schedule=ramp, clip=1.0)
    whole = trained(recipe)
    trained(recipe, tmp_path, until=1)
    trained(recipe, tmp_path, until=2)
    assert same(weights(trained(recipe, tmp_path)), weights(whole))


def test_a_state_that_a_file_cannot_hold_is_named(tmp_path: Path) -> None:
    class Remembering(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["memory"] = [1, 2]
            return super().step(closure)

    recipe = replace(ADAMW, optimiser=lambda parameters, lr: Remembering(parameters, lr=lr))
    with pytest.raises(aacp.InvalidOption, match=r"keeps a list \(memory\)"):
        trained(recipe, tmp_path)


def test_another_optimiser_in_the_same_folder_is_rejected(tmp_path: Path) -> None:
    trained(ADAMW, tmp_path, until=1)
    with pytest.raises(aacp.RunMismatch, match=r"optimiser was adamw, now .*:rmsprop"):
        trained(replace(ADAMW, optimiser=rmsprop), tmp_path)


def test_functions_are_recorded_by_where_they_are_defined() -> None:
    record = replace(ADAMW, optimiser=rmsprop, schedule=ramp, heads={"a": "values"}).to_json()
    assert record["optimiser"] == f"{__name__}:rmsprop"
    assert record["schedule"] == f"{__name__}:ramp"
    assert record["heads"] == [["a", "values"]]
    assert aacp.Recipe(**ADAMW.to_json() | {"heads": record["heads"]}).heads == (("a", "values"),)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimiser": "lion"}, r"no optimiser 'lion'.*sgd, adamw, or give a function of \(parameter groups, lr\)"),
        ({"optimiser": "adamw", "nesterov": True}, "Nesterov"),
        ({"schedule": ramp, "milestones": (1,)}, "A schedule of your own has no milestones"),
        ({"clip": -1.0}, "clip is -1.0"),
        ({"heads": "softmax"}, "no comparison of outputs 'softmax'"),
    ],
)
def test_what_has_no_meaning_is_rejected(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        aacp.Recipe(epochs=2, batch_size=8, lr=0.1, **fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimiser": lambda parameters, lr: 5}, "returned a int"),
        ({"optimiser": lambda parameters, lr: 1 / 0}, r"optimiser function failed: ZeroDivisionError"),
        ({"schedule": lambda step, steps: 1 / 0}, r"schedule failed: ZeroDivisionError"),
        ({"schedule": lambda step, steps: "fast"}, "factor in step 0 is 'fast'"),
    ],
)
def test_functions_that_fail_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        trained(aacp.Recipe(epochs=1, batch_size=16, lr=0.1, **fields))


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_in_float16_an_overflow_in_the_first_step_changes_nothing_later(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *values, **options: fill(*values, **options).fill_(1e6))
    recipe = replace(FINETUNE, optimiser=name, nesterov=False, precision="16-mixed")
    inputs, labels = next(batches_of(small_images(), ADAMW, make_fabric(device="cpu")).epoch(0))
    outcomes = []
    for overflows in (True, False):
        model = network().eval()  # a skipped step changes the statistics of batch norms in training mode
        optimiser = optimiser_for(model, recipe, torch.device("cpu"), torch.float16)
        plugin = MixedPrecision("16-mixed", "cuda", scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
        for is_finite in ([False] if overflows else []) + [True, True]:
            optimiser.zero_grad()
            plugin.scaler.scale(F.cross_entropy(model(inputs), labels)).backward()
            if not is_finite:
                next(model.parameters()).grad.fill_(float("inf"))
            plugin.unscale_gradients(optimiser)  # Fabric does so before it clips, and rejects fused optimisers
            plugin.scaler.step(optimiser)
            plugin.scaler.update()
        outcomes.append(model)
    assert_close(*outcomes)


def test_a_training_in_float16_has_no_fused_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("aacp.train.session.half_type", lambda fabric: torch.float16)
    monkeypatch.setattr(
        "aacp.train.session.optimiser_for", lambda *values: made.append(optimiser_for(*values)) or made[-1]
    )
    trained(replace(ADAMW, epochs=1))
    assert [group["fused"] for optimiser in made for group in optimiser.param_groups] == [False]
