"""Runtimes that translate a module without a file: what they prepare is compared with torch, as files are.

A translation of the tests stands for torch.compile and for CUDA graphs, so that these tests need neither a compiler nor
a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.latency.runtimes import cuda_graphs
from aacp.latency.runtimes.cuda_graphs import CudaGraphs
from aacp.latency.runtimes.torch import TranslatedTorch, tolerance_on
from aacp.latency.runtimes.torch_compile import TorchCompile

EXAMPLE = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
LAYERS = [aacp.TimedLayer("0", False, (), 2, 6)]


class Translating(TranslatedTorch):
    """A runtime whose translation multiplies the output by a factor, which a correct one would not do."""

    name = "translating"
    title = "Translating"

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def translate(self, module: nn.Module, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        return lambda: self.factor * module(example).detach()


class Heads(nn.Module):
    """A network with two outputs."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, 2 * inputs


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2).eval()


def test_a_translation_that_rounds_differently_is_accepted(model: nn.Module) -> None:
    expected = model(EXAMPLE)
    found = Translating(1 + 1e-5).prepare(model, EXAMPLE, device="cpu", threads=1)()
    torch.testing.assert_close(found, expected.detach(), rtol=2e-5, atol=0)


def test_a_translation_that_computes_something_else_is_rejected_before_it_is_timed(model: nn.Module) -> None:
    message = (
        r"^output of Linear is \S+ away from torch, more than the \S+ that rounding explains\. "
        r"Do not deploy this network in Translating; use another runtime\.$"
    )
    with pytest.raises(aacp.ExportFailed, match=message):
        aacp.time_networks({"a": model}, EXAMPLE, aacp.Deployment(Translating(1 + 1e-3), batch=2))


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(torch.bfloat16, 0.08), (torch.float16, 0.01), (torch.float32, 1e-4), (torch.float64, 1e-7)],
)
def test_the_tolerance_is_that_of_the_precision(model: nn.Module, dtype: torch.dtype, factor: float) -> None:
    model, example = model.to(dtype), EXAMPLE.to(dtype)
    Translating(1 + 0.5 * factor).prepare(model, example, device="cpu", threads=1)
    with pytest.raises(aacp.ExportFailed, match="away from torch"):
        Translating(1 + 2 * factor).prepare(model, example, device="cpu", threads=1)


def test_a_gpu_that_may_use_tf32_has_the_tolerance_of_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    single, half = [torch.zeros(2)], [torch.zeros(2, dtype=torch.bfloat16)]
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert tolerance_on("cuda", single) == 1e-2
    assert tolerance_on("cuda", half) is tolerance_on("cpu", single) is None
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert tolerance_on("cuda", single) is None


def test_each_of_several_outputs_is_compared() -> None:
    class SecondIsWrong(Translating):
        def translate(self, module: nn.Module, example: Any, *, device: str, threads: int) -> Callable[[], object]:
            return lambda: (example, 3 * example)

    with pytest.raises(aacp.ExportFailed, match=r"^output\.1 of Heads is"):
        SecondIsWrong(1.0).prepare(Heads(), EXAMPLE, device="cpu", threads=1)


def test_structures_of_a_table_are_not_compared(model: nn.Module) -> None:
    pieces = Translating(2.0).prepare_pieces(model, EXAMPLE, LAYERS, device="cpu", threads=1)
    pieces.run_timed()
    assert len(pieces.take_recorded()) == 1


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_captured_network_is_compared(model: nn.Module, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    class Captured:
        """Stands for a captured network, on the CPU."""

        def __init__(self, network: nn.Module, example: Any, device: str) -> None:
            self.run = Translating(factor).translate(network, example, device=device, threads=1)

    monkeypatch.setattr(cuda_graphs, "CapturedNetwork", Captured)
    assert_compared(CudaGraphs(), model, is_right=factor == 1)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_compiled_network_is_compared(model: nn.Module, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_wrongly(module: nn.Module, **_: Any) -> None:
        module.register_forward_hook(lambda _, __, outputs: tuple(factor * output for output in outputs))

    monkeypatch.setattr(nn.Module, "compile", compile_wrongly)
    assert_compared(TorchCompile(), model, is_right=factor == 1)


def assert_compared(runtime: TranslatedTorch, model: nn.Module, is_right: bool) -> None:
    if is_right:
        assert callable(runtime.prepare(model, EXAMPLE, device="cpu", threads=1))
        return
    with pytest.raises(aacp.ExportFailed, match=rf"Linear is .* away from torch.* in {runtime.title}; use another"):
        runtime.prepare(model, EXAMPLE, device="cpu", threads=1)
