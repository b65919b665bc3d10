"""A file of a runtime is called like the network that it was exported from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from aacp.latency.runtimes.file_network import FileNetwork

BATCH = 2  # the only batch size of the file


class Nested(nn.Module):
    """Two inputs, and outputs in a dictionary beside a plain value."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image: Tensor, shift: Tensor) -> dict[str, object]:
        found = self.conv(image)
        return {"maps": [found, found.mean((2, 3)) + shift], "name": "nested"}


class File:
    """Stands for a file in a runtime, which returns arrays and uses the same memory in every run."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.memory: list[Tensor] = []

    @torch.no_grad()
    def run(self, tensors: tuple[Tensor, ...]) -> Sequence[object]:
        assert {len(tensor) for tensor in tensors} == {BATCH}
        outputs = self.model(*tensors)["maps"]
        self.memory = self.memory or [torch.empty_like(output) for output in outputs]
        for place, output in zip(self.memory, outputs, strict=True):
            place.copy_(output)
        return [place.numpy() for place in self.memory]


@pytest.fixture
def pair() -> tuple[nn.Module, FileNetwork]:
    """The network, and its file for batches of two."""
    model = Nested().eval()
    example = (torch.randn(BATCH, 3, 8, 8), torch.randn(BATCH, 4))
    return model, FileNetwork(File(model).run, BATCH, model, example)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_outputs_are_nested_as_in_the_original_for_every_number_of_inputs(
    pair: tuple[nn.Module, FileNetwork], count: int
) -> None:
    model, file = pair
    image, shift = torch.randn(count, 3, 8, 8), torch.randn(count, 4)
    found = file(image, shift=shift)
    assert found["name"] == "nested"
    with torch.no_grad():
        expected = model(image, shift)
    for one, other in zip(found["maps"], expected["maps"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_it_has_nothing_to_train(pair: tuple[nn.Module, FileNetwork]) -> None:
    assert not list(pair[1].parameters())
