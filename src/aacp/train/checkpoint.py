"""Checkpoint: the state of a training run between epochs or steps, in one file of tensors that cannot execute code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aacp.disk.tensors import tensor_bytes, tensor_header, tensors_in
from aacp.errors import DamagedRun, InvalidOption, RunMismatch, UnreadableFile
from aacp.pytorch.modules import device_of_model
from aacp.runs.files import RUN, STATE, WEIGHTS
from aacp.runs.folder import RunFolder
from aacp.train.averaging import Average
from aacp.train.recipe import Recipe
from aacp.train.seeding import digest
from aacp.train.teaching import Loss
from aacp.train.threads import THREADS
from aacp.train.trained_as import State, TrainedAs
from aacp.user.sources import are_comparable, source_of

MOMENTUM = "momentum"  # the part of the file that holds SGD's momentum; other entries are in parts "optimiser.KEY"
MOMENTUM_KEY = "momentum_buffer"  # what torch calls it
STEP = "step"  # what torch calls the number of steps that an optimiser has made
OPTIMISER = "optimiser"
SCALER = "scaler"  # in the header: the state of the loss scaling
STARTING = "starting weights"  # in the request: the digest of the network's weights before the training
LOSS = "loss"  # in the request: where the user's loss is defined; empty for cross-entropy
OTHERS = "others"  # the part of the file that holds parameters of the optimiser that are not the network's
# Names of what an optimiser has state for, besides parameters of the network: no name of these begins with a dot.
OTHER = ".parameter."  # and the numbers of its group and of its place there
TEXT = ".state."  # and the text under which the optimiser keeps state of its own
ITSELF = ""  # the key of state that is one value
HOST = "host"  # in the header: the entries of the optimiser that are on the CPU although their parameters are not
PLAIN = "plain"  # in the header: the entries of the optimiser that are not laid out in memory like their parameters
NUMBERS = (bool, int, float, str, type(None))  # what the header of the file can hold
CIRCUMSTANCES = ("lr", "fused", "foreach", "capturable")  # of a parameter group: the step and the device decide these


def weights_after(epochs: int, recipe: Recipe) -> str:
    """The name of the file of the weights after some epochs; after all of them it has no number."""
    return WEIGHTS if epochs >= recipe.epochs else f"weights-{epochs}.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Writes and restores network, optimiser and moving average, all in the shapes of the user's network.

    Schedules have no state: the learning rate of a step follows from its number.

    Args:
        folder: where the files are.
        trained_as: the network that is optimised, and the translation of its tensors.
        optimiser: holds the momentum, or whatever else it knows about each parameter.
        average: the moving average of the weights, if the recipe keeps one.
        scaler: the loss scaling of mixed precision in float16, which adapts to the gradients.
        unit: what the progress of the run is counted in, as the header of the file calls it.
    """

    folder: RunFolder
    trained_as: TrainedAs
    optimiser: torch.optim.Optimizer
    average: Average | None = None
    scaler: torch.amp.GradScaler | None = None
    unit: str = "epochs"

    def write(self, done: int) -> None:
        """Replace the state on disk by the present one, after `done` epochs (or other units), in one atomic step."""
        parts = {
            "model": self.trained_as.network.state_dict(),
            **self._optimiser_tensors(),
            "average": {} if self.average is None else self.average.state(),
        }
        tensors: State = {}
        for part, state in parts.items():
            for name, tensor in self.trained_as.own(state).items():
                tensors[f"{part}/{name}"] = tensor
        metadata = {self.unit: str(done), OPTIMISER: json.dumps(self._optimiser_numbers())}
        if self.scaler is not None and self.scaler.is_enabled():
            metadata[SCALER] = json.dumps(self.scaler.state_dict())
        self.folder.write_bytes(STATE, tensor_bytes(_storable(tensors), metadata))

    def write_weights(self, name: str) -> None:
        """Write the network's weights alone to a file, for use after training."""
        state = self.trained_as.own(self.trained_as.network.state_dict())
        self.folder.write_bytes(name, tensor_bytes(_storable(state)))

    def restore(self) -> int:
        """Restore the state on disk and return the number of its epochs (or other units); 0 if there is none."""
        path = self.folder.path / STATE
        if not path.exists():
            return 0
        try:
            metadata = tensor_header(path).metadata
            done = int(metadata[self.unit])
            self._load(tensors_in(path), json.loads(metadata.get(OPTIMISER, "{}")))
            if self.scaler is not None and SCALER in metadata:  # older versions did not keep it
                self.scaler.load_state_dict(json.loads(metadata[SCALER]))
        except (UnreadableFile, LookupError, RuntimeError, ValueError) as error:
            raise RunMismatch(
                f"{path} is not the state of this training run: {error}. Put it back from a copy, or train in another "
                "folder."
            ) from error
        return done

    @torch.no_grad()
    def _load(self, tensors: State, numbers: dict[str, Any]) -> None:
        self.trained_as.network.load_state_dict(self._part("model/", tensors))
        parts = {name.partition("/")[0] for name in tensors}
        for name, parameter in self._other_parameters().items():
            parameter.copy_(tensors.get(f"{OTHERS}/{name}", parameter))  # older versions did not keep them
        for part in sorted(parts - {"model", "average", OTHERS}):
            key = MOMENTUM_KEY if part == MOMENTUM else part.removeprefix(f"{OPTIMISER}.")
            self._load_optimiser(key, self._part(f"{part}/", tensors), numbers)
        self._load_numbers(numbers)
        if self.average is not None:
            self.average.load(self._part("average/", tensors))

    def _part(self, prefix: str, tensors: State) -> State:
        """The tensors whose names have a prefix, without it, in the shapes of the optimised network."""
        found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        return self.trained_as.grown(found)

    # -- the optimiser ------------------------------------------------------------------------------------------------

    def _optimiser_tensors(self) -> dict[str, State]:
        """What the optimiser knows about each owner as tensors: by what it is, then by the owner's name."""
        parts: dict[str, State] = {}
        for name, key, value in self._entries():
            if isinstance(value, Tensor):
                part = MOMENTUM if key == MOMENTUM_KEY else f"{OPTIMISER}.{key}"
                parts.setdefault(part, {})[name] = value
        return parts | {OTHERS: {name: tensor.detach() for name, tensor in self._other_parameters().items()}}

    def _optimiser_numbers(self) -> dict[str, Any]:
        """The plain numbers that the optimiser knows about owners, and those of its parameter groups."""
        numbers: dict[str, dict[str, Any]] = {}
        for name, key, value in self._entries():
            if isinstance(value, NUMBERS):
                numbers.setdefault(name, {})[key] = value
            elif not isinstance(value, Tensor):
                raise InvalidOption(
                    f"The optimiser keeps a {type(value).__name__} ({key}) for {name}, which a checkpoint cannot hold. "
                    "Train without a folder, or with another optimiser."
                )
        groups = [
            {key: value for key, value in group.items() if isinstance(value, NUMBERS) and key not in CIRCUMSTANCES}
            for group in self.optimiser.param_groups
        ]
        return {"parameters": numbers, "groups": groups, PLAIN: self._plain_entries(), HOST: self._host_entries()}

    def _plain_entries(self) -> list[list[str]]:
        """The entries that are contiguous although their parameters, which have the same shape, are not."""
        owners = self._owners()
        return [
            [name, key]
            for name, key, value in self._entries()
            if isinstance(value, Tensor) and _is_laid_out_otherwise(value, owners[name])
        ]

    def _host_entries(self) -> list[list[str]]:
        """The entries that are on the CPU although their parameters are not."""
        owners = self._owners()
        return [
            [name, key]
            for name, key, value in self._entries()
            if isinstance(value, Tensor) and isinstance(owners[name], Tensor)
            if value.device.type == "cpu" != owners[name].device.type
        ]

    def _entries(self) -> Iterator[tuple[str, str, Any]]:
        """The name of each owner with each entry that the optimiser has for it, and the value of the entry."""
        for name, owner in self._owners().items():
            state = self.optimiser.state.get(owner, {})
            for key, value in (state if isinstance(state, dict) else {ITSELF: state}).items():
                yield name, key, value

    def _owners(self) -> dict[str, Any]:
        """What the optimiser may have state for, by name: parameters, and texts under which it keeps its own state."""
        texts = {f"{TEXT}{key}": key for key in self.optimiser.state if isinstance(key, str)}
        return dict(self.trained_as.network.named_parameters()) | self._other_parameters() | texts

    def _other_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that the optimiser trains beside those of the network, such as those of a loss."""
        known = {id(parameter) for parameter in self.trained_as.network.parameters()}
        return {
            f"{OTHER}{number}.{place}": parameter
            for number, group in enumerate(self.optimiser.param_groups)
            for place, parameter in enumerate(group["params"])
            if id(parameter) not in known
        }

    def _load_optimiser(self, key: str, values: State, numbers: dict[str, Any]) -> None:
        """Restore one entry of the optimiser for each owner that has it, as it was in memory."""
        plain, host = numbers.get(PLAIN, ()), numbers.get(HOST, ())
        on_device = any(group.get("fused") or group.get("capturable") for group in self.optimiser.param_groups)
        owners = self._owners()
        for name, value in values.items():
            owner = owners.get(name, name.removeprefix(TEXT))
            if isinstance(owner, Tensor) and value.shape == owner.shape and [name, key] not in plain:
                value = torch.empty_like(owner, dtype=value.dtype).copy_(value)
            elif [name, key] not in host and (key != STEP or on_device):  # older versions did not record what is there
                value = value.to(device_of_model(self.trained_as.network))
            self._keep(owner, key, value)

    def _load_numbers(self, numbers: dict[str, Any]) -> None:
        owners = self._owners()
        for name, entries in numbers.get("parameters", {}).items():
            for key, value in entries.items():
                self._keep(owners.get(name, name.removeprefix(TEXT)), key, value)
        for group, found in zip(self.optimiser.param_groups, numbers.get("groups", ()), strict=False):
            group.update(found)

    def _keep(self, owner: Any, key: str, value: Any) -> None:
        if key == ITSELF:
            self.optimiser.state[owner] = value
        else:
            self.optimiser.state[owner][key] = value


def _is_laid_out_otherwise(value: Tensor, owner: Any) -> bool:
    return isinstance(owner, Tensor) and value.shape == owner.shape and value.stride() != owner.stride()


def training_request(
    model: nn.Module,
    recipe: Recipe,
    data: dict[str, Any],
    teacher: nn.Module | Sequence[nn.Module] | None,
    loss: Loss | None = None,
) -> dict[str, Any]:
    """What a run is to compute, as run.json records it: everything that changes the result.

    The statistics of batch norms are not part of it, because training makes its own, and statistics from a GPU differ
    from those of a CPU in their last bits.

    Args:
        model: the network with the weights that training starts from.
        recipe: the settings, with the batch size that is used.
        data: the identity of the training data.
        teacher: the network or networks to imitate, if any.
        loss: the user's loss; None is cross-entropy.
    """
    teachers = [] if teacher is None else [teacher] if isinstance(teacher, nn.Module) else list(teacher)
    state = model.state_dict()
    return {
        "recipe": recipe.to_json(),
        "data": data,
        "model": {
            "tensors": len(state),
            "numbers": sum(tensor.numel() for tensor in state.values()),
            STARTING: digest(model.parameters()),
        },
        LOSS: "" if loss is None else source_of(loss),
        "teachers": [digest(network.state_dict().values()) for network in teachers],
    }


def keep_starting_weights(folder: RunFolder, request: dict[str, Any]) -> None:
    """Give a request the starting weights that a folder records: those of the first call."""
    recorded = folder.read_json(RUN)
    known = recorded.get("model") if isinstance(recorded, dict) else None
    if isinstance(known, dict) and STARTING in known:
        request["model"][STARTING] = known[STARTING]


def check_same_request(folder: RunFolder, request: dict[str, Any]) -> None:
    """Reject a folder that belongs to another network, recipe, teacher or data, and list the differences."""
    recorded = folder.read_json(RUN)
    if recorded is None:
        return
    if isinstance(recorded, dict) and "limits" in recorded:
        raise RunMismatch(f"{folder.path} holds a run that prunes, not a training. Choose another folder.")
    if not isinstance(recorded, dict) or not isinstance(recorded.get("recipe"), dict):
        raise DamagedRun(
            f"{folder.path / RUN} does not describe a training run. Restore it from a copy, or choose another folder."
        )
    recorded.pop(THREADS, None)  # `fit` has set it
    recorded["recipe"] = Recipe.completed(recorded["recipe"])
    if LOSS not in recorded or (recorded[LOSS] and not are_comparable(recorded[LOSS], request[LOSS])):
        recorded[LOSS] = request[LOSS]  # older versions did not record it
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
