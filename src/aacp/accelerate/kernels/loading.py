"""Load our Triton kernels, after a test that they compile and run on this machine."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import ModuleType

from aacp.errors import first_line


@cache
def load_kernels(name: str, user: str) -> ModuleType | None:
    """A module of kernels whose `self_test` passed; None, with one warning, if there is no Triton or the test fails.

    Args:
        name: the full name of the module.
        user: the part of aacp that uses the kernels, for the warning.
    """
    try:
        module = importlib.import_module(name)
        module.self_test()
    except Exception as error:  # another version of the compiler or another GPU may raise anything
        warnings.warn(f"{user} runs without aacp's own kernels: {first_line(error)}.", stacklevel=2)
        return None
    return module
