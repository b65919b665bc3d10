"""Recalibration against one training-mode pass over all images at once, in double precision."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aacp
from aacp.data import batches
from aacp.estimate import recalibration
from graph.micro_networks import Block, conv

IMAGES = torch.randn(23, 3, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 + 0.5
Statistics = dict[str, tuple[Tensor, Tensor]]


def norms_of(model: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}


def exact(model: nn.Module, images: Tensor) -> Statistics:
    """Mean and population variance of what reaches each batch norm, from torch's own training mode."""
    twin = copy.deepcopy(model).double().eval()
    counts: dict[str, int] = {}
    for name, norm in norms_of(twin).items():
        norm.train()
        norm.momentum = 1.0  # the running statistics become those of the batch
        norm.register_forward_pre_hook(lambda _, args, name=name: counts.update({name: args[0][:, 0].numel()}))
    twin(images.double())
    tracked = {name: norm for name, norm in norms_of(twin).items() if norm.running_mean is not None}
    unbiased = {name: (counts[name] - 1) / counts[name] for name in tracked}
    return {name: (norm.running_mean, norm.running_var * unbiased[name]) for name, norm in tracked.items()}


def statistics(model: nn.Module) -> Statistics:
    tracked = {name: norm for name, norm in norms_of(model).items() if norm.running_mean is not None}
    return {name: (norm.running_mean.clone(), norm.running_var.clone()) for name, norm in tracked.items()}


def close(found: Statistics, expected: Statistics) -> None:
    assert found.keys() == expected.keys()
    for name, pair in expected.items():
        for one, other in zip(found[name], pair, strict=True):
            torch.testing.assert_close(
                one.double(), other.double(), rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


def deep() -> nn.Module:
    """ResNet20 with statistics and scales that fit nothing."""
    torch.manual_seed(0)
    model = aacp.build_model("resnet20")
    for norm in norms_of(model).values():
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.1, 3)
    return model.eval()


def chain(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*layers).eval()


def small() -> nn.Module:
    return chain(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5), conv(6, 4), nn.BatchNorm2d(4), conv(4, 2))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if images went in batches of 5."""
    split = aacp.Batches.of

    def of(source: Any, *, batch_size: int = 5, **options: Any) -> aacp.Batches:
        return split(source, batch_size=batch_size, **options)

    monkeypatch.setattr(recalibration.Batches, "of", of)
    monkeypatch.setattr(recalibration, "BATCH_SIZE", 5)


@pytest.fixture
def little_memory(small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the images did not fit at once: norm by norm, in batches of 5."""
    monkeypatch.setattr(recalibration, "free_memory", lambda: 0)


# -- exactness --------------------------------------------------------------------------------------------------------

SPLITS: dict[str, Any] = {
    "whole": lambda: IMAGES,
    "pairs": lambda: DataLoader(TensorDataset(IMAGES, torch.zeros(23)), batch_size=2),
    "one by one": lambda: [IMAGES[i : i + 1] for i in range(23)],
    "uneven": lambda: [IMAGES[:1], IMAGES[1:20], IMAGES[20:]],
    "shuffled": lambda: DataLoader(TensorDataset(IMAGES, torch.zeros(23)), batch_size=4, shuffle=True),
    "generator": lambda: (IMAGES[i::3] for i in range(3)),
}


@pytest.fixture(scope="module")
def expected() -> Statistics:
    """What ResNet20 should end with."""
    return exact(deep(), IMAGES)


@pytest.mark.parametrize("split", SPLITS)
def test_recalibrate_equals_the_statistics_of_the_concatenated_batches(split: str, expected: Statistics) -> None:
    model = deep()
    done = aacp.recalibrate(model, SPLITS[split]())
    close(statistics(model), expected)
    assert (done.norms, done.images) == (19, 23)
    assert str(done) == "19 batch norms recalibrated on 23 images."


@pytest.mark.usefixtures("small_batches")
def test_small_batches_in_step_equal_one_batch(expected: Statistics, monkeypatch: pytest.MonkeyPatch) -> None:
    model = deep()
    monkeypatch.setattr(recalibration, "_norm_by_norm", None)  # not to be called
    threads = threading.active_count()
    assert aacp.recalibrate(model, IMAGES).norms == 19
    close(statistics(model), expected)
    assert threading.active_count() == threads


@pytest.mark.slow
@pytest.mark.usefixtures("little_memory")
def test_norm_by_norm_in_small_batches_equals_one_batch(expected: Statistics, monkeypatch: pytest.MonkeyPatch) -> None:
    model = deep()
    monkeypatch.setattr(recalibration, "_in_one_pass", None)  # not to be called
    assert aacp.recalibrate(model, IMAGES).norms == 19
    close(statistics(model), expected)


@pytest.mark.usefixtures("little_memory")
def test_norms_behind_which_all_batches_fit_share_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [layer for _ in range(2) for layer in (conv(4, 4), nn.BatchNorm2d(4), nn.ReLU())]
    model = chain(conv(3, 4), nn.ReLU(), *stages, nn.AvgPool2d(4), *copy.deepcopy(stages))
    expected = exact(model, IMAGES)
    kept = 25 * 4 * (2 * 3 * 8 * 8 + 4 * 2 * 2)  # 25 images, their copies, and what is left of them behind the pooling
    monkeypatch.setattr(recalibration, "free_memory", lambda: int(kept / recalibration.MEMORY_SHARE))
    alone = []
    moments_at = recalibration._moments_at

    def noted(model: nn.Module, name: str, *others: Any) -> Any:
        alone.append(name)
        return moments_at(model, name, *others)

    monkeypatch.setattr(recalibration, "_moments_at", noted)
    assert aacp.recalibrate(model, IMAGES).norms == 4
    close(statistics(model), expected)
    assert alone == ["3", "6"]


def test_only_the_requested_number_of_images_counts() -> None:
    model = small()
    expected = exact(model, IMAGES[:7])
    assert aacp.recalibrate(model, IMAGES, images=7).images == 7
    close(statistics(model), expected)


@pytest.mark.parametrize(
    ("model", "images"),
    [
        (lambda: chain(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4), nn.BatchNorm1d(4)), (19, 3)),
        (
            lambda: chain(nn.Conv1d(3, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 4, 1), nn.BatchNorm1d(4)),
            (14, 3, 9),
        ),
        (
            lambda: chain(nn.Conv3d(3, 6, 2), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 4, 1), nn.BatchNorm3d(4)),
            (14, 3, 4, 4, 4),
        ),
        (
            lambda: chain(conv(3, 6), nn.BatchNorm2d(6, affine=False), nn.ReLU(), conv(6, 4), nn.BatchNorm2d(4)),
            (14, 3, 6, 6),
        ),
        (
            lambda: chain(conv(3, 6), nn.BatchNorm2d(6, track_running_stats=False), conv(6, 4), nn.BatchNorm2d(4)),
            (14, 3, 6, 6),
        ),
        (lambda: chain(nn.BatchNorm2d(3, momentum=None), conv(3, 6), nn.BatchNorm2d(6, momentum=0.0)), (14, 3, 6, 6)),
    ],
    ids=["vectors", "1d", "3d", "no affine", "one without statistics", "any momentum"],
)
@pytest.mark.usefixtures("small_batches")
def test_every_kind_of_batch_norm_is_recalibrated(model, images: tuple[int, ...]) -> None:
    network, x = model(), torch.randn(images) + 1
    expected = exact(network, x)
    assert aacp.recalibrate(network, x).norms == len(expected)
    close(statistics(network), expected)


def test_images_of_several_shapes_count_by_their_pixels() -> None:
    model = chain(nn.BatchNorm2d(3), conv(3, 2))
    large, little = torch.randn(2, 3, 8, 8) + 5, torch.randn(3, 3, 4, 4)
    aacp.recalibrate(model, [large, little])
    pixels = torch.cat([x.movedim(1, -1).reshape(-1, 3) for x in (large, little)])
    torch.testing.assert_close(model[0].running_mean, pixels.mean(0))
    torch.testing.assert_close(model[0].running_var, pixels.var(0, correction=0))


@pytest.mark.usefixtures("small_batches")
def test_a_batch_norm_used_twice_ends_with_the_statistics_of_both_uses() -> None:
    model = Block(
        lambda m, x: m.norm(m.b(m.norm(m.a(x)).relu())), a=conv(3, 4), b=conv(4, 4), norm=nn.BatchNorm2d(4)
    ).eval()
    nn.init.normal_(model.norm.weight)
    with torch.no_grad():
        first = model.a(IMAGES)
        normal = F.batch_norm(first, None, None, model.norm.weight, model.norm.bias, training=True)
        second = model.b(normal.relu())  # the first use normalises by what it saw itself
    both = torch.cat([first, second])
    assert aacp.recalibrate(model, IMAGES).norms == 1
    close(statistics(model), {"norm": (both.mean((0, 2, 3)), both.var((0, 2, 3), correction=0))})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_does_not_reach_the_sums(dtype: torch.dtype) -> None:
    images = (torch.randn(50, 3, 8, 8) * 300 + 1).to(dtype)  # a variance that half precision cannot hold
    model = chain(nn.BatchNorm2d(3))  # statistics in single precision, as mixed precision keeps them
    aacp.recalibrate(model, images)
    pixels = images.double().movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(model[0].running_mean.double(), pixels.mean(0), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(model[0].running_var.double(), pixels.var(0, correction=0), rtol=1e-4, atol=0)


def test_recalibrating_again_changes_nothing() -> None:
    model = deep()
    aacp.recalibrate(model, IMAGES)
    before = statistics(model)
    aacp.recalibrate(model, IMAGES)
    assert all(torch.equal(a, b) for name in before for a, b in zip(before[name], statistics(model)[name], strict=True))


# -- what stays as it is ----------------------------------------------------------------------------------------------


def test_nothing_but_running_statistics_changes() -> None:
    model = small()
    model.train()
    model[0].eval()
    model[1].eval()
    model[4].weight.requires_grad_(False)
    model[5].momentum = None
    model[5].num_batches_tracked.fill_(7)
    before = copy.deepcopy(model)
    aacp.recalibrate(model, IMAGES)
    for (name, value), (_, old) in zip(model.state_dict().items(), before.state_dict().items(), strict=True):
        assert torch.equal(value, old) != name.endswith(("running_mean", "running_var")), name
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in before.parameters()]
    assert (model[1].momentum, model[5].momentum) == (0.1, None)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dropout_stays_off_although_the_network_trains() -> None:
    model = small()
    expected = exact(model, IMAGES)
    aacp.recalibrate(model.train(), IMAGES)
    close(statistics(model), expected)


def test_a_network_that_writes_into_its_inputs_does_not_change_the_images() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        x -= 1.0
        return m.norm(m.conv(x))

    model, images = Block(run, conv=conv(3, 4), norm=nn.BatchNorm2d(4)), IMAGES.clone()
    expected = exact(model, IMAGES.double().clone())
    aacp.recalibrate(model, images)
    assert torch.equal(images, IMAGES)
    close(statistics(model), expected)


# -- failure ----------------------------------------------------------------------------------------------------------


def test_a_network_without_batch_norm_says_so() -> None:
    done = aacp.recalibrate(chain(conv(3, 4), nn.GroupNorm(2, 4)), IMAGES)
    assert done.norms == 0
    assert "no batch norm with running statistics" in str(done)


@pytest.mark.slow
def test_batch_norms_that_are_operators_are_reported_as_unchanged() -> None:
    model = chain(conv(3, 4), nn.BatchNorm2d(4), conv(4, 5), nn.BatchNorm2d(5)).eval()
    graph = aacp.trace(model, IMAGES[:2], form="exported")
    cut = aacp.shrink(model, graph, graph.full, example=IMAGES[:2])
    for network in (cut, torch.export.export(model, (IMAGES[:2],)).module()):
        before = {name: value.clone() for name, value in network.state_dict().items()}
        done = aacp.recalibrate(network, IMAGES)
        assert (done.norms, done.out_of_reach) == (0, 2)
        assert str(done).startswith("Nothing was recalibrated: 2 batch norms of an exported graph keep their")
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    both = aacp.recalibrate(nn.Sequential(nn.BatchNorm2d(3), cut), IMAGES[:2])
    assert str(both).startswith("1 batch norm recalibrated on 2 images. 2 batch norms of an exported graph keep")


class Unplugged(Exception):
    pass


def dies_half_way() -> Iterator[Tensor]:
    yield IMAGES[:8]
    raise Unplugged


def dies_in_the_network(model: nn.Module) -> Tensor:
    def fail(*_: Any) -> None:
        raise Unplugged

    model[6].register_forward_pre_hook(fail)  # behind both batch norms
    return IMAGES


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (lambda _: dies_half_way(), aacp.InvalidData),
        (dies_in_the_network, aacp.InvalidData),
        (lambda _: torch.full_like(IMAGES, float("nan")), aacp.InvalidData),
        (lambda _: torch.randn(4, 5, 8, 8), aacp.InvalidData),
    ],
    ids=["loader", "network", "nan", "shape"],
)
def test_whatever_fails_everything_is_as_it_was(data, error: type[Exception]) -> None:
    model = small().train()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error):
        aacp.recalibrate(model, data(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(norm._forward_pre_hooks for norm in norms_of(model).values())


@pytest.mark.parametrize("memory", ["small_batches", "little_memory"])
def test_a_failure_in_the_last_batch_leaves_everything_as_it_was(memory: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(memory)
    threads = threading.active_count()
    model, images = small(), IMAGES.clone()
    images[-1, 0, 0, 0] = float("nan")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(aacp.InvalidData, match="input of batch norm 1 is not finite"):
        aacp.recalibrate(model, images)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(norm._forward_pre_hooks for norm in norms_of(model).values())
    assert threading.active_count() == threads


@pytest.mark.usefixtures("small_batches")
def test_batches_that_take_different_ways_are_rejected_and_their_threads_ended() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.a(x) if len(x) == 5 else m.b(x)

    threads = threading.active_count()
    with pytest.raises(aacp.InvalidData, match=r"different ways through the network: they are at \['a', 'b'\]"):
        aacp.recalibrate(Block(run, a=nn.BatchNorm2d(3), b=nn.BatchNorm2d(3)), IMAGES)
    assert threading.active_count() == threads


@pytest.mark.usefixtures("little_memory")
def test_batches_that_take_different_ways_are_rejected_norm_by_norm_too() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.a(x) if len(x) == 5 else m.b(x)

    with pytest.raises(aacp.InvalidData, match="Only 4 of 5 batches reach batch norm a"):
        aacp.recalibrate(Block(run, a=nn.BatchNorm2d(3), b=nn.BatchNorm2d(3)), IMAGES)


def test_one_batch_runs_in_the_thread_of_the_caller() -> None:
    threads = []
    model = small()
    model[0].register_forward_pre_hook(lambda *_: threads.append(threading.current_thread()))
    aacp.recalibrate(model, IMAGES)
    assert set(threads) == {threading.current_thread()}


def test_a_batch_norm_called_by_keyword_is_recalibrated() -> None:
    model = Block(lambda m, x: m.norm(input=x), norm=nn.BatchNorm2d(3)).eval()
    expected = exact(chain(nn.BatchNorm2d(3)), IMAGES)["0"]
    aacp.recalibrate(model, IMAGES)
    close(statistics(model), {"norm": expected})


def test_an_error_of_the_network_is_let_go_of_once_it_is_handled() -> None:
    """It holds the activations of a whole pass: memory that smaller batches need."""
    held: list[weakref.ref[Tensor]] = []

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.norm(x)
        held.append(weakref.ref(x))
        raise torch.OutOfMemoryError

    gc.disable()
    try:
        with pytest.raises(torch.OutOfMemoryError):
            aacp.recalibrate(Block(run, norm=nn.BatchNorm2d(3)), IMAGES)
        assert len(held) > 1
        assert held[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("model", "images", "words"),
    [
        (lambda: chain(nn.Flatten(), nn.BatchNorm1d(3)), torch.randn(1, 3), "norm 1 saw 1 value per channel"),
        (lambda: chain(conv(3, 4), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4)), IMAGES[:1], "norm 2 saw 1 value"),
        (small, IMAGES.log(), "input of batch norm 1 is not finite"),
        (small, torch.randn(2, 5, 8, 8), "does not run on the calibration images: RuntimeError"),
        (small, [], "no examples"),
    ],
    ids=["vector", "pooled", "nan", "channels", "empty"],
)
def test_images_that_give_no_statistics_are_a_clear_error(model, images: Any, words: str) -> None:
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.recalibrate(model(), images)


def test_one_image_is_enough_where_it_has_several_pixels() -> None:
    model = small()
    expected = exact(model, IMAGES[:1])
    aacp.recalibrate(model, IMAGES[:1])
    close(statistics(model), expected)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: Block(lambda m, x: m.norm(m.norm(x)), norm=nn.BatchNorm2d(3)), "uses a batch norm several times"),
        (lambda: chain(nn.BatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3)), "without running statistics"),
    ],
)
def test_what_cannot_be_exact_in_small_batches_is_rejected(model, words: str) -> None:
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.recalibrate(model(), IMAGES)


# -- memory -----------------------------------------------------------------------------------------------------------


def small_memory(model: nn.Module, most: int) -> list[int]:
    """A network that runs out of memory on more than `most` images; returns the sizes it is tried with."""
    tried: list[int] = []

    def check(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        tried.append(len(arguments[0]))
        if tried[-1] > most:
            raise torch.OutOfMemoryError("out of memory")

    model[4].register_forward_pre_hook(check)  # between the two batch norms
    return tried


def test_out_of_memory_halves_the_batch_and_continues() -> None:
    model = small()
    expected = exact(model, IMAGES)
    tried = small_memory(model, most=6)
    aacp.recalibrate(model, IMAGES)
    close(statistics(model), expected)
    # One image to find the layout, all at once, again norm by norm, halves, the remainder.
    assert list(dict.fromkeys(tried)) == [1, 23, 11, 5, 3]


def test_out_of_memory_on_a_single_image_is_passed_on_and_everything_restored() -> None:
    model = small()
    before = copy.deepcopy(model.state_dict())
    tried = small_memory(model, most=0)
    with pytest.raises(torch.OutOfMemoryError):
        aacp.recalibrate(model, IMAGES)
    assert tried[-1] == 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_data_that_is_streamed_gives_the_same_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed, kept = deep(), deep()
    kept.load_state_dict(streamed.state_dict())
    monkeypatch.setattr(batches, "room_for_data", lambda device: 100)
    loader = DataLoader(TensorDataset(IMAGES, torch.zeros(23)), 5)
    assert aacp.Batches.of(loader).is_streamed
    assert aacp.recalibrate(streamed, loader) == recalibration.Recalibration(19, 23)
    monkeypatch.undo()
    aacp.recalibrate(kept, IMAGES)
    close(statistics(streamed), statistics(kept))
