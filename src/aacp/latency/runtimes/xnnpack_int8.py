"""Exported programs in int8: static quantisation for XNNPACK by torchao's PT2E.

Weights are signed and symmetric with a scale for each output channel; activations are signed and asymmetric.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from aacp.errors import InvalidOption
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[executorch]'"


def quantize_program(program: Any, inputs: Iterable[tuple[Tensor, ...]]) -> torch.fx.GraphModule:
    """Return an exported program as a module whose layers are quantised for XNNPACK; any exception may be raised.

    Args:
        program: what `torch.export` returned.
        inputs: batches of inputs, on which the ranges of activations are found.
    """
    xnnpack = require_package("executorch.backends.xnnpack.quantizer.xnnpack_quantizer", INSTALL)
    torchao = require_package("torchao.quantization.pt2e.quantize_pt2e", INSTALL)
    how = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(how)
    # Without the patterns for training: the quantiser exports each of its patterns in every call, which takes seconds.
    quantizer.SUPPORTED_PATTERNS = [pattern for pattern in quantizer.SUPPORTED_PATTERNS if not pattern.is_qat]
    prepared = torchao.prepare_pt2e(program.module(), quantizer)
    with torch.no_grad():
        for tensors in inputs:
            prepared(*tensors)
    quantized: torch.fx.GraphModule = torchao.convert_pt2e(prepared)
    if not any("quantize_per_channel" in str(node.target) for node in quantized.graph.nodes):
        raise InvalidOption("torchao quantises no layer of the network for XNNPACK. Use the precision float32.")
    return quantized


@contextmanager
def silent() -> Iterator[None]:
    """Hide the messages about optional parts of packages that are not there."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
