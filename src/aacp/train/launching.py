"""Run the same function in several processes on one machine, and report if one of them is lost."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from aacp.errors import AACPError, InvalidOption, WorkerFailed, first_line
from aacp.pytorch.internals import STRIDES_WARNING
from aacp.train.fabric import lost_message, make_fabric
from aacp.train.recipe import Precision
from aacp.user.code import described_failure
from aacp.user.progress import is_shown, show_progress
from aacp.user.values import whole_number
from aacp.workers.lifetime import Launcher, end_with

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

    from lightning_fabric import Fabric


def run_in_processes(
    function: Callable[..., Any],
    *arguments: Any,
    processes: int = 1,
    precision: Precision = "auto",
    device: torch.device | str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Any:
    """Call `function(fabric, *arguments)` in every process and return the result of the first process.

    Args:
        function: it must be importable, because new processes import it.
        arguments: they must be picklable, because they are sent to new processes.
        processes: how many processes to start; with 1 the function runs in this process.
        precision: the precision of the fabric.
        device: where to run, such as "cpu" or "cuda"; None for the GPUs if there are any.
        folder: the run folder of the function, which the error about a lost process names.
    """
    processes = whole_number("processes", processes, 1)
    fabric = make_fabric(precision, device, processes)
    if processes == 1:
        return function(fabric, *arguments)
    errors = torch.multiprocessing.get_context("spawn").SimpleQueue()
    try:
        return fabric.launch(partial(_result, function, arguments, errors, Launcher(os.getpid()), is_shown(), folder))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if "pickle" not in str(error):
            raise
        raise InvalidOption(
            f"The work cannot be sent to {processes} processes: {first_line(error)}. Define functions and classes in a "
            "module, or train in one process."
        ) from error
    except ProcessExitedException as error:
        ended = f"signal {error.signal_name}" if error.signal_name else f"exit code {error.exit_code}"
        raise WorkerFailed(
            lost_message(f"Process {error.error_index} of {processes} ended with {ended}", folder)
        ) from error
    except ProcessRaisedException as error:
        if not errors.empty():
            raise errors.get() from error  # the first one: processes that fail later may have lost the first
        reason = str(error).strip().splitlines()[-1]
        raise WorkerFailed(
            lost_message(f"Process {error.error_index} of {processes} failed: {reason}", folder)
        ) from error


def _result(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    errors: SimpleQueue[AACPError],
    launcher: Launcher,
    shows_progress: bool,
    folder: str | os.PathLike[str] | None,
    fabric: Fabric,
) -> Any:
    """The result of the function. An error goes to `errors`, for `run_in_processes` to raise it again.

    It also ends the process, so that the launcher stops the others, which may wait for this one.
    """
    end_with(launcher.pid)  # again: torch has replaced the signal that the process gets
    # torch warns about convolutions with one channel, whose gradient has two equally good memory layouts.
    warnings.filterwarnings("ignore", STRIDES_WARNING)
    try:
        with show_progress() if shows_progress else nullcontext():
            result = function(fabric, *arguments)
    except AACPError as error:
        errors.put(error)
        raise
    except Exception as error:  # before the others notice that this process is lost
        what = f"Process {fabric.global_rank} of {fabric.world_size} failed: {described_failure(error)}"
        errors.put(WorkerFailed(lost_message(what, folder)))
        raise
    if dist.is_initialized():
        # Threads of Gloo may otherwise release tensors while Python ends, which aborts the process (pytorch#179291).
        dist.destroy_process_group()
    return result
