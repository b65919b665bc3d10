"""aacp: automatic channel pruning of convolutional networks.

Names are imported when first used, so that `aacp --help` need not wait for torch."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

from aacp.version import __version__ as __version__


def _public_names() -> dict[str, str]:
    """The public names, each with the module that defines it, as the stub file imports them."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULES = _public_names()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `aacp --help` must not wait for torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'aacp' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
