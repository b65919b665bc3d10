"""Recipe: how long, how fast and with what loss a network is trained; the paper's settings as constants."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from aacp.errors import InvalidOption

Schedule = Literal["steps", "cosine"]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
Mixture = Literal["blends", "patches"]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a training run computes, apart from the network and the data."""

    epochs: int
    batch_size: int  # of all processes together; a loader has its own, which wins
    lr: float
    schedule: Schedule = "cosine"  # from `lr` to 0 by step, or divided at the milestones
    milestones: tuple[int, ...] = ()  # epochs, for "steps"
    decay: float = 0.1  # what the rate is multiplied by at each milestone
    warmup_epochs: float = 0.0  # the rate rises linearly before it follows the schedule
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    decays_norms: bool = True  # False: no weight decay on biases and normalisation
    label_smoothing: float = 0.0  # of cross-entropy; a loss of one's own sees to that itself
    mixing: float = 0.0  # examples are mixed in shares of Beta(mixing, mixing), labels too; 0: they are not
    mixture: Mixture = "blends"  # two pictures through each other, or a rectangle of one in the other
    distillation: float = 0.0  # the teacher's share of the loss
    temperature: float = 4.0  # at which teacher and student are compared
    average: float = 0.0  # decay of the moving average of weights that is kept as the result; 0: none
    precision: Precision = "auto"  # bf16 on GPUs that have it, otherwise single
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidOption(f"{name} is {value}, outside {low} to {high}. Give a number in that range.")
        for name, choices in (("schedule", Schedule), ("precision", Precision), ("mixture", Mixture)):
            if getattr(self, name) not in get_args(choices):
                raise InvalidOption(f"{name} is {getattr(self, name)!r}. Choose one of {', '.join(get_args(choices))}.")
        self._check_together()

    def _check_together(self) -> None:
        if self.nesterov and not self.momentum:
            raise InvalidOption("Nesterov's step needs momentum, but momentum is 0. Give one, or nesterov=False.")
        if any(after <= before for before, after in zip((0, *self.milestones), self.milestones, strict=False)):
            raise InvalidOption(f"milestones are {self.milestones}. Give epochs above 0 in rising order.")
        if self.schedule == "cosine" and self.milestones:
            raise InvalidOption("A cosine schedule has no milestones. Leave them out, or use schedule='steps'.")
        if self.milestones and self.milestones[-1] > self.epochs:
            raise InvalidOption(
                f"milestones are {self.milestones}, but training ends after {self.epochs} epochs. Give earlier ones, "
                "or use recipe.scaled(epochs), which moves them."
            )
        if self.decay != Recipe.decay and not self.milestones:
            raise InvalidOption(
                f"decay is {self.decay}, but there are no milestones for the rate to fall at. Give schedule='steps' "
                "and milestones, or leave it out."
            )

    def scaled(self, epochs: int) -> Recipe:
        """The same recipe in another number of epochs: milestones and warm-up move in proportion."""
        if epochs < 1:
            raise InvalidOption(f"epochs is {epochs}, but training needs at least 1. Give a positive number.")
        ratio = epochs / self.epochs
        moved = sorted({max(1, round(milestone * ratio)) for milestone in self.milestones})
        return replace(self, epochs=epochs, milestones=tuple(moved), warmup_epochs=self.warmup_epochs * ratio)

    def changed(
        self,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        precision: Precision | None = None,
        seed: int | None = None,
    ) -> Recipe:
        """The recipe with what is given instead of its own; other epochs scale it."""
        base = self if epochs is None else self.scaled(epochs)
        given = {"batch_size": batch_size, "lr": lr, "precision": precision, "seed": seed}
        return replace(base, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    def lr_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step, counted from 0 over the whole run."""
        warmup = self.warmup_epochs * steps_per_epoch
        if step + 1 < warmup:
            return self.lr * (step + 1) / warmup
        if self.schedule == "steps":
            return self.lr * self.decay ** sum(step // steps_per_epoch >= milestone for milestone in self.milestones)
        progress = (step - warmup) / max(1.0, self.epochs * steps_per_epoch - warmup)
        return self.lr * 0.5 * (1 + math.cos(math.pi * max(0.0, progress)))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "milestones": list(self.milestones)}

    @classmethod
    def completed(cls, written: dict[str, Any]) -> dict[str, Any]:
        """A recipe as an earlier version wrote it down: what was no choice then was what is the default now."""
        shortest = cls(**{name: written[name] for name in ("epochs", "batch_size", "lr")})
        return shortest.to_json() | written

    def __str__(self) -> str:
        """What differs from a plain recipe, as keywords."""
        shown = [field for field in fields(self) if getattr(self, field.name) != field.default]
        return ", ".join(f"{field.name}={getattr(self, field.name)}" for field in shown)


_RANGES = (
    ("epochs", 1, 10**6),
    ("batch_size", 1, 10**7),
    ("lr", 0.0, 1e3),
    ("decay", 0.0, 1.0),
    ("warmup_epochs", 0.0, 1e6),
    ("momentum", 0.0, 0.9999),
    ("weight_decay", 0.0, 1.0),
    ("label_smoothing", 0.0, 0.99),
    ("mixing", 0.0, 100.0),
    ("distillation", 0.0, 1.0),
    ("temperature", 0.01, 1e3),
    ("average", 0.0, 0.999999),
    ("seed", 0, 2**63 - 1),
)

# Paper: Sec. 4.1. From scratch lasts twice as long as fine-tuning; where the rate then falls is not said, so the
# milestones are doubled with it. ImageNet's weight decay and momentum are those of PyTorch's example, which it follows.
CIFAR10_BASE = Recipe(epochs=160, batch_size=64, lr=0.1, schedule="steps", milestones=(80, 120))
CIFAR10_FINETUNE = replace(CIFAR10_BASE, lr=0.01)
CIFAR10_SCRATCH = CIFAR10_BASE.scaled(320)
IMAGENET_BASE = Recipe(epochs=90, batch_size=512, lr=0.1, schedule="steps", milestones=(30, 60))
IMAGENET_FINETUNE = replace(IMAGENET_BASE, lr=0.01)
IMAGENET_SCRATCH = IMAGENET_BASE.scaled(180)
MOBILENET = Recipe(epochs=150, batch_size=256, lr=0.05, weight_decay=4e-5)

# Ours.
BASE = Recipe(epochs=100, batch_size=128, lr=0.1, warmup_epochs=2, nesterov=True, weight_decay=5e-4)
FINETUNE = replace(BASE, lr=0.05, distillation=0.9)
# For classifiers that soon know their training pictures by heart, as those of CIFAR-10 do.
FINETUNE_MIXED = replace(FINETUNE, mixing=1.0, mixture="patches", distillation=0.5)
DIGITS = replace(BASE, epochs=40, batch_size=32, warmup_epochs=1, label_smoothing=0.1)
DIGITS_FINETUNE = replace(DIGITS.scaled(20), lr=0.03, distillation=0.5)

RECIPES = {
    "base": BASE,
    "finetune": FINETUNE,
    "finetune-mixed": FINETUNE_MIXED,
    "digits": DIGITS,
    "digits-finetune": DIGITS_FINETUNE,
    "cifar10-base": CIFAR10_BASE,
    "cifar10-finetune": CIFAR10_FINETUNE,
    "cifar10-scratch": CIFAR10_SCRATCH,
    "imagenet-base": IMAGENET_BASE,
    "imagenet-finetune": IMAGENET_FINETUNE,
    "imagenet-scratch": IMAGENET_SCRATCH,
    "mobilenet": MOBILENET,
}
