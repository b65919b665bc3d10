"""What others wrote, by name: a function of the user's, and torchvision."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aacp.errors import AACPError, MissingPackage, UnknownModel

MISFIT = "operator torchvision::nms does not exist"


def module_of(name: str, error: type[AACPError]) -> types.ModuleType:
    """A Python module by its dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise error(
            f"There is no Python module {missing.name!r}. Run the command where it can be imported, or install it."
        ) from missing
    except Exception as failure:
        if MISFIT in str(failure):
            import_torchvision()
            return module_of(name, error)
        raise error(
            f"Importing {name} failed with {type(failure).__name__}: {failure}. Mend it, or name another module."
        ) from failure


def function_of(source: str, entry: str, returned: str, error: type[AACPError]) -> Callable[[], Any]:
    """The user's function `entry` of the module `source`, as a function whose failures are ours to tell."""
    function = _found(source, entry, error)
    if not callable(function):
        raise error(f"{source} has no function {entry!r}. Name a function or class that returns {returned}.")
    return lambda: result_of(f"{source}:{entry}", function, error)


def named_object(name: str, error: type[AACPError]) -> Any:
    """Import an object that a user names as `package.module:NAME`."""
    source, _, entry = name.partition(":")
    found = _found(source, entry, error) if source and entry else None
    if found is None:
        raise error(f"There is no {name}. Name an object of your own as package.module:NAME.")
    return found


def require_package(name: str, install: str) -> types.ModuleType:
    """Import an optional package; `install` is the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise MissingPackage(f"{name} is not installed. Install it with: {install}.") from missing


def named_function(name: str, arguments: str, error: type[AACPError]) -> Callable[..., Any]:
    """A function of the user's that is called later, with arguments."""
    source, _, entry = name.partition(":")
    function = _found(source, entry, error) if source and entry else None
    if not callable(function):
        raise error(f"{name} is no function. Name one of {arguments}, as package.module:function.")
    found: Callable[..., Any] = function
    return found


def _found(source: str, entry: str, error: type[AACPError]) -> Any:
    _refuse_file(source, entry, error)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # "my_model:build" means the file beside the user
    return getattr(module_of(source, error), entry, None)


def _refuse_file(source: str, entry: str, error: type[AACPError]) -> None:
    """A file has the name of a module once its ending is gone and its folders are parted by dots."""
    path = Path(source)
    if path.suffix != ".py" and "/" not in source and not source.startswith("."):
        return
    outside = path.is_absolute() or ".." in path.parts
    name = path.name.removesuffix(".py").lstrip(".")
    module = name if outside else ".".join([*path.parent.parts, name])
    place = f", and run the command in {path.parent}" if outside else ""
    raise error(f"{source} is the name of a file, but a Python module is needed. Use {module}:{entry}{place}.")


def result_of(name: str, function: Callable[[], Any], error: type[AACPError]) -> Any:
    """What a function returns that takes no arguments; whatever it raises becomes one of our errors."""
    try:
        return function()
    except Exception as failure:
        raise error(
            f"{name} failed with {type(failure).__name__}: {failure}. "
            "Name a function that takes no arguments and works."
        ) from failure


def import_torchvision(error: type[AACPError] = UnknownModel) -> types.ModuleType:
    """torchvision, also where its compiled operators do not fit the installed torch (a CPU-only build).

    The import needs no more of them than two schemas.
    """
    try:
        return importlib.import_module("torchvision")
    except ImportError as missing:
        raise error("torchvision is not installed. Install it with: pip install 'aacp[vision]'.") from missing
    except RuntimeError as failure:
        if MISFIT not in str(failure):
            raise
        for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        schemas: Any = _SCHEMAS
        for name in ("nms", "qnms"):
            schemas.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module("torchvision")


# Must live as long as the schemas are used.
_SCHEMAS = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
