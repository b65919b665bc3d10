"""Checkpoint: the state of a training run between two epochs, in one file of tensors that cannot execute code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from aacp.disk.tensors import tensor_header, tensors_in
from aacp.errors import DamagedRun, RunMismatch, UnreadableFile
from aacp.runs.folder import RunFolder
from aacp.train.averaging import Average
from aacp.train.recipe import Recipe
from aacp.train.seeding import digest
from aacp.train.trained_as import State, TrainedAs

RUN = "run.json"
LOG = "log.jsonl"
STATE = "training.safetensors"
WEIGHTS = "weights.safetensors"


def weights_after(epochs: int, recipe: Recipe) -> str:
    """The name of the file of the weights after some epochs; after all of them it has no number."""
    return WEIGHTS if epochs >= recipe.epochs else f"weights-{epochs}.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Writes and restores network, momentum and moving average, all in the shapes of the user's network.

    Args:
        folder: where the files are.
        trained_as: the network that is optimised, and the translation of its tensors.
        optimiser: holds the momentum.
        average: the moving average of the weights, if the recipe keeps one.
    """

    folder: RunFolder
    trained_as: TrainedAs
    optimiser: torch.optim.Optimizer
    average: Average | None

    def write(self, epochs: int) -> None:
        """Replace the state on disk by the present one, which has seen `epochs` epochs, in one atomic step."""
        parts = {
            "model": self.trained_as.network.state_dict(),
            "momentum": self._momentum(),
            "average": {} if self.average is None else self.average.state(),
        }
        tensors: State = {}
        for part, state in parts.items():
            for name, tensor in self.trained_as.own(state).items():
                tensors[f"{part}/{name}"] = tensor
        self.folder.write_bytes(STATE, save(_storable(tensors), {"epochs": str(epochs)}))

    def write_weights(self, name: str) -> None:
        """Write the network's weights alone to a file, for use after training."""
        state = self.trained_as.own(self.trained_as.network.state_dict())
        self.folder.write_bytes(name, save(_storable(state)))

    def restore(self) -> int:
        """Restore the state on disk and return the number of epochs it has seen; 0 if there is none."""
        path = self.folder.path / STATE
        if not path.exists():
            return 0
        try:
            epochs = int(tensor_header(path).metadata["epochs"])
            self._load(tensors_in(path))
        except (UnreadableFile, LookupError, RuntimeError, ValueError) as error:
            raise RunMismatch(
                f"{path} is not the state of this training run: {error}. Remove it, or choose another folder."
            ) from error
        return epochs

    @torch.no_grad()
    def _load(self, tensors: State) -> None:
        network = self.trained_as.network
        network.load_state_dict(self._part("model/", tensors))
        momentum = self._part("momentum/", tensors)
        for name, parameter in network.named_parameters():
            if name in momentum:
                self.optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum[name])
        if self.average is not None:
            self.average.load(self._part("average/", tensors))

    def _part(self, prefix: str, tensors: State) -> State:
        """The tensors whose names have a prefix, without it, in the shapes of the optimised network."""
        found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        return self.trained_as.grown(found)

    def _momentum(self) -> State:
        parameters = self.trained_as.network.named_parameters()
        states = {name: self.optimiser.state.get(parameter, {}) for name, parameter in parameters}
        return {name: state["momentum_buffer"] for name, state in states.items() if "momentum_buffer" in state}


def training_request(
    model: nn.Module, recipe: Recipe, data: dict[str, Any], teacher: nn.Module | Sequence[nn.Module] | None
) -> dict[str, Any]:
    """What a run is to compute, as run.json records it: everything that changes the result.

    The statistics of batch norms are not part of it, because training makes its own, and statistics from a GPU differ
    from those of a CPU in their last bits.

    Args:
        model: the network with the weights that training starts from.
        recipe: the settings, with the batch size that is used.
        data: the identity of the training data.
        teacher: the network or networks to imitate, if any.
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


def check_same_request(folder: RunFolder, request: dict[str, Any]) -> None:
    """Reject a folder that belongs to another network, recipe, teacher or data, and list the differences."""
    recorded = folder.read_json(RUN)
    if recorded is None:
        return
    if not isinstance(recorded, dict) or not isinstance(recorded.get("recipe"), dict):
        raise DamagedRun(
            f"{folder.path / RUN} does not describe a training run. Restore it from a copy, or choose another folder."
        )
    recorded["recipe"] = Recipe.completed(recorded["recipe"])
    before = _flat(recorded)
    now = _flat(json.loads(json.dumps(request)))
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if differing:
        listed = "; ".join(f"{name} was {before.get(name)}, now {now.get(name)}" for name in differing[:8])
        raise RunMismatch(
            f"{folder.path} holds another training run: {listed}. Repeat that run's settings, or choose another folder."
        )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dictionaries, named by the path of their keys."""
    if not isinstance(value, dict):
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for key, part in value.items():
        leaves |= _flat(part, f"{prefix} {key}".strip())
    return leaves


def _storable(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies as safetensors requires them: on the CPU, contiguous, without shared memory."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
