"""Checkpoint: the state of a training run between two epochs, in one file that holds tensors and nothing to execute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from aacp.accelerate.growing import Growth
from aacp.errors import RunMismatch
from aacp.runs.folder import RunFolder
from aacp.train.averaging import Average
from aacp.train.recipe import Recipe
from aacp.train.seeding import digest

RUN, LOG, STATE, WEIGHTS = "run.json", "log.jsonl", "training.safetensors", "weights.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Where training keeps its state: network, momentum and moving average after so many epochs.

    Of a network that is trained inside a wider one, only what is its own: what is new there is zero and stays so.
    """

    folder: RunFolder
    model: nn.Module
    optimiser: torch.optim.Optimizer
    average: Average | None
    growth: Growth | None = None

    def write(self, epochs: int) -> None:
        """Replace the file, as a whole or not at all."""
        parts = {"model": self.model.state_dict(), "momentum": self._momentum()}
        parts["average"] = {} if self.average is None else self.average.state()
        tensors = {f"{part}/{name}": held for part in parts for name, held in self._own(parts[part]).items()}
        self.folder.write_bytes(STATE, save(_plain(tensors), {"epochs": str(epochs)}))

    def write_weights(self) -> None:
        """The network alone, for whoever loads it."""
        self.folder.write_bytes(WEIGHTS, save(_plain(self._own(self.model.state_dict()))))

    def read(self) -> int:
        """Take up the state on disk and say how many epochs it has seen; 0 if there is none."""
        path = self.folder.path / STATE
        if not path.exists():
            return 0
        try:
            with safe_open(path, "pt") as file:
                epochs = int(file.metadata()["epochs"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self._resume(tensors)
        except (SafetensorError, LookupError, RuntimeError, ValueError) as error:
            raise RunMismatch(
                f"{path} is not the state of this training run: {error}. Remove it, or choose another folder."
            ) from error
        return epochs

    @torch.no_grad()
    def _resume(self, tensors: dict[str, Tensor]) -> None:
        self.model.load_state_dict(self._widened(_under("model/", tensors)))
        momentum = self._widened(_under("momentum/", tensors))
        for name, parameter in self.model.named_parameters():
            if name in momentum:
                self.optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum[name])
        if self.average is not None:
            self.average.resume(self._widened(_under("average/", tensors)))

    def _own(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        growth = self.growth
        return tensors if growth is None else {name: growth.narrowed(name, held) for name, held in tensors.items()}

    def _widened(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        growth = self.growth
        return tensors if growth is None else {name: growth.widened(name, held) for name, held in tensors.items()}

    def _momentum(self) -> dict[str, Tensor]:
        states = {name: self.optimiser.state.get(parameter, {}) for name, parameter in self.model.named_parameters()}
        return {name: state["momentum_buffer"] for name, state in states.items() if "momentum_buffer" in state}


def check_same_question(folder: RunFolder, asked: dict[str, Any]) -> None:
    """Refuse a folder that belongs to another network, recipe, teacher or data, and say what differs."""
    known = folder.read_json(RUN)
    if known is None:
        return
    known["recipe"] = Recipe.completed(known["recipe"])
    before, now = _flat(known), _flat(json.loads(json.dumps(asked)))
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if differing:
        listed = "; ".join(f"{name} was {before.get(name)}, now {now.get(name)}" for name in differing[:8])
        raise RunMismatch(
            f"{folder.path} holds another training run: {listed}. Ask for the same, or choose another folder."
        )


def question(
    model: nn.Module, recipe: Recipe, data: dict[str, Any], teacher: nn.Module | Sequence[nn.Module] | None
) -> dict[str, Any]:
    """What is asked, as far as it changes the answer.

    Statistics of batch norms are left out of where it begins: training makes its own, and those of a GPU are another's
    but for their last bits.
    """
    teachers = [] if teacher is None else [teacher] if isinstance(teacher, nn.Module) else list(teacher)
    state = model.state_dict()
    return {
        "recipe": recipe.to_json(),
        "data": data,
        "model": {
            "tensors": len(state),
            "numbers": sum(tensor.numel() for tensor in state.values()),
            "starting weights": digest(model.parameters()),
        },
        "teachers": [digest(network.state_dict().values()) for network in teachers],
    }


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {name: leaf for key, part in value.items() for name, leaf in _flat(part, f"{prefix} {key}".strip()).items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As files want them: on the CPU, contiguous, no two sharing memory."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
