"""The runtime ncnn: the network as pnnx converts it, on the CPU, one input at a time.

A file is a pair: the operators as text (.param), and the weights (.bin) beside it. The shapes of the inputs are written
into the .param file, where ncnn takes them as hints, so that an example of another shape is rejected.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aacp.disk.reading import MAX_BYTES, read_bytes, read_text
from aacp.disk.writing import replace_file
from aacp.errors import ExportFailed
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.converted import ConvertedRuntime, OpenedFile, RunFile
from aacp.pytorch.modules import copy_module
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[ncnn]'"
NAME = "network"  # pnnx names its files after its input, which has this name
INSIDE = "network."  # the names of modules inside a FlatNetwork begin with this
MAX_SECONDS = 600  # a conversion that takes longer is stopped
# The names of the sizes of an input in a .param file, from the last dimension to the first.
SIZES = {1: ("0",), 2: ("0", "1"), 3: ("0", "1", "2"), 4: ("0", "1", "11", "2")}
# Options of ncnn for numbers of 16 bits. All are turned off: some are on by default.
HALF_PRECISION = (
    "use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_packed", "use_bf16_storage",
)  # fmt: skip


class Ncnn(ConvertedRuntime):
    """ncnn on the CPU in float32, without numbers of 16 bits in memory or arithmetic."""

    name = "ncnn"
    title = "ncnn"
    packages = ("ncnn", "pnnx")
    install = INSTALL
    suffix = ".param"
    file_format = "ncnn, weights in the .bin file beside it"
    largest_batch = 1

    @property
    def version(self) -> str:
        return str(require_package("ncnn", INSTALL).__version__)

    def precision(self, network: nn.Module) -> str:
        return "float32"  # pnnx writes it and ncnn is set to compute in it, whatever the types of the weights

    def convert(self, network: FlatNetwork, tensors: tuple[Tensor, ...], path: Path) -> None:
        self.require_batch(len(tensors[0]))
        singles = tuple(tensor.float() if tensor.is_floating_point() else tensor for tensor in tensors)
        with tempfile.TemporaryDirectory(prefix="aacp-ncnn-") as name:
            folder = Path(name)
            _run_pnnx(copy_module(network).float(), singles, folder)
            text = read_text(folder / f"{NAME}.ncnn.param", limit=MAX_BYTES)
            _require_operators(text)
            replace_file(path.with_suffix(".bin"), read_bytes(folder / f"{NAME}.ncnn.bin", limit=MAX_BYTES))
            replace_file(path, with_shapes(text, [tuple(tensor.shape[1:]) for tensor in tensors]).encode())

    def open_file(self, path: Path, threads: int) -> OpenedFile:
        return NcnnFile(path, threads)


def _run_pnnx(network: nn.Module, tensors: tuple[Tensor, ...], folder: Path) -> None:
    """Write a network as files of ncnn in a folder; pnnx reads the network as torch.jit traces it."""
    source = folder / f"{NAME}.pt"
    trace: Any = torch.jit.trace  # without types in torch
    trace(network, tensors, check_trace=False).save(str(source))
    command = [require_package("pnnx", INSTALL).EXEC_PATH, source.name, "fp16=0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=MAX_SECONDS)
    if done.returncode or not (folder / f"{NAME}.ncnn.param").is_file():
        lines = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise ExportFailed(
            f"pnnx ends with code {done.returncode} and the line {lines[-1]!r}. Replace the part of the network that "
            "it names, or use another runtime."
        )


def operators_in(text: str) -> list[list[str]]:
    """Return the lines of a .param file that describe operators, as lists of words: the kind, the name and so on."""
    return [line.split() for line in text.splitlines()[2:] if line.strip()]


def _require_operators(text: str) -> None:
    """Reject operators that pnnx writes and ncnn does not have; the error names the first layer of each kind.

    pnnx names an operator after its module. An operator that comes from a function of torch has no module.
    """
    index = require_package("ncnn", INSTALL).layer_to_index
    missing: dict[str, str] = {}
    for kind, name, *_ in operators_in(text):
        if index(kind) < 0:
            layer = f" (layer {name.removeprefix(INSIDE)})" if name.startswith(INSIDE) else ""
            missing.setdefault(kind, f"{kind}{layer}")
    if missing:
        listed = " or ".join(missing[kind] for kind in sorted(missing))
        raise ExportFailed(f"ncnn has no operator {listed}. Replace that part of the network, or use another runtime.")


def with_shapes(text: str, shapes: Sequence[Sequence[int]]) -> str:
    """Return the text of a .param file with the shapes of its inputs.

    Args:
        text: the text as pnnx writes it.
        shapes: the shapes of the inputs in0, in1 and so on, without the batch.
    """
    lines = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "Input":
            shape = shapes[int(words[1].removeprefix("in"))]
            line += "".join(f" {key}={size}" for key, size in zip(SIZES[len(shape)], reversed(shape), strict=True))
        lines.append(line)
    return "\n".join(lines) + "\n"


def shapes_in(text: str) -> list[tuple[int, ...]]:
    """Return the shapes of the inputs that `with_shapes` wrote, with a batch of one."""
    found = {}
    for kind, name, *words in operators_in(text):
        if kind == "Input":
            sizes = [int(word.partition("=")[2]) for word in words if "=" in word]
            found[int(name.removeprefix("in"))] = (1, *reversed(sizes))
    return [found[place] for place in sorted(found)]


class NcnnFile:
    """A pair of files that ncnn has read."""

    def __init__(self, path: Path, threads: int) -> None:
        ncnn = require_package("ncnn", INSTALL)
        self._net = ncnn.Net()
        self._net.opt.num_threads = threads
        self._net.opt.use_vulkan_compute = False
        for option in HALF_PRECISION:
            setattr(self._net.opt, option, False)
        weights = path.with_suffix(".bin")
        if self._net.load_param(str(path)):
            raise ValueError(f"{path.name} is damaged")
        if self._net.load_model(str(weights)):
            raise ValueError(f"{weights.name} is damaged")
        self.shapes = shapes_in(read_text(path, limit=MAX_BYTES))
        self._outputs = [f"out{place}" for place in range(len(self._net.output_names()))]

    def bound_to(self, tensors: tuple[Tensor, ...]) -> RunFile:
        """Return a call that runs the network, on copies of the inputs."""
        mat = require_package("ncnn", INSTALL).Mat
        # A Mat does not keep the array alive that it is made from, so the list holds the arrays until they are copied.
        arrays = [tensor[0].detach().float().contiguous().numpy() for tensor in tensors]
        inputs = [mat(array).clone() for array in arrays]
        return lambda: self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        extractor = self._net.create_extractor()
        for place, given in enumerate(inputs):
            extractor.input(f"in{place}", given)
        outputs = []
        for name in self._outputs:
            failed, found = extractor.extract(name)
            if failed:
                raise ExportFailed(
                    f"ncnn cannot compute {name} of the network: it returns the code {failed}. Use another runtime, "
                    "and report this network to us."
                )
            outputs.append(np.array(found)[None])
        return outputs
