"""Commands in processes that are forked from a clean one, so that torch is imported only once."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch

from aacp.cli import main

# A clean process forks them: pytest has threads, and a fresh interpreter would import torch for each.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "lightning_fabric", "aacp.estimate.psae", "aacp.pipeline.job"])


def started(*arguments: str | Path, stderr: Path | None = None) -> ForkServerProcess:
    """Start `aacp` with these arguments; its messages go to a file if one is given."""
    process = CONTEXT.Process(target=_command, args=([*map(str, arguments)], stderr), daemon=True)
    process.start()
    return process


def _command(arguments: list[str], stderr: Path | None) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
    torch.set_num_threads(1)
    if stderr is not None:
        sys.stderr = stderr.open("w", buffering=1)
    main(arguments)
