"""Networks of ultralytics (YOLO): its validator scores the search, and its trainer trains the pruned network."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from aacp.errors import InvalidOption
from aacp.pytorch.modules import copy_module, submodules


class _Enough(Exception):
    """Stops a validation from which enough images were taken."""


@dataclass(frozen=True)
class Validation:
    """The validation of a YOLO: the score of a search, and the source of its calibration images.

    Args:
        yolo: an `ultralytics.YOLO` of any task; it is not changed.
        settings: arguments of `yolo.val`, such as `{"data": "shapes.yaml", "imgsz": 160}`.
    """

    yolo: Any
    settings: Mapping[str, Any]

    def __call__(self, network: nn.Module) -> float:
        """Return the fitness of a network, as ultralytics defines it for the task (for detection: its mAP50-95).

        Some versions of ultralytics fuse the batch norms of the network that they validate: give a copy.
        """
        validator = self._validator({})
        validator(model=network)
        return float(validator.metrics.fitness)

    def images(self, count: int, split: str = "train") -> list[Tensor]:
        """Return batches of at least `count` images as the network receives them, in order and not augmented.

        Args:
            count: the number of images; the whole split if it has fewer.
            split: the part of the data set, `"train"` or `"val"`.
        """
        found: list[Tensor] = []
        validator = self._validator({"split": split, "rect": False})  # images of one size
        prepare = validator.preprocess

        def recorded(batch: Any) -> Any:
            prepared = prepare(batch)
            found.append(prepared["img"].detach().cpu())
            if sum(map(len, found)) >= count:
                raise _Enough
            return prepared

        validator.preprocess = recorded
        with suppress(_Enough):
            validator(model=copy_module(self.yolo.model).eval())  # a copy, since the validator fuses its batch norms
        return found

    def _validator(self, changes: Mapping[str, Any]) -> Any:
        """A new validator, which writes no pictures and uses one folder for all of its runs."""
        quiet = {"rect": True, "plots": False, "verbose": False, "name": "aacp", "exist_ok": True, "mode": "val"}
        arguments = {**self.yolo.overrides, **quiet, **self.settings, **changes}
        return _class_for(self.yolo, "validator")(args=arguments)


def trainer_for(yolo: Any, network: nn.Module) -> Any:
    """Return a trainer class that trains this network instead of building one from a YAML file.

    `yolo.train(trainer=trainer_for(yolo, smaller), ...)` then continues with the pruned network, and its `best.pt`
    and `last.pt` hold it. On several GPUs ultralytics imports the trainer by name in new processes, where a class
    made here does not exist: train on one.

    Args:
        yolo: the `ultralytics.YOLO` that was pruned.
        network: the pruned network.
    """

    adjust_split_sizes(network)
    network.requires_grad_(True)  # networks from a file require no gradients; the trainer freezes what it must

    def get_model(self: Any, cfg: Any = None, weights: Any = None, verbose: bool = True) -> nn.Module:
        return network

    return type("PrunedTrainer", (_class_for(yolo, "trainer"),), {"get_model": get_model})


def adjust_split_sizes(network: nn.Module) -> None:
    """Set the sizes that only the exporters of ultralytics read to those of the pruned network.

    Their exporters replace `chunk(2)` by `split((c, c))`, with a number `c` that the forward does not use, so that no
    trace of the forward can find it. `trainer_for` calls this; call it for a network that is exported without training.

    Args:
        network: the pruned network; it is changed.
    """
    splitting: list[Any] = [module for module in submodules(network) if hasattr(module, "forward_split")]
    for module in splitting:
        module.c = module.cv1.conv.out_channels // 2


def _class_for(yolo: Any, role: str) -> Any:
    """The class that ultralytics uses for the task of a YOLO: its trainer or validator."""
    try:
        return yolo.task_map[yolo.task][role]
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidOption(
            f"A {type(yolo).__name__} is not an ultralytics YOLO with a {role}. Give the object that YOLO(...) returns."
        ) from error
