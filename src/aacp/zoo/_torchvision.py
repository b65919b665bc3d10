"""Private: imports torchvision even where its compiled operators do not match the installed torch.

Where torch is of another build (CPU-only torch beside a CUDA torchvision, as on our test machines), importing it
fails because two operators of object detection are not registered. Networks and transforms do not use them, so it is
enough to declare their schemas. Only `build_model`, `load_data` and names on the command line go through here.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import torch

from aacp.errors import AACPError, UnknownModel

MISMATCH = "operator torchvision::nms does not exist"  # how torchvision reports operators that do not match
_SCHEMAS: list[torch.library.Library] = []  # declared schemas disappear with their library, so it is kept here


def import_torchvision(error: type[AACPError] = UnknownModel) -> types.ModuleType:
    """The torchvision module; `error` is raised if it is not installed."""
    try:
        return importlib.import_module("torchvision")
    except ImportError as missing:
        raise error("torchvision is not installed. Install it with: pip install 'aacp[vision]'.") from missing
    except RuntimeError as failure:
        if MISMATCH not in str(failure):
            raise
    _declare_operators()
    return importlib.import_module("torchvision")


def _declare_operators() -> None:
    """Declare the operators and forget the failed import, so that the next one starts from the beginning."""
    for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[module]
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
    _SCHEMAS.append(library)
