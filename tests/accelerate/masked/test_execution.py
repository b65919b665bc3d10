"""Sliced and masked execution agree with `shrink` and `recalibrate` on every construct of the micro networks."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

import aacp
from aacp.accelerate.masked.execution import Masked
from aacp.data.batches import Batches
from aacp.data.examples import call
from aacp.estimate.execution import Sliced
from aacp.graph.units import UnitProgram
from aacp.graph.unverified import trace_unverified
from aacp.pytorch.internals import pytree
from graph.micro_networks import MICRO, Block, Micro, _stir, conv, unit
from graph.oracles import tensors, traced
from sampling import sampled

BY_NAME = {micro.name: micro for micro in MICRO}
FLOAT, DOUBLE = {"rtol": 1e-4, "atol": 1e-4}, {"rtol": 1e-7, "atol": 1e-7}


def structures(graph: aacp.ChannelGraph, count: int) -> list[list[int]]:
    generator = np.random.default_rng(0)
    return [[int(generator.integers(1, group.width + 1)) for group in graph.free] for _ in range(count)]


def unverified(model: nn.Module, example: Any) -> aacp.ChannelGraph:
    """The graph of a network that tracing has no reason to doubt: what cannot be cut would not agree here either."""
    return trace_unverified(model, example)[1].graph


def agree(inheritance: aacp.Inheritance, inputs: Any, tried: Iterable[Any], tolerance: dict[str, float]) -> None:
    """Both executions compute what `shrink` and `recalibrate` make, one structure after another."""
    executions = [kind(inheritance) for kind in (Sliced, Masked)]
    before = copy.deepcopy(inputs)
    for structure in tried:
        expected = aacp.shrink(inheritance.model, inheritance.graph, inheritance.kept(structure)).eval()
        aacp.recalibrate(expected, inheritance.calibration)
        with torch.no_grad():
            wanted = tensors(call(expected, copy.deepcopy(inputs)))
            for execution in executions:
                found = tensors(call(execution.network(structure), inputs))
                for one, other in zip(wanted, found, strict=True):
                    torch.testing.assert_close(other, one, **tolerance)
    for one, other in zip(tensors(before), tensors(inputs), strict=True):
        assert torch.equal(one, other)


def rows(example: Any, count: int) -> Any:
    """As many different examples as these numbers say, made of those of a micro network."""

    def of_tensor(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.dim():
            return value
        repeated = torch.cat([value] * -(-count // len(value)))[:count]
        return repeated + 0.1 * torch.randn_like(repeated) if value.is_floating_point() else repeated

    return pytree.tree_map(of_tensor, example)


@pytest.mark.slow
@pytest.mark.parametrize("micro", sampled(MICRO, 16), ids=lambda micro: micro.name)
def test_micro_networks_run_sliced_and_masked_as_they_do_shrunk(micro: Micro) -> None:
    """Batches of another size than the calibration images run the same program, unless it depends on the size."""
    model, example, graph = micro.build().eval(), micro.example(), traced(micro)
    fixed = micro.name == "size_from_a_global"  # the size of its batches is a constant of its code
    images, others = (example, example) if fixed else (rows(example, 11), rows(example, 3))
    calibration = Batches.of([(images, torch.zeros(len(tensors(images)[0])))], batch_size=1024)
    agree(aacp.Inheritance(model, graph, calibration), others, structures(graph, 2), FLOAT)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("padded_shortcut", 1),
        ("flatten_by_batch_size", 1),
        ("padded_shortcut_by_zeros", 2),  # the zeros have the size of the batch
    ],
)
def test_batches_of_all_sizes_share_a_program_unless_its_numbers_depend_on_the_size(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    micro = BY_NAME[name]
    graph = traced(micro)
    exported = []
    original = UnitProgram.of

    def counted(model: nn.Module, graph: aacp.ChannelGraph, arguments: Sequence[Any]) -> UnitProgram:
        exported.append(arguments)
        return original(model, graph, arguments)

    monkeypatch.setattr(UnitProgram, "of", counted)
    masked = Masked(aacp.Inheritance(micro.build().eval(), graph, rows(micro.example(), 13)))
    network = masked.network(graph.full)
    for size in (13, 5):
        assert len(network(rows(micro.example(), size))) == size
    assert len(exported) == count


def test_inputs_of_another_resolution_get_a_program_of_their_own() -> None:
    micro = BY_NAME["padded_shortcut"]
    model, graph = micro.build().eval(), traced(micro)
    images = torch.randn(13, 3, 16, 16)
    masked = Masked(aacp.Inheritance(model, graph, images)).network(graph.full)
    expected = copy.deepcopy(model)
    aacp.recalibrate(expected, images)
    larger = torch.randn(5, 3, 24, 24)
    torch.testing.assert_close(masked(larger), expected(larger), **FLOAT)


def build(name: str, options: dict[str, Any]) -> nn.Module:
    source, _, network = name.rpartition(":")
    makers = {"timm": timm.create_model, "torchvision": torchvision.models.get_model}
    made: nn.Module = makers[source](network, **options) if source else aacp.build_model(name)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pixels", "options"),
    sampled(
        [
            ("resnet20", 16, {}),
            # Each kind of block that they are made of, but fewer of each.
            (
                "torchvision:mobilenet_v2",
                32,
                {"inverted_residual_setting": [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]},
            ),
            ("timm:convnext_atto", 32, {"depths": (1, 1, 2, 1)}),
            ("timm:resnext26ts", 32, {"features_only": True, "out_indices": (2,)}),
        ],
        2,
    ),
)
def test_networks_of_the_zoo_run_sliced_and_masked_as_they_do_shrunk(
    name: str, pixels: int, options: dict[str, Any]
) -> None:
    model = build(name, options).eval()
    _stir(model)
    model.double()  # deep networks amplify rounding, not mistakes
    images = torch.randn(18, 3, pixels, pixels, dtype=torch.float64) + 0.5
    graph = unverified(model, images[:2])
    share = np.random.default_rng(0).uniform(0.3, 0.9, len(graph.free))
    structure = [max(1, int(group.width * part)) for group, part in zip(graph.free, share, strict=True)]
    agree(aacp.Inheritance(model, graph, images[:9]), images[9:], [structure], DOUBLE)


# -- what masked execution does its own way ---------------------------------------------------------------------------


def sums(m: Any, x: Tensor) -> Tensor:
    x = m.stem(x)
    x = m.a(x) + x
    x = F.relu(F.relu6(x + m.b(x)))
    y = m.c(x)
    y += x
    x = F.hardtanh(F.relu(y, inplace=True) + m.d(x), -1.0, 2.0)
    x = torch.add(m.e(x), x, alpha=2)
    return x + x


def written_into(m: Any, x: Tensor) -> Tensor:
    x = F.relu(m.stem(x))
    first, second = x.chunk(2, 1)
    first += m.narrow(second)
    kept = x[:, :, :4]
    x += m.a(x)
    return x + F.pad(kept, (0, 0, 0, 4))


def written_into_while_others_wait(m: Any, x: Tensor) -> Tensor:
    x = F.relu(m.stem(x))
    convolved, added = m.a.conv(x), m.b(x) + x
    x.mul_(0.1)
    return m.a.norm(convolved) + added.relu() + x


def read_twice(m: Any, x: Tensor) -> Tensor:
    raw = m.stem.conv(x)
    x = m.stem.norm(raw)
    y = F.relu(x)
    return m.a(x) + y * raw.sigmoid() + m.c.norm(m.b.norm(y)) + x.relu_()


def own_inputs(m: Any, x: Tensor) -> Tensor:
    x.sub_(1.0).mul_(0.5)
    return F.dropout(m.stem(x), 0.5, m.training)


def shared_norm(m: Any, x: Tensor) -> Tensor:
    x = m.stem(x)
    return F.relu(m.a.norm(m.a.conv(x))) + F.relu6(m.a.norm(m.b.conv(x)))


def step(inputs: int, outputs: int, **options: Any) -> nn.Module:
    """Convolution with a bias, and batch norm."""
    made = Block(lambda m, x: m.norm(m.conv(x)), conv=conv(inputs, outputs), norm=nn.BatchNorm2d(outputs, **options))
    nn.init.normal_(made.conv.bias, std=3.0)
    if made.norm.affine:
        nn.init.constant_(made.norm.weight, 4.0)  # so that 6 is reached
    return made


WRITTEN = (written_into, written_into_while_others_wait)
PLAINLY: list[tuple[Any, Any]] = [(run, {}) for run in (sums, *WRITTEN, read_twice, own_inputs, shared_norm)]


@pytest.mark.slow
@pytest.mark.parametrize(("run", "options"), [*PLAINLY, *sampled([(sums, {"eps": 0.0}), (sums, {"affine": False})], 2)])
def test_sums_clips_and_writes_come_out_the_same_in_every_order(run: Any, options: dict[str, Any]) -> None:
    parts = {name: step(8, 8, **options) for name in "abcde"}
    body = Block(run, stem=step(3, 8, **options), narrow=step(4, 4, **options), **parts)
    model = nn.Sequential(body, conv(8, 5, 1)).eval()
    _stir(model)
    model.double()
    images = torch.randn(12, 3, 8, 8, dtype=torch.float64)
    graph = unverified(model, images[:2].clone())
    tried = [*structures(graph, 2), graph.full, structures(graph, 1)[0]]  # narrow, wide, and narrow again
    agree(aacp.Inheritance(model, graph, images[:6]), images[6:], tried, DOUBLE)


@pytest.mark.slow
@pytest.mark.parametrize("split", [[9], [1, 6, 2]], ids=str)
def test_the_batches_of_the_calibration_images_do_not_matter(split: list[int]) -> None:
    model = nn.Sequential(unit(3, 8), unit(8, 8), conv(8, 5, 1)).eval()
    _stir(model)
    model.double()
    images = torch.randn(9, 3, 8, 8, dtype=torch.float64)
    graph = aacp.trace(model, images[:2])
    inheritance = aacp.Inheritance(model, graph, Batches(list(images.split(split))))
    agree(inheritance, images[:4] * 2, structures(graph, 2), DOUBLE)


# -- the exported form ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet_basic", "inverted_residual", "squeeze_excite_conv"])
def test_the_exported_form_is_masked_as_the_module_is_shrunk(name: str) -> None:
    model, example = BY_NAME[name].build(), BY_NAME[name].example()
    exported, graph = aacp.trace(model, example, form="exported"), aacp.trace(model, example)
    assert [group.name for group in exported.free] == [group.name for group in graph.free]
    masked = Masked(aacp.Inheritance(model, exported, example[0]))
    inheritance = aacp.Inheritance(model, graph, example[0])
    for structure in structures(graph, 2):
        expected = inheritance.network(structure)
        with torch.no_grad():
            torch.testing.assert_close(masked.network(structure)(*example), expected(*example), **FLOAT)


class Literal(nn.Module):
    """Sizes written out in the code, which only the exported form can cut."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = conv(3, 12), nn.BatchNorm2d(12)
        self.a, self.b, self.head = conv(8, 6), conv(4, 6), conv(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.split(self.norm(self.conv(x)).relu(), [8, 4], dim=1)
        return self.head(self.a(first) + self.b(second))


def test_a_network_that_only_the_exported_form_can_cut_is_recalibrated_too() -> None:
    model, images = Literal().eval(), torch.randn(6, 3, 8, 8)
    graph = aacp.trace(model, images, form="exported")
    inheritance = aacp.Inheritance(model, graph, images)
    structure = [max(1, group.width // 2) for group in graph.free]
    kept = inheritance.kept(structure)
    first, second, inner = (torch.from_numpy(kept[group.name]) for group in graph.free)
    with torch.no_grad():
        x = F.batch_norm(model.conv(images), None, None, model.norm.weight, model.norm.bias, training=True).relu()
        one = F.conv2d(x[:, first], model.a.weight[inner][:, first], model.a.bias[inner], padding=1)
        two = F.conv2d(x[:, 8 + second], model.b.weight[inner][:, second], model.b.bias[inner], padding=1)
        expected = F.conv2d(one + two, model.head.weight[:, inner], model.head.bias, padding=1)
        found = Masked(inheritance).network(structure)(images)
    torch.testing.assert_close(found, expected, **FLOAT)


# -- what comes between two structures --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Sliced, Masked])
def test_what_a_score_does_to_the_network_does_not_reach_the_next_structure(kind: Any) -> None:
    model = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), conv(8, 5, 1)).eval()
    images = torch.randn(9, 3, 8, 8)
    graph = aacp.trace(model, images[:2])
    execution = kind(aacp.Inheritance(model, graph, images))
    with torch.no_grad():
        expected = execution.network([5])(images)
        statistics = [buffer.clone() for buffer in model.buffers()]
        execution.network([3]).train()  # and left so
        assert torch.equal(execution.network([5])(images), expected)
        torch.testing.assert_close(execution.network([5])(images[:4]), expected[:4])  # a shape it has not seen
    assert all(torch.equal(one, other) for one, other in zip(statistics, model.buffers(), strict=True))


@pytest.mark.parametrize("kind", [Sliced, Masked])
def test_hooks_of_the_users_do_not_hear_of_the_copies(kind: Any) -> None:
    model = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 5, 1)).eval()
    images, heard = torch.randn(4, 3, 8, 8), []
    model[0].register_forward_hook(lambda *_: heard.append(1))
    graph = aacp.trace(model, images)
    kind(aacp.Inheritance(model, graph, images)).network([5])(images)
    assert not heard
    model(images)
    assert heard == [1]
