"""Models of OpenVINO in int8: static quantisation by NNCF, Intel's package for it.

Weights are signed and symmetric with a scale for each output channel; activations are asymmetric. Biases are corrected
for the mean error of each layer, as is NNCF's default.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from torch import Tensor

from aacp.artefact.onnx_int8 import USE_FLOAT32, are_products_exact
from aacp.errors import ExportFailed, InvalidOption, failing_as
from aacp.latency.runtimes.converted import silent
from aacp.latency.runtimes.openvino_files import arrays_of
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[openvino-int8]'"
NO_REPORTS = "NNCF_CI"  # the environment variable with which NNCF is imported without its reports to Intel


def quantize_model(model: Any, inputs: Sequence[tuple[Tensor, ...]]) -> Any:
    """Return a model of OpenVINO in int8.

    Args:
        model: the model in float.
        inputs: batches of inputs, on which the ranges of activations are found.
    """
    nncf = import_nncf()
    arrays = [arrays_of(tensors) for tensors in inputs]
    # With half of the range for weights, sums of products cannot overflow; see `are_products_exact`.
    overflow = nncf.OverflowFix.DISABLE if are_products_exact() else nncf.OverflowFix.ENABLE
    failing = failing_as(ExportFailed, "NNCF cannot quantise the network", USE_FLOAT32)
    with failing, silent(), redirect_stdout(io.StringIO()):  # NNCF prints progress bars
        quantized = nncf.quantize(
            model,
            nncf.Dataset(arrays),
            subset_size=len(arrays),
            preset=nncf.QuantizationPreset.MIXED,
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=overflow),
        )
    if not any(operator.get_type_name() == "FakeQuantize" for operator in quantized.get_ops()):
        raise InvalidOption("NNCF quantises no layer of the network. Use the precision float32.")
    return quantized


def import_nncf() -> Any:
    """Import NNCF without its reports to Intel, and undo its change of the class of loggers."""
    loggers = logging.getLoggerClass()
    before = os.environ.get(NO_REPORTS)
    os.environ[NO_REPORTS] = "1"
    try:
        with silent(), redirect_stdout(io.StringIO()):
            return require_package("nncf", INSTALL)
    finally:
        logging.setLoggerClass(loggers)
        if before is None:
            del os.environ[NO_REPORTS]
        else:
            os.environ[NO_REPORTS] = before
