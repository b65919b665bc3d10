"""An ONNX file is called like the network that it was exported from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aacp.artefact.onnx_network import OnnxNetwork
from aacp.latency.runtimes.onnxruntime import export_quickly

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


class Nested(nn.Module):
    """Two inputs, and outputs in a dictionary beside a plain value."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image: Tensor, shift: Tensor) -> dict[str, object]:
        found = self.conv(image)
        return {"maps": [found, found.mean((2, 3)) + shift], "name": "nested"}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[nn.Module, OnnxNetwork]:
    """The network, and its file for batches of two."""
    model = Nested().eval()
    example = (torch.randn(2, 3, 8, 8), torch.randn(2, 4))
    export_quickly(model, tmp_path / "nested.onnx", example)
    return model, OnnxNetwork(tmp_path / "nested.onnx", model, example)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_outputs_are_nested_as_in_the_original_for_every_number_of_inputs(
    pair: tuple[nn.Module, OnnxNetwork], count: int
) -> None:
    model, file = pair
    image, shift = torch.randn(count, 3, 8, 8), torch.randn(count, 4)
    found = file(image, shift=shift)
    assert found["name"] == "nested"
    with torch.no_grad():
        expected = model(image, shift)
    for one, other in zip(found["maps"], expected["maps"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_it_has_nothing_to_train(pair: tuple[nn.Module, OnnxNetwork]) -> None:
    assert not list(pair[1].parameters())
