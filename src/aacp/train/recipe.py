"""Recipe: the settings of a training run, and the paper's settings as constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from aacp.errors import InvalidOption, RunMismatch
from aacp.train.heads import Heads, checked_heads
from aacp.user.code import users_function
from aacp.user.options import known_options, require_known
from aacp.user.sources import in_script, source_of
from aacp.user.values import MAX_SEED, counted, real_number, shown, truth_value, whole_number

Schedule = Literal["steps", "cosine"] | Callable[[int, int], float]
Optimiser = Literal["sgd", "adamw"] | Callable[..., Any]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
Mixture = Literal["blends", "patches"]
MAX_EPOCHS = 10**6
# The learning rate of a fine-tuning is proportional to its epochs within this range (docs/training.md).
LOWEST_RATE_EPOCHS, FULL_RATE_EPOCHS = 10, 100


@known_options
@dataclass(frozen=True)
class Recipe:
    """The settings of a training run: everything that decides its result, apart from network, data and teacher.

    `dataclasses.replace` changes fields; `scaled` changes the number of epochs, and what depends on it.

    Args:
        epochs: passes over the training data.
        batch_size: examples in a step, of all processes together; a loader's own batch size replaces it.
        lr: the highest learning rate.
        schedule: "cosine" lowers the rate from `lr` to 0, a little in every step; "steps" lowers it at the milestones.
            A function of (step, steps) returns the factor by which `lr` is multiplied in a step, counted from 0, of a
            run of `steps` steps.
        milestones: epochs after which "steps" lowers the rate.
        decay: the factor by which "steps" multiplies the rate at each milestone.
        warmup_epochs: during these epochs the rate rises linearly before it follows the schedule.
        optimiser: "sgd", "adamw", or a function of (parameter groups, lr) that returns a torch.optim.Optimizer.
        momentum: the momentum of stochastic gradient descent; the first beta of AdamW.
        nesterov: whether to use Nesterov's form of momentum.
        weight_decay: the weight of the L2 penalty; for AdamW, the decay of the weights.
        decays_norms: False exempts biases and normalisation layers from weight decay.
        clip: the largest norm of all gradients together; larger gradients are scaled down. 0 for no limit; None for 5
            in networks without normalisation layers, and for no limit in others.
        label_smoothing: the label smoothing of cross-entropy; it does not apply to your own loss function.
        mixing: examples and labels are mixed in pairs, in shares drawn from Beta(mixing, mixing); 0 for no mixing.
        mixture: "blends" adds two images (mixup); "patches" puts a rectangle of one into the other (CutMix).
        distillation: the teacher's share of the loss, 0 to 1; 0 for no teacher.
        temperature: divides the outputs of teacher and student before their probabilities are compared.
        heads: how outputs are compared with the teacher's: "classes" by probabilities, "values" by squared errors,
            "auto" by targets and shape, or a dictionary of these by the names of heads; see `aacp.distillation_loss`.
        average: the decay of a moving average of the weights, which becomes the result; 0 for the last weights.
        precision: "auto" is bf16 on GPUs that support it, and single precision elsewhere.
        seed: decides everything random: order, crops, flips, mixing, dropout, and new weights.
    """

    epochs: int
    batch_size: int
    lr: float
    schedule: Schedule = "cosine"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    warmup_epochs: float = 0.0
    optimiser: Optimiser = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    decays_norms: bool = True
    clip: float | None = 0.0
    label_smoothing: float = 0.0
    mixing: float = 0.0
    mixture: Mixture = "blends"
    distillation: float = 0.0
    temperature: float = 4.0
    heads: Heads = "auto"
    average: float = 0.0
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, lowest, highest in _WHOLE_NUMBERS:
            object.__setattr__(self, name, whole_number(name, getattr(self, name), lowest, highest))
        for name, low, high in _NUMBERS:
            if (name, self.clip) != ("clip", None):
                object.__setattr__(self, name, real_number(name, getattr(self, name), low, high))
        for name in ("nesterov", "decays_norms"):
            object.__setattr__(self, name, truth_value(name, getattr(self, name)))
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if not (name in FUNCTIONS and callable(given)):
                other = f", or give a function of {FUNCTIONS[name]}" if name in FUNCTIONS else ""
                require_known(name, given, choices, other)
        object.__setattr__(self, "milestones", _epochs(self.milestones))
        object.__setattr__(self, "heads", checked_heads(self.heads))
        self._check_together()

    def _check_together(self) -> None:
        if self.nesterov and self.optimiser != "sgd":
            raise InvalidOption(
                "Nesterov's form of momentum belongs to SGD, but the recipe has another optimiser. Give nesterov=False."
            )
        if self.nesterov and not self.momentum:
            raise InvalidOption(
                "Nesterov's form needs momentum, but momentum is 0. Give a momentum, or nesterov=False."
            )
        if any(after <= before for before, after in zip((0, *self.milestones), self.milestones, strict=False)):
            raise InvalidOption(f"milestones are {self.milestones}. Give epochs above 0 in rising order.")
        if self.schedule != "steps" and self.milestones:
            what = "A cosine schedule" if self.schedule == "cosine" else "A schedule of your own"
            raise InvalidOption(f"{what} has no milestones. Leave the milestones out, or use schedule='steps'.")
        if self.milestones and self.milestones[-1] > self.epochs:
            raise InvalidOption(
                f"milestones are {self.milestones}, but training ends after {counted(self.epochs, 'epoch')}. "
                "Give earlier milestones, or use recipe.scaled(epochs), which moves them."
            )
        if self.decay != Recipe.decay and not self.milestones:
            raise InvalidOption(
                f"decay is {self.decay}, but there are no milestones at which the rate falls. Give schedule='steps' "
                "and milestones, or leave decay out."
            )

    def scaled(self, epochs: int, *, finetuning: bool = False) -> Recipe:
        """The same recipe for another number of epochs: milestones and warm-up move in proportion.

        Args:
            epochs: the number of epochs.
            finetuning: whether trained weights are fine-tuned. If so, the learning rate is proportional to the epochs
                within the range of 10 to 100, and constant outside of it: a high rate first destroys what the weights
                know, and few epochs do not bring it back. The rate is never raised.
        """
        epochs = whole_number("epochs", epochs, 1, MAX_EPOCHS)
        ratio = epochs / self.epochs
        moved = sorted({max(1, round(milestone * ratio)) for milestone in self.milestones})
        lr = min(self.lr, self.lr * _rate_epochs(epochs) / _rate_epochs(self.epochs)) if finetuning else self.lr
        return replace(self, epochs=epochs, milestones=tuple(moved), warmup_epochs=self.warmup_epochs * ratio, lr=lr)

    def changed(
        self,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        precision: Precision | None = None,
        seed: int | None = None,
    ) -> Recipe:
        """The recipe with the given values; another number of epochs scales it.

        Args:
            epochs: passed to `scaled`.
            batch_size, lr, precision, seed: replace the fields of these names.
        """
        base = self if epochs is None else self.scaled(epochs)
        given = {"batch_size": batch_size, "lr": lr, "precision": precision, "seed": seed}
        return replace(base, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    def lr_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step, counted from 0 over the whole run."""
        warmup = self.warmup_epochs * steps_per_epoch
        if step + 1 < warmup:
            return self.lr * (step + 1) / warmup
        if callable(self.schedule):
            return self.lr * _factor(self.schedule, step, self.epochs * steps_per_epoch)
        if self.schedule == "steps":
            return self.lr * self.decay ** sum(step // steps_per_epoch >= milestone for milestone in self.milestones)
        progress = (step - warmup) / max(1.0, self.epochs * steps_per_epoch - warmup)
        return self.lr * 0.5 * (1 + math.cos(math.pi * max(0.0, progress)))

    def to_json(self) -> dict[str, Any]:
        """All fields, as a run folder records them; functions by where they are defined."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in FUNCTIONS:
            plain[name] = source_of(plain[name]) if callable(plain[name]) else plain[name]
        heads = self.heads if isinstance(self.heads, str) else [list(pair) for pair in self.heads]
        return plain | {"milestones": list(self.milestones), "heads": heads}

    @classmethod
    def completed(cls, written: dict[str, Any]) -> dict[str, Any]:
        """Fill fields missing from a recipe saved by an older version with their defaults."""
        known = {field.name for field in fields(cls)}
        missing = [name for name in ("epochs", "batch_size", "lr") if name not in written]
        unknown = [name for name in written if name not in known]
        if missing or unknown:
            what = f"has no {missing[0]}" if missing else f"has an unknown field {shown(unknown[0])}"
            raise RunMismatch(f"A recorded recipe {what}. Give a recipe, or use the version that wrote the file.")
        shortest = cls(**{name: written[name] for name in ("epochs", "batch_size", "lr")})
        functions = {name: in_script(written[name]) for name in FUNCTIONS if isinstance(written.get(name), str)}
        return shortest.to_json() | written | functions

    def __str__(self) -> str:
        """The fields that differ from their defaults, as keywords."""
        shown = [field for field in fields(self) if getattr(self, field.name) != field.default]
        return ", ".join(f"{field.name}={_named(getattr(self, field.name))}" for field in shown)


def _rate_epochs(epochs: int) -> int:
    """A number of epochs, limited to the range within which the learning rate of a fine-tuning is proportional."""
    return min(max(epochs, LOWEST_RATE_EPOCHS), FULL_RATE_EPOCHS)


def _factor(schedule: Callable[[int, int], float], step: int, steps: int) -> float:
    """The value of the user's schedule for a step."""
    with users_function("schedule", "(step, steps) and returns a number"):
        found = schedule(step, steps)
    return real_number(f"the schedule's factor in step {step}", found, 0.0, 1e3)


def _named(value: Any) -> Any:
    """A value for people: a function by its name."""
    return getattr(value, "__name__", type(value).__name__) if callable(value) else value


def _epochs(milestones: Any) -> tuple[int, ...]:
    """The epochs of a schedule as whole numbers."""
    if isinstance(milestones, (str, bytes)) or not isinstance(milestones, Iterable):
        raise InvalidOption(f"milestones is {shown(milestones)}, which is not a list. Give epochs, such as (80, 120).")
    return tuple(whole_number("a milestone", milestone, 0, MAX_EPOCHS) for milestone in milestones)


# Fields that may hold a function, with what it is called with.
FUNCTIONS = {"schedule": "(step, steps)", "optimiser": "(parameter groups, lr)"}
BUILT_IN = {"schedule": ("steps", "cosine"), "optimiser": ("sgd", "adamw")}
_CHOICES = {**BUILT_IN, "precision": get_args(Precision), "mixture": get_args(Mixture)}
_WHOLE_NUMBERS = (("epochs", 1, MAX_EPOCHS), ("batch_size", 1, 10**7), ("seed", 0, MAX_SEED))
_NUMBERS = (
    ("lr", 1e-12, 1e3),
    ("decay", 0.0, 1.0),
    ("warmup_epochs", 0.0, 1e6),
    ("momentum", 0.0, 0.9999),
    ("weight_decay", 0.0, 1.0),
    ("clip", 0.0, 1e6),
    ("label_smoothing", 0.0, 0.99),
    ("mixing", 0.0, 100.0),
    ("distillation", 0.0, 1.0),
    ("temperature", 0.01, 1e3),
    ("average", 0.0, 0.999999),
)

# Paper: Sec. 4.1. Training from scratch lasts twice as long as fine-tuning. Where its rate falls, the paper does not
# say, so the milestones are doubled too. ImageNet's weight decay and momentum are those of PyTorch's example.
CIFAR10_BASE = Recipe(epochs=160, batch_size=64, lr=0.1, schedule="steps", milestones=(80, 120))
CIFAR10_FINETUNE = replace(CIFAR10_BASE, lr=0.01)
CIFAR10_SCRATCH = CIFAR10_BASE.scaled(320)
IMAGENET_BASE = Recipe(epochs=90, batch_size=512, lr=0.1, schedule="steps", milestones=(30, 60))
IMAGENET_FINETUNE = replace(IMAGENET_BASE, lr=0.01)
IMAGENET_SCRATCH = IMAGENET_BASE.scaled(180)
# For MobileNetV2, Sec. 4.1 states one rate and 150 epochs; Sec. 4.2 states 90 epochs for (F) and 180 for (S) on
# ImageNet. A lower rate for (F) is stated only for ResNet50, so (F) has the stated one here.
MOBILENET_BASE = Recipe(epochs=150, batch_size=256, lr=0.05, weight_decay=4e-5)
MOBILENET_FINETUNE = MOBILENET_BASE.scaled(90)
MOBILENET_SCRATCH = MOBILENET_BASE.scaled(180)

# Recipes of this project. At the rates of fine-tuning, large gradients ruin networks without normalisation layers.
BASE = Recipe(epochs=100, batch_size=128, lr=0.1, warmup_epochs=2, nesterov=True, weight_decay=5e-4)
FINETUNE = replace(BASE, lr=0.05, clip=None, distillation=0.9)
# For classifiers that soon memorise their training images, such as those of CIFAR-10.
FINETUNE_MIXED = replace(FINETUNE, mixing=1.0, mixture="patches", distillation=0.5)
DIGITS = replace(BASE, epochs=40, batch_size=32, warmup_epochs=1, label_smoothing=0.1)
DIGITS_FINETUNE = replace(DIGITS.scaled(20), lr=0.03, clip=None, distillation=0.5)

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
    "mobilenet-base": MOBILENET_BASE,
    "mobilenet-finetune": MOBILENET_FINETUNE,
    "mobilenet-scratch": MOBILENET_SCRATCH,
}
