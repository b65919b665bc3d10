"""The one door to `aacp.accelerate`, the optional folder that holds everything that only makes aacp faster.

The core calls this module to get a faster form of something. It uses its own plain form if there is none: because the
folder is not installed, or because the faster form does not apply. No other module of the core imports that folder.
"""

from __future__ import annotations

import importlib
from typing import Any

FOLDER = "aacp.accelerate"


def accelerated(name: str, *arguments: Any) -> Any:
    """Call a function of `aacp.accelerate` with these arguments.

    Returns:
        What the function returns, which is None if it does not apply; None also where the folder is not installed.
    """
    try:
        folder = importlib.import_module(FOLDER)
    except ModuleNotFoundError as error:
        if error.name != FOLDER:
            raise  # a module that the folder needs is missing
        return None
    return getattr(folder, name)(*arguments)
