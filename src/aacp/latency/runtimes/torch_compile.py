"""The runtime torch-compile: the module as torch.compile translates it, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aacp.data.examples import tensors_in
from aacp.errors import ExportFailed, failing_as
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.torch import TorchNetwork, TranslatedTorch, torch_threads
from aacp.pytorch.internals import quiet_export
from aacp.pytorch.modules import positional


class TorchCompile(TranslatedTorch):
    """torch.compile with its default compiler, for the shapes of the example.

    Layers are fused with what follows them, so that the time of a batch is divided in proportion to MACs.
    """

    name = "torch-compile"
    title = "torch.compile"

    def translate(self, module: nn.Module, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        arguments = positional(module, example)
        flat = FlatNetwork(module, arguments)
        tensors = tensors_in(arguments)
        remedy = "Check that a C++ compiler is installed, or use the runtime torch."
        failing = failing_as(ExportFailed, f"{type(module).__name__} cannot be compiled", remedy)
        # The number of threads becomes part of the code that is written for a CPU.
        with failing, quiet_export(), torch_threads(threads):
            prepared = TorchNetwork(_exported(flat, tensors), tensors, device)
            prepared.network.compile(fullgraph=True, dynamic=False)
            prepared.run()
        return prepared.run


def _exported(network: nn.Module, tensors: tuple[torch.Tensor, ...]) -> nn.Module:
    """Return a network as a module of its own class.

    torch.compile keeps a few versions of the code of a class and runs any other network of that class uncompiled.
    """
    with torch.no_grad():
        return torch.export.export(network, tensors, strict=False).module()
