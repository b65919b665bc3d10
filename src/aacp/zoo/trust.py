"""Trust: the code that a file names is imported only if the user says so.

A run folder or the file of a pruned network records its functions as `package.module:function`. Importing one executes
the module, so a folder from a stranger could execute anything. Names of built-in networks and data execute nothing.
"""

from __future__ import annotations

import importlib.machinery
import os
from collections.abc import Iterable
from pathlib import Path

from aacp.errors import UntrustedCode
from aacp.zoo.catalogue import OWN_DATA, named_data

MODEL = "model"  # the use of a name that `build_model` builds a network by
DATA = "data"  # the use of a name that `load_data` loads data by


def require_trust(place: str | os.PathLike[str], names: Iterable[tuple[str, str | None]], trust: bool) -> None:
    """Reject the code that a file names, unless the user trusts the file.

    Args:
        place: the run folder or file that holds the names.
        names: the use of each recorded name (MODEL, DATA, or another word for a function) and the name, or None.
        trust: whether the user trusts the file.
    """
    code = [f"{name} ({use}{_origin(name)})" for use, name in names if name is not None and is_code(use, name)]
    listed = ", ".join(dict.fromkeys(code))
    if listed and not trust:
        raise UntrustedCode(
            f"{os.fspath(place)} names code, which would be imported and executed: {listed}. If you trust whoever made "
            "it, add --trust (trust=True in Python); otherwise give your own in place of these."
        )


def is_code(use: str, name: str) -> bool:
    """Whether a name stands for Python code of the user, not for something built in."""
    source = name.partition(":")[0]
    if use == MODEL:  # of timm only "timm:NAME" is known by name: "timm.layers:build" is imported like any module
        return ":" in name and source != "timm" and source.split(".")[0] != "torchvision"
    if use == DATA:
        return ":" in name and named_data(name) is OWN_DATA
    return ":" in name


def _origin(name: str) -> str:
    """Where the module of a name would come from if it lies in the current folder; nothing is imported to find out."""
    top = name.partition(":")[0].split(".")[0]
    try:
        found = importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd())])
    except (ImportError, ValueError, OSError):
        return ""
    return "" if found is None else ", a module in the current folder"
