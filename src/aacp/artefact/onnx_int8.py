"""ONNX files in int8: a float file quantised by ONNX Runtime, with the ranges of activations found on given inputs.

The format is QDQ: pairs of QuantizeLinear and DequantizeLinear around the operators of the float file, from which a
runtime makes operators in int8. Weights are signed, symmetric, with a scale for each output channel. Activations are
unsigned and asymmetric (U8S8), which ONNX Runtime recommends for x86: with signed ones, version 1.31 ran a part of the
convolutions of a small ResNet in float there. The outputs of linear layers stay in float, so that the
scores of a classifier are not rounded to 256 values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aacp.artefact.onnx_session import INSTALL, open_session, session_inputs
from aacp.disk.writing import remove_file
from aacp.errors import ExportFailed, InvalidOption, failing_as
from aacp.graph.examples import in_batches
from aacp.zoo.imports import require_package

# The operators whose weights are quantised; the others only compute on what these return.
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FLOAT_OUTPUTS = ["Gemm", "MatMul"]
USE_FLOAT32 = "Use the precision float32, or freeze and replace the part of the network that it names."


def quantize_file(source: Path, target: Path, images: Sequence[Any]) -> int:
    """Write an ONNX file in int8, and return how many layers of it are quantised.

    Args:
        source: a file in float32; a file for one batch size gets the inputs in batches of that size.
        target: the file to write.
        images: batches of inputs on which the ranges of activations are found.
    """
    package = require_package("onnxruntime.quantization", INSTALL)
    prepared = target.with_name(f"{target.name}.prepared")
    what = f"ONNX Runtime cannot quantise {source.name}"
    try:
        with failing_as(ExportFailed, what, USE_FLOAT32), _quiet_root_logger():
            package.quant_pre_process(source, prepared, skip_symbolic_shape=True)
            package.quantize_static(
                prepared,
                target,
                _Reader(_feeds(prepared, images)),
                quant_format=package.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=not are_products_exact(),
                activation_type=package.QuantType.QUInt8,
                weight_type=package.QuantType.QInt8,
                extra_options={"OpTypesToExcludeOutputQuantization": FLOAT_OUTPUTS},
            )
    finally:
        remove_file(prepared)
    return _require_quantized(target)


def _require_quantized(path: Path) -> int:
    """Return the number of layers with weights in int8; a file without one is rejected."""
    graph = require_package("onnx", INSTALL).load(str(path)).graph
    dequantized = {output for node in graph.node if node.op_type == "DequantizeLinear" for output in node.output}
    layers = [node for node in graph.node if node.op_type in LAYERS]
    found = sum(len(node.input) > 1 and node.input[1] in dequantized for node in layers)
    if not found:
        raise InvalidOption(
            f"The network has {len(layers)} convolutions and linear layers in ONNX, and ONNX Runtime quantises none of "
            "them. Use the precision float32."
        )
    return found


class _Reader:
    """Gives ONNX Runtime the inputs that the ranges are found on, one batch in each call, and None at the end."""

    def __init__(self, feeds: Iterable[dict[str, Any]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def _feeds(path: Path, images: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the inputs by the names of the file's inputs."""
    session = open_session(path)
    for inputs in images:
        for part in in_batches(inputs, fixed_batch(session)):
            yield session_inputs(session, part)


def fixed_batch(session: Any) -> int | None:
    """Return the only batch size that an open file accepts, or None if it accepts any."""
    size = session.get_inputs()[0].shape[0]
    return size if isinstance(size, int) else None


@cache
def are_products_exact() -> bool:
    """Whether this processor sums products of unsigned and signed bytes without overflow.

    x86 without VNNI adds two products in 16 bits, which saturates. Weights then get 7 bits (`reduce_range`), with
    which no sum overflows. The largest possible products are computed here in ONNX Runtime, instead of asking the
    processor for its name.
    """
    rows, columns = 16, 64
    runtime = require_package("onnxruntime", INSTALL)
    model = _product_with(np.full((columns, rows), 127, dtype=np.int8))
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"bytes": np.full((rows, columns), 255, dtype=np.uint8)})
    return bool((found == 255 * 127 * columns).all())


def _product_with(weights: NDArray[np.int8]) -> bytes:
    """Return an ONNX model that multiplies unsigned bytes by weights, as a constant that kernels may pack."""
    onnx = require_package("onnx", INSTALL)
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["bytes", "weights"], ["sums"])],
        "products",
        [helper.make_tensor_value_info("bytes", onnx.TensorProto.UINT8, ["rows", weights.shape[0]])],
        [helper.make_tensor_value_info("sums", onnx.TensorProto.INT32, ["rows", weights.shape[1]])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    serialised: bytes = model.SerializeToString()
    return serialised


@contextmanager
def _quiet_root_logger() -> Iterator[None]:
    """Silence what the quantiser writes to the root logger, which would also configure that logger."""
    root = logging.getLogger()
    level = root.level
    handler = logging.NullHandler()
    root.addHandler(handler)
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
