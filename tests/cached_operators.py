"""The operators of torch.onnx, listed once for all tests: each export lists all of them anew.

That takes longer than the rest of the export of a small network. An export changes the list only if it is given
operators of its own, which `aacp` does not give.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

REGISTRY = "torch.onnx._internal.exporter._registration"


def share(patch: pytest.MonkeyPatch) -> None:
    """Let all exports use the list that the first one makes; the module of the list is imported by the first export."""
    patch.setattr(torch.onnx, "export", _sharing(torch.onnx.export))


def _sharing(export: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(export)
    def exported(*arguments: Any, **options: Any) -> Any:
        if options.get("dynamo"):
            registry = importlib.import_module(REGISTRY).ONNXRegistry
            if not hasattr(registry.from_torchlib, "cache_info"):
                registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))
        return export(*arguments, **options)

    return exported
