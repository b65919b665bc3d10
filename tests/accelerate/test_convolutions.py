"""Fast convolutions: which layers are replaced, when the kernels are used, and that all are restored afterwards."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.data import TensorDataset

from aacp.accelerate import convolutions, layers, widening
from aacp.accelerate.capture import WARM_UP_STEPS, CapturedUpdate
from aacp.accelerate.convolutions import (
    FastConv2d,
    convolution_kernels,
    fast_convolutions,
    is_supported_convolution,
    is_supported_input,
    supported_convolutions,
)
from aacp.accelerate.half_weights import HalfWeights
from aacp.accelerate.layers import share_with_teachers
from aacp.train.fabric import make_fabric
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.session import Session
from aacp.train.sources import batches_of
from evidence import of_training_speed
from train.small_data import same, small_images, weights
from written_kernels import WrittenConvolutions as Written
from written_kernels import convolution, in_order, wide_network

RECIPE = Recipe(epochs=2, batch_size=16, lr=0.1, precision="bf16-mixed")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Kernels that run anywhere, and a machine that has a GPU as far as convolutions are concerned."""
    kernels = Written()
    monkeypatch.setattr(convolutions, "convolution_kernels", lambda: kernels)
    monkeypatch.setattr(layers, "_is_on_current_gpu", lambda x: True)
    monkeypatch.setattr(convolutions, "is_supported_run", lambda model, fabric: True)
    monkeypatch.setattr(convolutions, "is_measured", lambda device: True)
    return kernels


def pair() -> tuple[nn.Conv2d, nn.Conv2d]:
    """Our layer and torch's, with the same weights in bf16."""
    ours = convolution().bfloat16()
    torchs = copy.deepcopy(ours)
    ours.__class__ = FastConv2d
    return ours, torchs


def zoo() -> nn.Module:
    class Own(nn.Conv2d):
        pass

    twice = convolution()
    parametrised = parametrizations.weight_norm(convolution())
    inner = nn.Sequential(twice, convolution(16, 16))
    return nn.Sequential(twice, inner, Own(8, 8, 3, padding=1, bias=False), parametrised, nn.Conv2d(8, 8, 1))


def fast_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if type(module) is FastConv2d]


def test_torchs_own_convolutions_are_quick_for_a_while_and_only_they(written: Written) -> None:
    model, fabric = zoo(), make_fabric(device="cpu")
    kinds, state = [type(module) for module in model.modules()], list(model.state_dict())
    with fast_convolutions(model, fabric):
        assert fast_names(model) == ["0", "1.1"]
        assert list(model.state_dict()) == state
    assert [type(module) for module in model.modules()] == kinds
    with pytest.raises(KeyError), fast_convolutions(model, fabric):
        raise KeyError
    assert [type(module) for module in model.modules()] == kinds


@pytest.mark.parametrize("name", ["convolution_kernels", "is_supported_run", "is_measured"])
def test_nothing_is_replaced_where_the_kernels_do_not_apply(
    name: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolutions, name, lambda *given: None)
    model = wide_network()
    with fast_convolutions(model, make_fabric(device="cpu")):
        assert type(model[3]) is nn.Conv2d  # type: ignore[index]


def test_only_gpus_of_the_measured_generation_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    for generation in (8, 9, 10, 12):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=generation: (found, 0))
        assert convolutions.is_measured(torch.device("cuda")) is (generation == 9)


def test_teachers_get_what_the_student_has(written: Written) -> None:
    student, teachers = wide_network(), [wide_network(1), zoo()]
    share_with_teachers(student, teachers, FastConv2d, supported_convolutions)
    assert [fast_names(teacher) for teacher in teachers] == [[], []]
    with fast_convolutions(student, make_fabric(device="cpu")):
        share_with_teachers(student, teachers, FastConv2d, supported_convolutions)
    assert [fast_names(teacher) for teacher in teachers] == [["3"], ["0", "1.1"]]


def test_copies_and_pickles_are_torchs_own_and_draw_no_random_numbers() -> None:
    model = nn.Sequential(convolution())
    model[0].__class__ = FastConv2d
    before = torch.get_rng_state()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model[0])):
        layer = twin[0] if isinstance(twin, nn.Sequential) else twin
        assert type(layer) is nn.Conv2d
        assert (layer.padding, layer.bias) == ((1, 1), None)
        assert same(layer.state_dict(), model[0].state_dict())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_convolution_must_be_3x3_of_the_same_size_and_of_few_channels() -> None:
    assert is_supported_convolution(convolution())
    assert is_supported_convolution(convolution(64, 64))
    for changed in (
        {"stride": 2}, {"padding": 0}, {"padding": "same"}, {"dilation": 2, "padding": 2}, {"groups": 8},
        {"bias": True}, {"padding_mode": "reflect"}, {"inputs": 12}, {"outputs": 12}, {"inputs": 72}, {"outputs": 72},
    ):  # fmt: skip
        assert not is_supported_convolution(convolution(**changed))  # type: ignore[arg-type]
    assert not is_supported_convolution(nn.Conv2d(8, 8, 1, padding=1, bias=False))


def test_tensors_must_be_bf16_with_channels_last(written: Written) -> None:
    x, weight = in_order(2, 8, 4, 4), in_order(16, 8, 3, 3)
    assert is_supported_input(x, weight)
    assert not is_supported_input(x.float(), weight)
    assert not is_supported_input(x.contiguous(), weight)
    assert not is_supported_input(x[:0], weight)
    assert not is_supported_input(in_order(2, 16, 4, 4), weight)
    assert not is_supported_input(x, weight.contiguous())
    assert not is_supported_input(x, weight.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert is_supported_input(x, weight.float())
        assert not is_supported_input(x, weight.double())
    with torch.autocast("cpu", torch.float16):
        assert not is_supported_input(x, weight.float())


def test_large_inputs_are_left_to_torch_unless_they_have_few_channels(written: Written) -> None:
    def is_taken(batch: int, inputs: int, outputs: int, size: int) -> bool:
        options: Any = {"device": "meta", "dtype": torch.bfloat16, "memory_format": torch.channels_last}
        x, weight = torch.empty(batch, inputs, size, size, **options), torch.empty(outputs, inputs, 3, 3, **options)
        return is_supported_input(x, weight)

    assert is_taken(128, 32, 32, 16)
    assert is_taken(128, 64, 64, 8)
    assert not is_taken(4096, 32, 32, 16)
    assert not is_taken(4096, 64, 64, 8)
    assert not is_taken(4096, 16, 32, 16)
    assert is_taken(4096, 16, 16, 32)
    assert not is_taken(2**17, 16, 16, 32)
    assert not is_taken(2**17, 8, 16, 32)


def test_what_the_kernels_do_not_take_is_torchs_to_the_message(written: Written) -> None:
    ours, torchs = pair()
    x = in_order(2, 8, 4, 4)
    for given in (x.contiguous(), x[0]):
        assert torch.equal(ours(given), torchs(given))
    with pytest.raises(RuntimeError, match="to have 8 channels, but got 16"):
        ours(in_order(2, 16, 4, 4))
    with pytest.raises(RuntimeError, match="should be the same"):
        ours(x.float())
    assert not written.forward
    assert torch.equal(ours(x), torchs(x))
    assert written.forward == 1


@pytest.mark.parametrize(("is_trained", "reaches_x"), [(True, True), (True, False), (False, True)])
def test_gradients_go_where_they_are_wanted(written: Written, is_trained: bool, reaches_x: bool) -> None:
    found = []
    for layer in pair():
        layer.requires_grad_(is_trained)
        x = in_order(4, 8, 5, 5).requires_grad_(reaches_x)
        layer(x).float().pow(3).sum().backward()
        found.append([x.grad, layer.weight.grad])
    assert (written.forward, written.inputs, written.weights) == (1, reaches_x, is_trained)
    for ours, torchs in zip(*found, strict=True):
        assert (ours is None) == (torchs is None)
        assert ours is None or torch.equal(ours, torchs)


def test_a_gradient_may_be_differentiated(written: Written) -> None:
    found = []
    for layer in pair():
        x = in_order(4, 8, 5, 5).requires_grad_()
        (slope,) = torch.autograd.grad(layer(x).float().pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.float().square().sum(), [x, layer.weight]))
    assert written.forward == 1
    assert all(torch.equal(ours, torchs) for ours, torchs in zip(*found, strict=True))


def test_half_weights_copy_the_weights_of_fast_convolutions_too(written: Written) -> None:
    model = wide_network()
    with fast_convolutions(model, make_fabric(device="cpu")):
        half_weights = HalfWeights(model, torch.bfloat16)
        assert half_weights.names == ["0.weight", "3.weight", "7.weight", "7.bias"]
        assert all(c.is_contiguous(memory_format=torch.channels_last) for c in half_weights.copies if c.dim() == 4)
        with torch.autocast("cpu", torch.bfloat16):
            half_weights(in_order(2, 2, 6, 6)).sum().backward()
    assert (written.forward, written.weights) == (1, 1)


def test_gradients_that_autograd_does_not_see_are_those_that_it_finds(written: Written) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = convolution(8, 8)
            self.frozen = convolution(8, 8).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.frozen(self.layer(x)))  # type: ignore[no-any-return]

    found = []
    for is_fast in (False, True):
        model = Twice()
        with (
            fast_convolutions(model, make_fabric(device="cpu")) if is_fast else nullcontext(),
            torch.autocast("cpu", torch.bfloat16),
        ):
            half_weights = HalfWeights(model, torch.bfloat16)
            for _ in range(2):
                half_weights(in_order(2, 8, 6, 6)).float().pow(2).sum().backward()
                assert (half_weights.copies[0].grad is None) is is_fast
                half_weights.pass_on_gradients()
        assert model.frozen.weight.grad is None
        found.append(model.layer.weight.grad)
    assert written.weights == 4
    assert torch.equal(*found)


def test_what_an_interrupted_step_left_is_forgotten(written: Written) -> None:
    model = nn.Sequential(convolution())
    with fast_convolutions(model, make_fabric(device="cpu")), torch.autocast("cpu", torch.bfloat16):
        half_weights = HalfWeights(model, torch.bfloat16)
        for _ in range(2):
            half_weights(in_order(2, 8, 6, 6)).float().sum().backward()
        half_weights.pass_on_gradients()
    assert written.weights == 2
    once = convolution()
    with torch.autocast("cpu", torch.bfloat16):
        once(in_order(2, 8, 6, 6)).float().sum().backward()
    assert torch.equal(model[0].weight.grad, once.weight.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_long", [False, True])
def test_a_long_run_trains_fast_convolutions_and_gives_the_network_back_as_it_was(
    is_long: bool, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widening, "is_worthwhile", lambda steps, fabric: is_long)
    model, plain = wide_network(), wide_network()
    fit(model, small_images(), RECIPE, device="cpu")
    assert type(model[3]) is nn.Conv2d  # type: ignore[index]
    assert bool(written.weights) is is_long
    fit(plain, small_images(), RECIPE, device="cpu", accelerate=False)
    assert same(weights(model), weights(plain))


def test_batches_that_may_have_several_shapes_are_left_to_torch(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widening, "is_worthwhile", lambda steps, fabric: True)
    images = small_images()
    fit(wide_network(), TensorDataset(images.normalised(images.pixels), images.labels), RECIPE, device="cpu")
    assert not written.forward


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("has_half_weights", [True, False])
def test_captured_steps_with_fast_convolutions_learn_what_they_learn_without(
    has_half_weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, calls, found = convolution_kernels(), SimpleNamespace(forward=0, weights=0), []
    assert kernels is not None
    convolve, weight_gradient = kernels.convolve, kernels.weight_gradient

    def counted_convolve(*given: Any) -> Tensor:
        calls.forward += 1
        result: Tensor = convolve(*given)
        return result

    def counted_gradient(*given: Any) -> Tensor:
        calls.weights += 1
        result: Tensor = weight_gradient(*given)
        return result

    monkeypatch.setattr(kernels, "convolve", counted_convolve)
    monkeypatch.setattr(kernels, "weight_gradient", counted_gradient)
    recipe = Recipe(epochs=3, batch_size=16, lr=0.1, precision="bf16-mixed", distillation=0.5)
    for is_fast in (False, True):
        fabric, model = make_fabric("bf16-mixed", "cuda"), wide_network()
        with fast_convolutions(model, fabric) if is_fast else nullcontext():
            session = Session(model, batches_of(small_images(), recipe, fabric), recipe, fabric, wide_network(5))
            assert isinstance(session.update, CapturedUpdate)
            if not has_half_weights:
                session.update.update.half_weights = None  # type: ignore[attr-defined]
            epochs = [session.run_epoch(number) for number in range(3)]
            assert session.update.graph is not None
        assert calls.weights == is_fast * (WARM_UP_STEPS + 1)
        # Student and teacher in each step and in the capture, and the teacher once more: the first batch is checked in
        # evaluation mode, by a copy of the student, whose layers are torch's.
        assert calls.forward == is_fast * (2 * (WARM_UP_STEPS + 1) + 1)
        found.append([epoch.loss for epoch in epochs])
    assert found[0] == pytest.approx(found[1], rel=0.05)


def test_the_page_of_results_states_the_bounds_of_the_kernels() -> None:
    assert (of_training_speed.NARROW, of_training_speed.LARGEST) == (convolutions.NARROW, convolutions.LARGEST)
