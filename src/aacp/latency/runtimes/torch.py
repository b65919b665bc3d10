"""The runtime torch: the module itself, run eagerly on the CPU or a GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from aacp.artefact.onnx_check import TOLERANCE
from aacp.data.examples import moved, tensors_in
from aacp.errors import InvalidOption
from aacp.graph.examples import tensor_names
from aacp.latency.layers import is_convolution, is_layer
from aacp.latency.runtimes.agreement import largest_difference
from aacp.latency.runtimes.runtime import PiecesByMacs, PieceTimer, RecordedPieces, Runtime, TimedLayer
from aacp.pytorch.gpus import current_gpu
from aacp.pytorch.modules import copy_module, positional
from aacp.user.values import counted


class TorchRuntime(Runtime):
    """torch without compilation, in inference mode."""

    name = "torch"
    devices: tuple[str, ...] = ("cpu", "cuda")

    @property
    def version(self) -> str:
        return torch.__version__

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        return TorchNetwork(required_module(network), example, device).run

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        return TorchPieces(network, example, beginning_test(layers), device, self.clock)

    def device_name(self, device: str) -> str:
        return torch.cuda.get_device_name(device) if device.startswith("cuda") else device

    def require_device(self, device: str) -> None:
        super().require_device(device)
        _, colon, index = device.partition(":")
        if colon and not (index.isascii() and index.isdigit()):
            raise InvalidOption(f"{device!r} is not a device. Use cpu, cuda, or cuda:1 for the second GPU.")
        count = torch.cuda.device_count()
        if device.startswith("cuda") and int(index or 0) >= count:
            raise InvalidOption(
                f"This machine has {counted(count, 'GPU')}, so there is no device {device!r}. Use cpu, or a machine "
                "with that GPU."
            )


class TranslatedTorch(TorchRuntime):
    """A runtime that translates modules.

    `prepare` compares the outputs of the translated module with those of the module on the same device.
    `prepare_pieces`, which times the structures of a latency table, does not.
    """

    @abstractmethod
    def translate(self, module: nn.Module, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        """Return a call that runs one batch, as `prepare` does; the module may be moved to the device."""

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        module = required_module(network)
        run = self.translate(module, example, device=device, threads=threads)
        expected = TorchNetwork(module, example, device).run()
        largest_difference(
            tensors_in(expected),
            tensors_in(run()),
            names=tensor_names("output", expected),
            network=type(module).__name__,
            title=self.title,
            tolerance=tolerance_on(device, tensors_in(expected)),
        )
        return run

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        return PiecesByMacs(self.translate(network, example, device=device, threads=threads), layers, self.clock)


def tolerance_on(device: str, outputs: Sequence[Tensor]) -> float | None:
    """Return the tolerance of a comparison with torch on a device; None is that of the precision of each output.

    A GPU may compute one of two convolutions in float32 in TF32, whose mantissa is that of float16.
    """
    may_use_tf32 = device != "cpu" and torch.backends.cudnn.allow_tf32
    is_single = all(output.dtype is torch.float32 for output in outputs)
    return TOLERANCE[torch.float16] if may_use_tf32 and is_single else None


def required_module(network: nn.Module | Path) -> nn.Module:
    """Return a module unchanged; reject a file, which torch cannot run."""
    if isinstance(network, nn.Module):
        return network
    raise InvalidOption(
        f"torch runs modules, but {network} is a file. Give the module (aacp.load reads a delivered "
        ".safetensors file), or use the runtime that the file was exported for."
    )


def beginning_test(layers: Sequence[TimedLayer]) -> Callable[[str], bool]:
    """Return the function that says whether a torch function, given by name, begins a piece."""
    return is_convolution if all(layer.is_convolution for layer in layers) else is_layer


class TorchNetwork:
    """A module on a device, with its inputs."""

    def __init__(self, network: nn.Module, example: Any, device: str) -> None:
        self.network = network.to(device)
        self.arguments = positional(network, moved(example, device))
        self._device = device

    def run(self) -> object:
        """Run one batch, and wait until a GPU has finished it."""
        with torch.inference_mode():
            result = self.network(*self.arguments)
        self.wait()
        return result

    def wait(self) -> None:
        if self._device != "cpu":
            torch.cuda.synchronize(self._device)


class LayerMarker(TorchFunctionMode):
    """A context in which `mark` is called before each torch function that begins a piece."""

    def __init__(self, begins_piece: Callable[[str], bool], mark: Callable[[], None]) -> None:
        super().__init__()
        self._begins_piece = begins_piece
        self._mark = mark

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._begins_piece(getattr(func, "__name__", "")):
            self._mark()
        return func(*args, **(kwargs or {}))


class TorchPieces(RecordedPieces):
    """Times the pieces of a module: a time stamp is taken whenever a layer begins.

    Everything that runs between the beginnings of two layers (norms, activations, sums, Python itself) counts as part
    of the first. The pieces of a run add up to the run.

    Args:
        network: a module in evaluation mode, which is moved to the device.
        example: one batch of inputs.
        begins_piece: whether a torch function, given by name, begins a piece.
        device: where to run.
        clock: the clock for the CPU; a GPU stamps its own events.
    """

    def __init__(
        self,
        network: nn.Module,
        example: Any,
        begins_piece: Callable[[str], bool],
        device: str,
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        self._prepared = TorchNetwork(network, example, device)
        self._begins_piece = begins_piece
        self._device = device
        self._clock = clock

    def run(self) -> object:
        """Run one batch as a user would, and wait for its end."""
        return self._prepared.run()

    def run_timed(self) -> None:
        """Run one batch and record the seconds of each piece."""
        stamps = self._stamps_on_cpu() if self._device == "cpu" else self._stamps_on_cuda()
        self._recorded.append(seconds_between(stamps))

    def _stamps_on_cpu(self) -> list[float]:
        stamps = [self._clock()]
        self._run_marked(lambda: stamps.append(self._clock()))
        return [*stamps, self._clock()]

    def _stamps_on_cuda(self) -> list[float]:
        """Return the times at which the GPU reaches each event, so the time in which it waits for a launch counts."""
        events: list[Any] = []

        def mark() -> None:
            events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
            events[-1].record()

        with current_gpu(self._device):
            mark()
            self._run_marked(mark)
            mark()
        self._prepared.wait()
        return [events[0].elapsed_time(event) / 1e3 for event in events]

    def _run_marked(self, mark: Callable[[], None]) -> None:
        with torch.inference_mode(), LayerMarker(self._begins_piece, mark):
            self._prepared.network(*self._prepared.arguments)


def seconds_between(stamps: Sequence[float]) -> list[float]:
    """Return the seconds of each piece from the stamps of start, layers and end.

    What runs before the first layer belongs to the first piece.
    """
    if len(stamps) < 3:
        return [stamps[-1] - stamps[0]]
    begins = [stamps[0], *stamps[2:-1]]
    ends = [*begins[1:], stamps[-1]]
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


def timed_copy(network: nn.Module) -> nn.Module:
    """Return a copy of a module as runtimes expect it: in evaluation mode on the CPU."""
    return copy_module(network).eval().cpu()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Limit torch to a number of CPU threads, and restore the former number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
