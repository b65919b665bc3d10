"""Trying: kernels of our own, once they have been seen to compile and run on this machine."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import ModuleType

from aacp.errors import first_line


@cache
def tried(name: str, user: str) -> ModuleType | None:
    """A module of kernels, whose `try_out` was run; None, with one warning, where there is no Triton or it fails."""
    try:
        module = importlib.import_module(name)
        module.try_out()
    except Exception as error:  # whatever a compiler of another version or a GPU of another kind may raise
        warnings.warn(f"{user} goes without its own kernels: {first_line(error)}.", stacklevel=2)
        return None
    return module
