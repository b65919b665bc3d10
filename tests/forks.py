"""Commands in processes that are forked from a clean one, so that torch is imported only once."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch

from aacp.cli import main

# A clean process forks them: pytest has threads, and a fresh interpreter would import torch for each.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "lightning_fabric", "aacp.estimate.distributed", "aacp.estimate.psae", "aacp.pipeline.job"]
)


def started(*arguments: str | Path) -> ForkServerProcess:
    """`aacp` with these arguments, on its way."""
    process = CONTEXT.Process(target=_command, args=([*map(str, arguments)],), daemon=True)
    process.start()
    return process


def _command(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    main(arguments)
