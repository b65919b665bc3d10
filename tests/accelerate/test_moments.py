"""Sums that convolutions compute for batch norms: that norms use them, and never those of other values."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from aacp.accelerate import convolutions, layers, moments, norms, widening
from aacp.accelerate.convolutions import FastConv2d
from aacp.accelerate.half_weights import HalfWeights
from aacp.accelerate.norms import FastBatchNorm2d
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from train.small_data import same, small_images, weights
from written_kernels import WrittenConvolutions, WrittenNorms, convolution, in_order, wide_network

RECIPE = Recipe(epochs=2, batch_size=16, lr=0.1, precision="bf16-mixed", distillation=0.5)


def sums_of(x: Tensor, shift: Tensor) -> Tensor:
    """The sums of one program, exact for what follows: [1, 2, 1, channels]."""
    difference = x.detach().double() - shift.double()[:, None, None]
    return torch.stack([difference.sum((0, 2, 3)), difference.square().sum((0, 2, 3))])[None, :, None]


class Written(WrittenConvolutions):
    """Both kinds of kernels in torch. A norm compares sums that it is given with those of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.summed, self.used = 0, 0
        self.norms = WrittenNorms()

    def convolve_with_moments(self, x: Tensor, weight: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        self.summed += 1
        y = self.convolve(x, weight)
        return y, sums_of(y, shift)

    def normalise(self, x, weight, bias, mean, var, batches, momentum, eps, partial=None):  # type: ignore[no-untyped-def]
        if partial is not None:
            self.used += 1
            assert torch.equal(partial, sums_of(x, mean))
        return self.norms.normalise(x, weight, bias, mean, var, batches, momentum, eps)

    def normalise_by(self, *given):  # type: ignore[no-untyped-def]
        return self.norms.normalise_by(*given)

    def differentiate(self, *given):  # type: ignore[no-untyped-def]
        return self.norms.differentiate(*given)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Kernels that run anywhere, and a machine that has a GPU as far as both layers are concerned."""
    kernels = Written()
    monkeypatch.setattr(convolutions, "convolution_kernels", lambda: kernels)
    monkeypatch.setattr(norms, "norm_kernels", lambda: kernels)
    monkeypatch.setattr(layers, "_is_on_current_gpu", lambda x: True)
    for module in (convolutions, norms):
        monkeypatch.setattr(module, "is_supported_run", lambda model, fabric: True)
    monkeypatch.setattr(convolutions, "is_measured", lambda device: True)
    monkeypatch.setattr(widening, "is_worthwhile", lambda steps, fabric: True)
    return kernels


def layer_and_norm(channels: int = 16) -> tuple[FastConv2d, FastBatchNorm2d]:
    layer = convolution(8, channels).bfloat16()
    layer.__class__ = FastConv2d
    assert isinstance(layer, FastConv2d)
    return layer, FastBatchNorm2d(channels)


def paired() -> tuple[FastConv2d, FastBatchNorm2d]:
    """A convolution that knows its norm."""
    layer, norm = layer_and_norm()
    norm(layer(in_order(2, 8, 4, 4)))
    return layer, norm


def test_from_the_second_pass_on_a_norm_uses_the_sums_of_the_convolution_before_it(written: Written) -> None:
    layer, norm = layer_and_norm()
    for step in range(3):
        norm(layer(in_order(2, 8, 4, 4)))
        assert (written.summed, written.used, written.forward) == (step, step, step + 1)


def test_a_network_learns_the_same_to_the_last_bit(written: Written) -> None:
    model, plain, teacher = wide_network(), wide_network(), wide_network(1)
    steps = len(small_images()) // RECIPE.batch_size * RECIPE.epochs
    fit(model, small_images(), RECIPE, device="cpu", teacher=teacher)
    assert written.summed == written.used >= steps - 1
    assert written.norms.backward
    fit(plain, small_images(), RECIPE, device="cpu", teacher=teacher, accelerate=False)
    assert same(weights(model), weights(plain))


def test_half_precision_copies_of_the_weights_change_nothing_about_it(written: Written) -> None:
    layer, norm = layer_and_norm()
    model = nn.Sequential(layer.float(), norm)
    half_weights = HalfWeights(model, torch.bfloat16)
    for _ in range(3):
        half_weights(in_order(2, 8, 4, 4)).float().sum().backward()
    assert (written.summed, written.used) == (2, 2)


def test_outputs_that_were_changed_are_summed_again_and_their_sums_are_not_computed_any_more(written: Written) -> None:
    layer, norm = paired()
    norm(layer(in_order(2, 8, 4, 4)).relu_())
    assert (written.summed, written.used) == (1, 0)
    other, after = layer_and_norm()
    for _ in range(3):
        after(other(in_order(2, 8, 4, 4)).relu_())
        after(other(in_order(2, 8, 4, 4)).relu())
    assert (written.summed, written.used) == (1, 0)


def test_a_norm_does_not_use_the_sums_for_another_norm(written: Written) -> None:
    layer, norm = paired()
    other = FastBatchNorm2d(16)
    assert other.running_mean is not None
    other.running_mean.fill_(1)
    other(layer(in_order(2, 8, 4, 4)))
    assert (written.summed, written.used) == (1, 0)
    other(layer(in_order(2, 8, 4, 4)))
    assert (written.summed, written.used) == (2, 1)
    norm(layer(in_order(2, 8, 4, 4)))
    assert (written.summed, written.used) == (3, 1)


def test_sums_are_not_used_after_the_running_mean_has_changed(written: Written) -> None:
    layer, norm = paired()
    one, other = layer(in_order(2, 8, 4, 4)), layer(in_order(2, 8, 4, 4) + 1)
    norm(one)
    norm(other)
    assert (written.summed, written.used) == (2, 1)
    y = layer(in_order(2, 8, 4, 4))
    norm.load_state_dict(FastBatchNorm2d(16).state_dict())
    norm(y)
    assert (written.summed, written.used) == (3, 1)


def test_a_layer_and_its_norm_may_be_used_twice(written: Written) -> None:
    layer, norm = paired()
    for _ in range(2):
        norm(layer(in_order(2, 8, 4, 4)))
        norm(layer(in_order(2, 8, 6, 6)))
    assert (written.summed, written.used) == (4, 4)


def test_nothing_is_summed_where_no_batch_statistics_are_needed(written: Written) -> None:
    layer, norm = layer_and_norm()
    norm.eval()
    for _ in range(2):
        norm(layer(in_order(2, 8, 4, 4)))
    norm.train()(layer(in_order(2, 8, 4, 4)))
    with torch.no_grad():
        norm(layer(in_order(2, 8, 4, 4)))
    norm.eval()(layer(in_order(2, 8, 4, 4)))
    assert written.summed == 0
    norm.train()(layer(in_order(2, 8, 4, 4)))
    assert (written.summed, written.used) == (1, 1)
    with torch.inference_mode():
        norm(layer(in_order(2, 8, 4, 4)))
    assert written.summed == 1


def test_a_running_mean_that_the_kernel_cannot_read_is_not_given_to_it(written: Written) -> None:
    for changed in (
        torch.zeros(8),
        torch.zeros(16).double(),
        torch.zeros(16, device="meta"),
        torch.zeros(32)[::2],
        None,
    ):
        layer, norm = paired()
        norm.running_mean = changed
        layer(in_order(2, 8, 4, 4))
    assert written.summed == 0


def test_another_running_mean_for_one_call_is_the_one_that_counts(written: Written) -> None:
    model = nn.Sequential(*paired())
    own = {"1.running_mean": torch.ones(16)}
    functional_call(model, own, (in_order(2, 8, 4, 4),))
    assert (written.summed, written.used) == (1, 1)


def test_modules_and_outputs_hold_nothing_about_it_and_are_freed(written: Written) -> None:
    layer, norm = layer_and_norm()
    before = [set(vars(module)) for module in (layer, norm)]
    norm(layer(in_order(2, 8, 4, 4)))
    y = layer(in_order(2, 8, 4, 4))
    assert [set(vars(module)) for module in (layer, norm)] == before
    assert not vars(y)
    twin = copy.deepcopy(layer)
    twin.__class__ = FastConv2d
    assert moments.sums_for(twin, y) is None
    assert moments.sums_for(layer, y) is not None
    living = [weakref.ref(thing) for thing in (layer, norm, y)]
    del norm
    gc.collect()
    assert moments.sums_for(layer, y) is None
    del layer, y
    gc.collect()
    assert [reference() for reference in living] == [None] * 3
