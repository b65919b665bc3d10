"""ONNX files in ONNX Runtime: to open one, and to give it its inputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from aacp.data.examples import tensors_in
from aacp.errors import ExportFailed, InvalidOption, failing_as
from aacp.user.values import counted
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[onnx]'"
REMEDY = (
    "If its numbers are of float64 or bfloat16, for which ONNX Runtime lacks operators, export network.float() and an "
    "example in float32; otherwise export it again, or with another opset."
)
LOG_ERRORS_ONLY = 3  # ONNX Runtime's numbers of severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal


def open_session(path: str | os.PathLike[str], threads: int = 1, profile: str | os.PathLike[str] | None = None) -> Any:
    """Open an ONNX file in ONNX Runtime on the CPU.

    Args:
        path: the file.
        threads: how many threads an operator may use; operators run one after the other.
        profile: path and beginning of the name of a profile to write; None writes none.
    """
    runtime = require_package("onnxruntime", INSTALL)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_ERRORS_ONLY
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = os.fspath(profile)
    # Threads that spin while they wait for the next call would slow down whatever is timed in between.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    what = f"ONNX Runtime cannot open {Path(path).name}"
    with failing_as(ExportFailed, what, REMEDY):
        return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


def session_inputs(session: Any, example: Any) -> dict[str, Any]:
    """Return the tensors of an example as numpy arrays, by the names of a session's inputs."""
    tensors = [tensor.detach().cpu().numpy() for tensor in tensors_in(example)]
    names = [entry.name for entry in session.get_inputs()]
    if len(names) != len(tensors):
        raise InvalidOption(
            f"The exported network takes {counted(len(names), 'input')} ({', '.join(names)}), but the example holds "
            f"{counted(len(tensors), 'tensor')}. Give an example like the one it was exported with."
        )
    return dict(zip(names, tensors, strict=True))
