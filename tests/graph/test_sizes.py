"""Hard-coded sizes: which number depends on which width."""

from __future__ import annotations

import dataclasses
import functools
import types

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.tracked import SHAPE, Source, Tracked, run_tracked


def test_a_tracked_number_counts_like_any_other_and_knows_how_to_be_computed_anew() -> None:
    a, b = Tracked.at(12, Source("m", ("a",))), Tracked.at(4, Source("m", ("b",)))
    for value, expected in [(a // b, 3), (a * 2 + 1, 25), (30 - a, 18), (-a, -12), (a % 5, 2), (7 * b, 28)]:
        assert value == expected
        assert isinstance(value, Tracked)
    assert (a // b).compute({Source("m", ("a",)): 20}) == 5
    assert (30 - a).compute({Source("m", ("a",)): 20}) == 10
    assert set((a // b).sources) == {Source("m", ("a",)), Source("m", ("b",))}
    assert type(a * 0.5) is float
    assert [0, 1, 2][b - 2] == 2
    assert list(range(b)) == [0, 1, 2, 3]


def test_sizes_read_off_tensors_differ_from_numbers_in_modules_and_literals() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.width = 6

        def forward(self, x: Tensor) -> Tensor:
            return x.view(x.shape[0], self.width, 4)

    model = Mixed()
    run = run_tracked(model, (torch.randn(2, 24),))
    (record,) = [r for r in run.calls if [int(n) for n in r.numbers] == [2, 6, 4]]
    kinds = [set(number.sources) if isinstance(number, Tracked) else None for number in record.numbers]
    assert kinds == [{SHAPE}, {Source("", ("width",))}, None]
    assert type(model.width) is int


def test_a_size_that_code_casts_by_int_is_still_known_to_be_read_off_a_tensor() -> None:
    class Cast(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(int(x.shape[0]), 6, int(x.shape[1]) // 6)

    run = run_tracked(Cast(), (torch.randn(2, 24),))
    (record,) = [r for r in run.calls if [int(n) for n in r.numbers] == [2, 6, 4]]
    assert [isinstance(number, Tracked) for number in record.numbers] == [True, False, False]
    assert type(int(Tracked.at(3, SHAPE))) is int


class Base(nn.Module):
    """Twelve channels cut in two parts that are worked on apart."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3)
        self.head = nn.Conv2d(12, 4, 1)


class ByAttribute(Base):
    def __init__(self) -> None:
        super().__init__()
        self.first = 5

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.head(torch.cat([y[:, : self.first].relu(), y[:, self.first :].sigmoid()], 1))


class ByList(Base):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = [5, 7]

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.conv(x).split(self.sizes, 1)
        return self.head(torch.cat([a.relu(), b.sigmoid()], 1))


class ByClosure(Base):
    def __init__(self) -> None:
        super().__init__()
        width = 12
        self.part = lambda y: (y[:, : width // 2], y[:, width // 2 :])

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.part(self.conv(x))
        return self.head(torch.cat([a.relu(), b.sigmoid()], 1))


class ByShape(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        third = y.shape[1] // 3
        return self.head(torch.cat([y[:, :third].relu(), y[:, third:].sigmoid()], 1))


class ByLiteral(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.head(torch.cat([y[:, :5].relu(), y[:, 5:].sigmoid()], 1))


class ByPartial(Base):
    def __init__(self) -> None:
        super().__init__()
        self.part = functools.partial(torch.split, split_size_or_sections=[5, 7], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.part(self.conv(x))
        return self.head(torch.cat([a.relu(), b.sigmoid()], 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "free"),
    [
        (ByAttribute, {"conv[0:5]": 5, "conv[5:12]": 7}),
        (ByList, {"conv[0:5]": 5, "conv[5:12]": 7}),
        (ByClosure, {"conv[0:6]": 6, "conv[6:12]": 6}),
        (ByShape, {"conv": 4}),  # a third of the channels must stay a third
        (ByLiteral, {"conv[5:12]": 7}),  # the first five are written out
    ],
)
def test_parts_are_free_as_far_as_the_code_lets_them(model: type[nn.Module], free: dict[str, int]) -> None:
    graph = aacp.trace(model(), torch.randn(1, 3, 6, 6))
    assert {group.name: group.width for group in graph.free} == free


def test_an_attribute_follows_its_width() -> None:
    model = ByAttribute()
    graph = aacp.trace(model, torch.randn(1, 3, 6, 6))
    assert aacp.shrink(model, graph, {"conv[0:5]": 2}).first == 2
    assert model.first == 5


@pytest.mark.slow
def test_a_closure_is_rewritten_in_the_copy_alone() -> None:
    model = ByClosure()
    graph = aacp.trace(model, torch.randn(1, 3, 6, 6))
    smaller = aacp.shrink(model, graph, {"conv[0:6]": 2, "conv[6:12]": 3})
    assert [part.shape[1] for part in smaller.part(torch.randn(1, 5, 2, 2))] == [2, 3]
    assert [part.shape[1] for part in model.part(torch.randn(1, 12, 2, 2))] == [6, 6]


def test_sizes_that_cannot_be_reached_freeze_and_say_where() -> None:
    with pytest.raises(aacp.NothingToPrune, match="the size 5 is written out in the code of the network"):
        aacp.trace(ByPartial(), torch.randn(1, 3, 6, 6))


class LeNet(nn.Module):
    """Flattens its features as the reader of the reason is told to, or by a number."""

    def __init__(self, flat: int) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 12, 3), nn.Linear(12 * 16, 5)
        self.flatten = (lambda x: x.view(len(x), -1)) if flat == -1 else (lambda x: x.view(-1, 12 * 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.flatten(self.conv(x)))


def test_the_reason_says_what_to_write_in_place_of_a_size() -> None:
    x = torch.randn(1, 3, 6, 6)
    with pytest.raises(aacp.NothingToPrune, match=r"the size 192 is written out .*: write -1, or take it from a shape"):
        aacp.trace(LeNet(192), x)
    assert [group.name for group in aacp.trace(LeNet(-1), x).free] == ["conv"]


class DepthwiseByFunction(nn.Module):
    """A depthwise convolution without a module; None takes its number of groups from a shape."""

    def __init__(self, groups: int | None) -> None:
        super().__init__()
        self.literal = groups is not None
        self.first, self.last = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 4, 1)
        self.kernel = nn.Parameter(torch.randn(16, 1, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        groups = 16 if self.literal else self.kernel.shape[0]
        return self.last(nn.functional.conv2d(self.first(x), self.kernel, groups=groups))


def test_the_reason_advises_minus_one_only_where_it_stands_for_a_size() -> None:
    x = torch.randn(1, 3, 6, 6)
    with pytest.raises(
        aacp.NothingToPrune, match=r"the size 16 is written out in the code of [^:]*: take it from a sh"
    ):
        aacp.trace(DepthwiseByFunction(16), x)
    assert [group.name for group in aacp.trace(DepthwiseByFunction(None), x).free] == ["first"]


def test_torchs_own_layers_show_their_new_sizes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.Conv2d(12, 12, 3, groups=12), nn.PReLU(12))
    model.extend([nn.GroupNorm(3, 12), nn.ConvTranspose2d(12, 8, 2), nn.Flatten(), nn.Linear(8 * 25, 5)])
    graph = aacp.trace(model, torch.randn(1, 3, 8, 8))
    smaller = aacp.shrink(model, graph, {"0": 2, "5": 3})
    assert (smaller[0].out_channels, smaller[1].num_features, smaller[2].groups) == (6, 6, 6)
    assert (smaller[2].in_channels, smaller[2].out_channels, smaller[3].num_parameters) == (6, 6, 6)
    assert (smaller[4].num_channels, smaller[4].num_groups) == (6, 3)
    assert (smaller[5].in_channels, smaller[5].out_channels, smaller[7].in_features) == (6, 3, 75)


@dataclasses.dataclass(frozen=True)
class Settings:
    width: int = 16


class BySettings(nn.Module):
    def __init__(self, settings: object) -> None:
        super().__init__()
        self.settings = settings
        self.conv, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16 * 4, 4)

    def width(self) -> int:
        return self.settings["width"] if isinstance(self.settings, dict) else self.settings.width  # type: ignore

    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.adaptive_avg_pool2d(self.conv(x), 2).view(x.size(0), self.width() * 4))


@pytest.mark.parametrize("settings", [Settings(), {"width": 16}, types.SimpleNamespace(width=16)])
def test_widths_in_a_settings_object_are_followed(settings: object) -> None:
    model, x = BySettings(settings), torch.randn(2, 3, 8, 8)
    graph = aacp.trace(model, x)
    smaller = aacp.shrink(model, graph, {"conv": 5})
    assert smaller(x).shape == (2, 4)
    assert (smaller.width(), model.width()) == (5, 16)


class Generator(nn.Module):
    """A width of which the tensors are multiples."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.linear, self.conv = nn.Linear(16, width * 64), nn.ConvTranspose2d(4 * width, 8, 4, 2, 1)

    def forward(self, z: Tensor) -> Tensor:
        return self.conv(self.linear(z).view(-1, self.width * 4, 4, 4))


@pytest.mark.parametrize("width", [10, 16])
def test_channels_go_in_blocks_where_the_code_multiplies_a_width(width: int) -> None:
    model, z = Generator(width), torch.randn(2, 16)
    graph = aacp.trace(model, z)
    assert [(group.name, group.width, group.unit_channels) for group in graph.free] == [("linear", width, 64)]
    for count in range(1, width + 1):
        assert aacp.shrink(model, graph, {"linear": count})(z).shape == (2, 8, 8, 8)


def test_one_number_that_serves_two_widths_ties_them() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.width = 12
            self.linear, self.conv = nn.Linear(8, 12 * 16), nn.Conv2d(12, 12, 3, padding=1)
            self.head = nn.Linear(12 * 16, 4)

        def forward(self, z: Tensor) -> Tensor:
            return self.head(self.conv(self.linear(z).view(-1, self.width, 4, 4)).view(-1, self.width * 16))

    graph = aacp.trace(Twice(), torch.randn(2, 8))
    assert [(group.name, group.width) for group in graph.free] == [("linear", 12)]
