"""Memory layouts: which one a network can run in, and that its weights keep their values."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aacp.pytorch.layout import CHANNELS_LAST, PLAIN, contiguous, guarded, laid_out, lay_out, usable_layout


class Joining(nn.Module):
    """A convolution whose outputs are joined with `view`, as in many networks of users, or with `flatten`."""

    def __init__(self, is_view: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 25, 2)
        self.is_view = is_view

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).relu()
        return self.fc(x.view(x.size(0), -1) if self.is_view else x.flatten(1))  # type: ignore[no-any-return]


IMAGES = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))


def test_channels_last_is_usable_unless_the_code_of_the_network_fails_with_it() -> None:
    assert usable_layout(Joining(is_view=False), lambda network: network(IMAGES)) is CHANNELS_LAST
    assert usable_layout(Joining(is_view=True), lambda network: network(IMAGES)) is PLAIN


def test_a_network_that_cannot_be_copied_keeps_its_layout() -> None:
    class Unique:
        def __deepcopy__(self, _: object) -> Unique:
            raise RuntimeError("there is only one")

    model = Joining(is_view=False)
    model.unique = Unique()
    assert usable_layout(model, lambda network: network(IMAGES)) is PLAIN


def test_a_network_is_tried_in_evaluation_mode_and_is_not_changed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    usable_layout(model, lambda network: network(IMAGES))
    assert model.training
    assert model[0].weight.is_contiguous()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_outputs_of_a_convolution_follow_the_layout_of_its_weights() -> None:
    model = lay_out(nn.Conv2d(3, 4, 3), CHANNELS_LAST)
    assert not model(IMAGES).is_contiguous()
    assert lay_out(model, PLAIN)(IMAGES).is_contiguous()


def test_weights_are_the_same_tensors_after_a_context() -> None:
    model = nn.Conv2d(3, 4, 3)
    address, values = model.weight.data_ptr(), model.weight.detach().clone()
    with laid_out(model, CHANNELS_LAST):
        assert not model.weight.is_contiguous()
        assert torch.equal(model.weight, values)
    assert model.weight.data_ptr() == address
    assert torch.equal(model.weight, values)


def test_outputs_are_contiguous_within_the_context_alone() -> None:
    model = lay_out(nn.Conv2d(3, 4, 3), CHANNELS_LAST)
    with guarded(model):
        assert model(IMAGES).is_contiguous()
    assert not model(IMAGES).is_contiguous()


def test_inputs_are_not_written_to_within_the_context() -> None:
    class Writing(nn.Module):
        def forward(self, x: Tensor, *, more: dict[str, Tensor]) -> Tensor:
            return x.mul_(2) + more["y"].mul_(3)

    model, x, more = Writing(), torch.ones(2), {"y": torch.ones(2)}
    with guarded(model):
        assert model(x, more=more).tolist() == [5, 5]
    assert (x.tolist(), more["y"].tolist()) == ([1, 1], [1, 1])
    model(x, more=more)
    assert x.tolist() == [2, 2]


def test_nested_values_become_contiguous() -> None:
    x = IMAGES.contiguous(memory_format=CHANNELS_LAST)
    found = contiguous({"a": [x, 3], "b": (x,)})
    assert found["a"][0].is_contiguous()
    assert found["b"][0].is_contiguous()
    assert torch.equal(found["a"][0], x)
    assert found["a"][1] == 3
