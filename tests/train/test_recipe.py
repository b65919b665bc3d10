"""Recipes: the paper's numbers, schedules against torch's own, and what is rejected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aacp.errors import InvalidOption
from aacp.train import recipe as recipes
from aacp.train.recipe import Recipe

STEPS = 7


def torch_rates(
    recipe: Recipe, scheduler: type[torch.optim.lr_scheduler.LRScheduler], **settings: object
) -> list[float]:
    """What a scheduler of torch's makes of it, a call to each step."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=recipe.lr)
    schedule = scheduler(optimiser, **settings)  # type: ignore[arg-type]
    rates = []
    for _ in range(recipe.epochs * STEPS):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def rates(recipe: Recipe) -> list[float]:
    return [recipe.lr_at(step, STEPS) for step in range(recipe.epochs * STEPS)]


def test_the_papers_settings_are_those_of_its_section_4_1() -> None:
    base = recipes.CIFAR10_BASE
    assert (base.epochs, base.batch_size, base.lr, base.milestones) == (160, 64, 0.1, (80, 120))
    assert (base.momentum, base.weight_decay, base.decay, base.nesterov) == (0.9, 1e-4, 0.1, False)
    assert (recipes.CIFAR10_FINETUNE.epochs, recipes.CIFAR10_FINETUNE.lr) == (160, 0.01)
    assert (recipes.CIFAR10_SCRATCH.epochs, recipes.CIFAR10_SCRATCH.milestones) == (320, (160, 240))
    assert (recipes.IMAGENET_BASE.epochs, recipes.IMAGENET_BASE.milestones) == (90, (30, 60))
    assert (recipes.IMAGENET_FINETUNE.batch_size, recipes.IMAGENET_FINETUNE.lr) == (512, 0.01)
    assert (recipes.IMAGENET_SCRATCH.epochs, recipes.IMAGENET_SCRATCH.milestones) == (180, (60, 120))
    mobilenet = recipes.MOBILENET_BASE
    assert (mobilenet.epochs, mobilenet.batch_size, mobilenet.lr, mobilenet.weight_decay) == (150, 256, 0.05, 4e-5)
    assert mobilenet.schedule == "cosine"
    assert (
        replace(recipes.MOBILENET_FINETUNE, epochs=150) == replace(recipes.MOBILENET_SCRATCH, epochs=150) == mobilenet
    )
    assert (recipes.MOBILENET_FINETUNE.epochs, recipes.MOBILENET_SCRATCH.epochs) == (90, 180)


def test_steps_fall_where_torchs_scheduler_lets_them_fall() -> None:
    recipe = recipes.CIFAR10_BASE.scaled(16)
    expected = torch_rates(
        recipe, torch.optim.lr_scheduler.MultiStepLR, milestones=[8 * STEPS, 12 * STEPS], gamma=recipe.decay
    )
    assert rates(recipe) == pytest.approx(expected)


def test_cosine_is_that_of_torch() -> None:
    recipe = Recipe(epochs=6, batch_size=8, lr=0.3)
    expected = torch_rates(recipe, torch.optim.lr_scheduler.CosineAnnealingLR, T_max=6 * STEPS)
    assert rates(recipe) == pytest.approx(expected)


def test_warm_up_rises_linearly_to_the_full_rate_and_never_beyond() -> None:
    found = rates(Recipe(epochs=6, batch_size=8, lr=0.3, warmup_epochs=2))
    assert found[: 2 * STEPS] == pytest.approx([0.3 * (step + 1) / (2 * STEPS) for step in range(2 * STEPS)])
    assert max(found) == pytest.approx(0.3)
    assert found[-1] < 0.01


def test_scaling_moves_milestones_and_warm_up_in_proportion() -> None:
    scaled = replace(recipes.CIFAR10_FINETUNE, warmup_epochs=16).scaled(30)
    assert (scaled.epochs, scaled.milestones, scaled.warmup_epochs) == (30, (15, 22), 3.0)
    assert scaled.scaled(2).milestones == (1,)
    assert scaled.scaled(1).milestones == (1,)


def test_a_fine_tuning_of_few_epochs_has_a_lower_rate() -> None:
    recipe = Recipe(epochs=100, batch_size=8, lr=0.05, warmup_epochs=2)
    found = {epochs: recipe.scaled(epochs, finetuning=True) for epochs in (1, 10, 30, 100, 300)}
    assert {epochs: each.lr for epochs, each in found.items()} == pytest.approx(
        {1: 0.005, 10: 0.005, 30: 0.015, 100: 0.05, 300: 0.05}
    )
    assert all(replace(each, lr=0.05) == recipe.scaled(epochs) for epochs, each in found.items())
    assert found[30].scaled(10, finetuning=True).lr == pytest.approx(0.005)  # the same in one step or in two
    short = replace(recipe, epochs=20, lr=0.01)  # whose author chose the rate for twenty epochs
    rates = {epochs: short.scaled(epochs, finetuning=True).lr for epochs in (1, 10, 20, 100)}
    assert rates == pytest.approx({1: 0.005, 10: 0.005, 20: 0.01, 100: 0.01})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"distillation": 1.5}, "distillation is 1.5"),
        ({"schedule": "linear"}, "no schedule 'linear'"),
        ({"precision": "8"}, "no precision '8'"),
        ({"momentum": 0.0, "nesterov": True}, "needs momentum"),
        ({"schedule": "steps", "milestones": (5, 3)}, "rising order"),
        ({"milestones": (5,)}, "cosine schedule has no milestones"),
        ({"schedule": "steps", "milestones": (5, 11)}, "ends after 10 epochs"),
        ({"decay": 0.5}, "no milestones at which the rate falls"),
    ],
)
def test_what_makes_no_sense_is_rejected_by_name(change: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        replace(recipes.Recipe(epochs=10, batch_size=8, lr=0.1), **change)  # type: ignore[arg-type]


def test_a_function_that_another_process_of_a_script_has_recorded_is_that_of_the_script() -> None:
    written = {"epochs": 1, "batch_size": 2, "lr": 0.1, "schedule": "__mp_main__:ramp#0a1b2c3d"}
    assert Recipe.completed(written)["schedule"] == "__main__:ramp#0a1b2c3d"
