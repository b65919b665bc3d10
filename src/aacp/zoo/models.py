"""Networks by name: ours, torchvision's, timm's, or a function of the user's."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.errors import UnknownModel
from aacp.zoo.networks import NETWORKS

IMAGE = (3, 224, 224)  # what networks are made for unless they say otherwise


def build_model(name: str) -> nn.Module:
    """A network without trained weights: one of ours, `torchvision:NAME`, `timm:NAME` or `package.module:function`."""
    if name in NETWORKS:
        return NETWORKS[name]()
    source, separator, entry = name.partition(":")
    if not separator or not source or not entry:
        raise UnknownModel(
            f"{name!r} is not a model name. Write {', '.join(NETWORKS)}, torchvision:NAME, timm:NAME, "
            "or package.module:function for your own."
        )
    if source == "timm":
        return _from_timm(entry)
    if source.split(".")[0] == "torchvision":
        return _from_torchvision(source, entry)
    return _from_user(source, entry)


def example_input(model: nn.Module, shape: tuple[int, ...] | None = None) -> torch.Tensor:
    """One random image batch of `shape`, or of the size the network says it is made for."""
    if shape is None:
        settings = getattr(model, "default_cfg", None) or {}
        shape = (1, *settings.get("input_size", IMAGE))
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def import_torchvision() -> types.ModuleType:
    """torchvision, also where its compiled operators do not fit the installed torch (a CPU-only build)."""
    try:
        return importlib.import_module("torchvision")
    except ImportError as error:
        raise UnknownModel("torchvision is not installed. Install it with: pip install 'aacp[vision]'.") from error
    except RuntimeError:  # "operator torchvision::nms does not exist": the import needs no more than the two schemas
        for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        schemas: Any = _SCHEMAS
        for name in ("nms", "qnms"):
            schemas.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module("torchvision")


# Must live as long as the schemas are used.
_SCHEMAS = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]


def _from_torchvision(source: str, entry: str) -> nn.Module:
    import_torchvision()
    family = source.removeprefix("torchvision").removeprefix(".models").removeprefix(".")
    place = f"torchvision.models.{family}" if family else "torchvision.models"
    builder = getattr(_module(place), entry, None)
    if not callable(builder):
        raise UnknownModel(f"{place} has no model {entry!r}. torchvision.models.list_models() lists all names.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about how weights are initialised
        names = [name for name in ("weights", "weights_backbone") if name in inspect.signature(builder).parameters]
        return _built(f"{source}:{entry}", lambda: builder(**dict.fromkeys(names)))


def _from_timm(entry: str) -> nn.Module:
    try:
        import_torchvision()
        import timm
    except ImportError as error:
        raise UnknownModel("timm is not installed. Install it with: pip install 'aacp[vision]'.") from error
    if not timm.is_model(entry):
        raise UnknownModel(f"timm has no model {entry!r}. timm.list_models('*{entry[:6]}*') lists what is close.")
    model: nn.Module = timm.create_model(entry)
    return model


def _from_user(source: str, entry: str) -> nn.Module:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # "my_model:build" means the file beside the user
    builder = getattr(_module(source), entry, None)
    if not callable(builder):
        raise UnknownModel(f"{source} has no function {entry!r}. Name a function or class that returns the network.")
    return _built(f"{source}:{entry}", builder)


def _built(name: str, builder: Callable[[], Any]) -> nn.Module:
    try:
        model = builder()
    except Exception as error:  # whatever the function raises
        raise UnknownModel(
            f"{name} failed with {type(error).__name__}: {error}. Name a function that takes no arguments and works."
        ) from error
    if not isinstance(model, nn.Module):
        raise UnknownModel(
            f"{name} returned a {type(model).__name__}, not a torch.nn.Module. Return the network itself."
        )
    return model


def _module(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnknownModel(
            f"There is no Python module {error.name!r}. Run the command where it can be imported, or install it."
        ) from error
