"""Launching: the same function in several processes on one machine, and what is said when one of them is lost."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from aacp.errors import AACPError, InvalidOption, WorkerFailed
from aacp.torch_internals import STRIDES_WARNING
from aacp.train.devices import lost_message, make_fabric
from aacp.train.recipe import Precision

# On import, since new processes hear its announcements before any function of ours is called.
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


def run_in_processes(
    function: Callable[..., Any],
    *arguments: Any,
    processes: int = 1,
    precision: Precision = "auto",
    device: torch.device | str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Any:
    """Call `function(fabric, *arguments)` in every process and give back what the first one returned.

    Function and arguments must be importable and picklable, as they travel to new processes. `folder` is where the
    function keeps its run: what is said about a lost process names it.
    """
    if processes < 1:
        raise InvalidOption(f"processes is {processes}, but training needs at least 1. Give a positive number.")
    fabric = make_fabric(precision, device, processes)
    if processes == 1:
        return function(fabric, *arguments)
    try:
        answer = fabric.launch(partial(_answer, function, arguments))
    except ProcessExitedException as error:
        ended = f"signal {error.signal_name}" if error.signal_name else f"exit code {error.exit_code}"
        raise WorkerFailed(
            lost_message(f"Process {error.error_index} of {processes} ended with {ended}", folder)
        ) from error
    except ProcessRaisedException as error:
        reason = str(error).strip().splitlines()[-1]
        raise WorkerFailed(
            lost_message(f"Process {error.error_index} of {processes} failed: {reason}", folder)
        ) from error
    if isinstance(answer, AACPError):
        raise answer
    return answer


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], fabric: Fabric) -> Any:
    """What the function returns, or the error of ours that it raised: the first process speaks for all."""
    # Of a convolution on one channel, whose gradient has two equally good layouts.
    warnings.filterwarnings("ignore", STRIDES_WARNING)
    try:
        return function(fabric, *arguments)
    except AACPError as error:
        if not fabric.is_global_zero:
            sys.stderr.write(f"process {fabric.global_rank}: {type(error).__name__}: {error}\n")
        return error
