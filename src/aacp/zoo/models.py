"""Networks by name: built in, from torchvision or timm, or from your function."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from aacp.errors import InvalidOption, UnknownModel
from aacp.pytorch.modules import require_network
from aacp.user.options import advice, advice_of_many
from aacp.user.values import shown
from aacp.zoo._torchvision import import_torchvision
from aacp.zoo.imports import function_of, module_of, result_of
from aacp.zoo.networks import NETWORKS

MAX_INPUT = 1 << 30  # numbers in an input that `example_input` makes
LIBRARIES = ("torchvision:NAME", "timm:NAME")  # whose networks are known by name
IMAGE = (3, 224, 224)  # the input size of networks that do not name one


def build_model(name: str) -> nn.Module:
    """A network without trained weights.

    Args:
        name: a built-in network such as "resnet56", "torchvision:NAME", "timm:NAME", or "package.module:function" for
            your own function without arguments that returns the network.
    """
    if isinstance(name, str) and name in NETWORKS:
        return NETWORKS[name]()
    source, separator, entry = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not separator or not source or not entry:
        if _is_in_torchvision(name):
            raise UnknownModel(f"{name!r} is a network of torchvision. Give torchvision:{name}.")
        known = advice(name, [*NETWORKS, *LIBRARIES], ", or package.module:function for your own")
        raise UnknownModel(f"{shown(name)} is not a model name. {known}")
    if source == "timm":
        return _from_timm(entry)
    if source.split(".")[0] == "torchvision":
        return _from_torchvision(source, entry)
    return _from_user(source, entry)


def example_input(model: nn.Module, shape: tuple[int, ...] | None = None, batch: int | None = None) -> torch.Tensor:
    """A random batch of inputs, the same one on every call.

    Args:
        model: the network; timm's `default_cfg` gives the input size.
        shape: the shape of the batch; by default one input of the size that the network is made for.
        batch: the batch size that the caller will use; a shape with another batch size above 1 is rejected.
    """
    if shape is not None and batch is not None and shape[0] not in (1, batch):
        raise InvalidOption(
            f"The input {'x'.join(map(str, shape))} is a batch of {shape[0]}, but the batch size is {batch}. Give "
            "the same number in both, or an input that begins with 1."
        )
    if shape is None:
        shape = (1, *(named_input_size(model) or IMAGE))
    if min(shape, default=0) < 1 or math.prod(shape) > MAX_INPUT:
        raise InvalidOption(
            f"An input of shape {shown(shape)} cannot be made: it has {shown(math.prod(shape))} numbers. Give sizes of "
            f"at least 1, and at most {MAX_INPUT:,} numbers in all."
        )
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def example_inputs(
    model: nn.Module, shapes: Sequence[tuple[int, ...]], batch: int | None = None
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """What `example_input` makes for at most one shape; for several, a tuple of inputs, one for each argument."""
    inputs = tuple(example_input(model, shape, batch) for shape in shapes or (None,))
    return inputs if len(inputs) > 1 else inputs[0]


def named_input_size(model: nn.Module) -> tuple[int, ...] | None:
    """The size of an input that a network names in its `default_cfg`, as those of timm do; None if it names none."""
    settings = getattr(model, "default_cfg", None)
    return settings.get("input_size") if isinstance(settings, Mapping) else None


def likely_shape(model: nn.Module) -> tuple[int, ...]:
    """A shape that a network may take, by the channels and dimensions of its first convolution."""
    for module in model.modules():
        for kind, sides in ((nn.Conv1d, (16000,)), (nn.Conv2d, (32, 32)), (nn.Conv3d, (32, 32, 32))):
            if isinstance(module, kind):
                return (1, module.in_channels, *sides)
    return (1, *IMAGE)


def _is_in_torchvision(name: Any) -> bool:
    try:
        return name in import_torchvision().models.list_models()
    except UnknownModel:  # it is not installed
        return False


def _from_torchvision(source: str, entry: str) -> nn.Module:
    import_torchvision()
    family = source.removeprefix("torchvision").removeprefix(".models").removeprefix(".")
    place = f"torchvision.models.{family}" if family else "torchvision.models"
    module = module_of(place, UnknownModel)
    builder = getattr(module, entry, None)
    if not callable(builder):
        names = module_of("torchvision.models", UnknownModel).list_models(module)
        known = advice_of_many(entry, names, "torchvision.models.list_models()")
        raise UnknownModel(f"{place} has no model {entry!r}. {known}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision warns about how weights are initialised
        names = [name for name in ("weights", "weights_backbone") if name in inspect.signature(builder).parameters]
        name = f"{source}:{entry}"
        return _network(name, result_of(name, lambda: builder(**dict.fromkeys(names)), UnknownModel))


def _from_timm(entry: str) -> nn.Module:
    try:
        import_torchvision()
        import timm
    except ImportError as error:
        raise UnknownModel("timm is not installed. Install it with: pip install 'aacp[vision]'.") from error
    if not timm.is_model(entry):
        known = advice_of_many(entry, timm.list_models(), "timm.list_models()")
        raise UnknownModel(f"timm has no model {entry!r}. {known}")
    model: nn.Module = timm.create_model(entry)
    return model


def _from_user(source: str, entry: str) -> nn.Module:
    return _network(f"{source}:{entry}", function_of(source, entry, "the network", UnknownModel, LIBRARIES)())


def _network(name: str, model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise UnknownModel(
            f"{name} returned a {type(model).__name__}, not a torch.nn.Module. Return the network itself."
        )
    require_network(model, name)
    return model
