"""Imports everything that runs import late. Only the process of `faults.forker` imports this."""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import tempfile

import torch

import aacp
import faults.names  # noqa: F401
from aacp.cli import main
from faults.subjects import MIMIC, PRUNE

OTHERS = ("lightning_fabric", "plotly", "torch.export", "torch._export", "torch._dynamo", "torch._functorch")


def import_all() -> None:
    """Import every module of the core, and what it uses."""
    for module in pkgutil.walk_packages(aacp.__path__, "aacp."):
        if "accelerate" not in module.name and "contrib" not in module.name:
            importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)


def run_twice() -> None:
    """Two small runs."""
    with (
        tempfile.TemporaryDirectory(prefix="aacp-warm-") as folder,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        main([*PRUNE, "--run", f"{folder}/run"], standalone_mode=False)
        main([*MIMIC, "--run", f"{folder}/mimicked"], standalone_mode=False)


if torch.version.cuda is None:
    run_twice()
else:  # with a CUDA build of torch, a process that has computed gradients must not be forked
    import_all()
