"""A runtime with a converter: files are compared with torch before they appear, and every failure is explained.

A converter of the tests stands for that of a real runtime, so that these tests need no package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.converted import ConvertedRuntime, OpenedFile, RunFile

EXAMPLE = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


class Opened:
    """A file whose content is the weight of a linear layer, as text."""

    def __init__(self, weight: Tensor, batch: int) -> None:
        self.weight = weight
        self.batch = batch

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return [(self.batch, self.weight.shape[1])]

    def bound_to(self, tensors: tuple[Tensor, ...]) -> RunFile:
        return lambda: [(tensors[0] @ self.weight.T).numpy()]


class Converting(ConvertedRuntime):
    """A runtime for linear layers of three inputs and two outputs.

    Args:
        error: raised by the converter; None if it works.
        factor: what the converter multiplies all weights by, which a correct one would not do.
    """

    name = "converting"
    title = "Converting"
    version = "1.0"
    suffix = ".text"

    def __init__(self, error: Exception | None = None, factor: float = 1.0) -> None:
        self.error = error
        self.factor = factor

    def convert(self, network: FlatNetwork, tensors: tuple[Tensor, ...], path: Path) -> None:
        if self.error is not None:
            raise self.error
        weight = self.factor * network.network.get_parameter("weight")
        path.write_text(f"{len(tensors[0])}")
        path.with_suffix(".weights").write_text(" ".join(f"{float(value):.9g}" for value in weight.flatten()))

    def open_file(self, path: Path, threads: int) -> OpenedFile:
        words = path.with_suffix(".weights").read_text().split()
        return Opened(torch.tensor([float(word) for word in words]).reshape(2, 3), int(path.read_text()))


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2, bias=False).eval()


def test_a_file_is_delivered_with_the_second_one_and_its_difference_from_torch(
    model: nn.Module, tmp_path: Path
) -> None:
    file = Converting(factor=1 + 1e-5).export(model, tmp_path / "network.text", EXAMPLE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["network.text", "network.weights"]
    assert file.file_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert file.largest_difference is not None
    assert 0 < file.largest_difference < 1e-4
    with torch.no_grad():
        expected = model(EXAMPLE)
    (found,) = Converting().prepare(file.path, EXAMPLE, device="cpu", threads=1)()
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-4, atol=1e-5)


def test_a_file_that_computes_something_else_is_not_written(model: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(aacp.ExportFailed, match=r"output of network.text is .* away from torch, .* another runtime"):
        Converting(factor=1 + 1e-3).export(model, tmp_path / "network.text", EXAMPLE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("it is broken.\nmore lines"), "RuntimeError: it is broken. Replace that part"),
        (NotImplementedError("operator aten::warp is not supported"), "operator aten::warp is not supported. Replace"),
    ],
)
def test_what_a_converter_raises_is_quoted_with_what_to_do(
    model: nn.Module, tmp_path: Path, error: Exception, words: str
) -> None:
    expected = f"Linear cannot be converted for Converting: .*{words}.*or use another runtime"
    with pytest.raises(aacp.ExportFailed, match=expected):
        Converting(error).export(model, tmp_path / "network.text", EXAMPLE)
    with pytest.raises(aacp.ExportFailed, match=expected):
        Converting(error).prepare(model, EXAMPLE, device="cpu", threads=1)
    assert not list(tmp_path.iterdir())


def test_an_error_that_is_explained_already_is_not_explained_again(model: nn.Module) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"^Too large. Use less.$"):
        Converting(aacp.InvalidOption("Too large. Use less.")).prepare(model, EXAMPLE, device="cpu", threads=1)


def test_a_file_that_cannot_be_opened_is_named(model: nn.Module, tmp_path: Path) -> None:
    file = Converting().export(model, tmp_path / "network.text", EXAMPLE)
    file.path.write_text("nonsense")
    with pytest.raises(aacp.ExportFailed, match=r"Converting cannot open network.text: ValueError.* Export the"):
        Converting().prepare(file.path, EXAMPLE, device="cpu", threads=1)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_file_of_one_batch_size_is_scored_on_any_number_of_inputs(
    model: nn.Module, tmp_path: Path, count: int
) -> None:
    file = Converting().export(model, tmp_path / "network.text", EXAMPLE)
    scored = Converting().module_of(file.path, model, EXAMPLE)
    inputs: Any = torch.randn(count, 3)
    with torch.no_grad():
        torch.testing.assert_close(scored(inputs), model(inputs), rtol=1e-4, atol=1e-5)


def test_a_batch_that_is_too_large_for_the_runtime_is_rejected_at_once() -> None:
    class Single(Converting):
        largest_batch = 1

    assert aacp.Deployment(Single()).batch == 1
    with pytest.raises(aacp.InvalidOption, match=r"batches of at most 1, but the batch has 2 inputs. Use a batch of 1"):
        aacp.Deployment(Single(), batch=2)
