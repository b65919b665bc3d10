"""Networks that torch.export cannot follow as a whole are traced part by part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph import verification
from aacp.graph.parts import record_calls
from aacp.graph.slicing import cut
from aacp.graph.tracing import difference_when_cut
from graph.oracles import counted_macs


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class Head(nn.Module):
    """One convolution tower for all levels, as dense detectors have it."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = block(8, 8)
        self.scores = nn.Conv2d(8, 3, 1)

    def forward(self, levels: list[Tensor]) -> Tensor:
        return torch.cat([self.scores(self.tower(level)).flatten(2) for level in levels], 2)


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 12)
        self.body = block(12, 16)
        self.out = nn.Conv2d(16, 8, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        found = self.out(self.body(self.stem(images)))
        return {"fine": found, "coarse": nn.functional.max_pool2d(found, 2)}


class Detector(nn.Module):
    """Takes a list of images and returns the scores above a threshold: how many depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.head = Head()
        self.refine = nn.Linear(3, 3)

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        scores = self.head(list(self.backbone(torch.stack(list(images))).values()))
        found = []
        for image in scores:
            columns = image.T
            if float(columns.detach().max()) > 1e9:  # data-dependent control flow, which torch.export rejects
                columns = columns[:1]
            found.append({"scores": self.refine(columns[columns.max(1).values > 0])})
        return found


IMAGES = [torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))]


@pytest.fixture
def detector() -> Detector:
    torch.manual_seed(0)
    return Detector().eval()


@pytest.mark.slow
def test_the_largest_traceable_parts_are_found(detector: Detector) -> None:
    graph = aacp.trace(detector, IMAGES)
    assert graph.parts == ("backbone", "head")
    assert [group.name for group in graph.free] == ["backbone.stem.0", "backbone.body.0", "head.tower.0"]
    assert "only these parts of Detector are pruned" in graph.notes[0]


@pytest.mark.slow
def test_what_enters_and_leaves_a_part_is_frozen(detector: Detector) -> None:
    graph = aacp.trace(detector, IMAGES)
    frozen = {group.name for group in graph.groups if group.frozen}
    assert frozen == {"backbone.out", "head.scores"}


@pytest.mark.slow
def test_a_cut_detector_computes_what_the_masked_one_computes(detector: Detector) -> None:
    """Independent of tracing: channels are removed by setting the weights that read them to zero."""
    graph = aacp.trace(detector, IMAGES)
    smaller = aacp.shrink(detector, graph, [5, 7, 3])
    with torch.no_grad():
        detector.backbone.body[0].weight[:, 5:] = 0
        detector.backbone.out.weight[:, 7:] = 0
        detector.head.scores.weight[:, 3:] = 0
    assert smaller.backbone.stem[0].out_channels == 5
    assert smaller.head.tower[0].out_channels == 3
    (expected,) = detector(IMAGES)
    (found,) = smaller(IMAGES)
    torch.testing.assert_close(found["scores"], expected["scores"])


@pytest.mark.slow
def test_parameters_of_the_whole_are_counted_and_macs_of_the_parts(detector: Detector) -> None:
    graph = aacp.trace(detector, IMAGES)
    assert aacp.params(graph)(graph.full) == sum(value.numel() for value in detector.parameters())
    pixels = 16 * 16
    backbone = pixels * (3 * 12 * 9 + 12 * 16 * 9 + 16 * 8)
    head = (pixels + pixels // 4) * (8 * 8 * 9 + 8 * 3)
    assert aacp.macs(graph)(graph.full) == backbone + head


class Tower(nn.Module):
    """Uses one of its layers twice, at two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.twice(self.twice(self.first(x))[..., ::2]))


class Pyramid(nn.Module):
    """Calls its tower three times, for pictures of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = Tower()

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.tower(x), self.tower(x[..., ::2, :]), self.tower(-x)]


def test_all_calls_of_a_part_are_counted() -> None:
    model, x = Pyramid().eval(), torch.randn(1, 3, 16, 16)
    graph = aacp.trace(model, x, parts=["tower"])
    (name,) = [group.name for group in graph.free]
    smaller = aacp.shrink(model, graph, {name: [0, 1, 4]})
    assert aacp.macs(graph)(graph.full) == counted_macs(model, (x,))
    assert aacp.macs(graph)([3]) == counted_macs(smaller, (x,))
    assert len(graph.notes) == 1


class Flagged(Tower):
    """Has control flow that torch.export rejects in its second form."""

    def forward(self, x: Tensor, decides: bool = False) -> Tensor:
        return super().forward(-x if decides and float(x.mean()) > 0 else x)


def test_calls_of_a_part_that_cannot_be_traced_are_named() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = Flagged()

        def forward(self, x: Tensor) -> Tensor:
            return self.tower(x) + self.tower(x, True)

    graph = aacp.trace(Network().eval(), torch.randn(1, 3, 8, 8), parts=["tower"])
    assert "tower: 1 of its 2 calls cannot be traced, and their MACs are not counted" in graph.notes


@pytest.mark.slow
def test_inputs_are_moved_to_the_network() -> None:
    network = block(3, 4).to("meta")  # another device than that of the input, on every machine
    (given,) = record_calls(network, torch.rand(1, 3, 8, 8))["0"].arguments
    assert given.is_meta


def test_named_parts_alone_are_traced(detector: Detector) -> None:
    graph = aacp.trace(detector, IMAGES, parts="head")
    assert [group.name for group in graph.free] == ["head.tower.0"]
    assert aacp.trace(detector, IMAGES, parts=["head"], frozen=()) == graph


@pytest.mark.slow
def test_names_and_ties_are_those_of_the_whole(detector: Detector) -> None:
    pair = ("backbone.stem.0", "backbone.body.0")
    graph = aacp.trace(detector, IMAGES, frozen=["head.*"], tie=[pair])
    assert [group.name for group in graph.free] == list(pair)
    assert graph.ties == (pair,)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["neck"], "has no part 'neck'. Its parts are backbone, head, refine"),
        ([""], "has no part ''"),
        (["backbone", "backbone.body"], "'backbone.body' is given twice, or lies in another part"),
        (["head", "head"], "'head' is given twice"),
        (5, "parts"),
    ],
)
def test_wrong_parts_are_rejected(detector: Detector, parts: object, words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        aacp.trace(detector, IMAGES, parts=parts)


def test_parts_are_not_traced_in_the_exported_form(detector: Detector) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"'exported' is not available for parts.* Leave out form or parts"):
        aacp.trace(detector, IMAGES, parts=["head"], form="exported")


def test_a_part_that_is_not_called_is_rejected(detector: Detector) -> None:
    detector.unused = block(3, 4)
    with pytest.raises(aacp.InvalidOption, match="does not call its part 'unused'"):
        aacp.trace(detector, IMAGES, parts=["unused"])


@pytest.mark.slow
def test_a_weight_that_is_used_outside_of_its_part_is_frozen(detector: Detector) -> None:
    detector.extra = nn.Conv2d(3, 12, 3)
    detector.extra.weight = detector.backbone.stem[0].weight
    graph = aacp.trace(detector, IMAGES, parts=["backbone"])
    reasons = {group.name: group.frozen for group in graph.groups}
    assert reasons["backbone.stem.0"] == "backbone.stem.0.weight is also extra.weight, outside of the part backbone"
    assert reasons["backbone.body.0"] is None


class Twins(nn.Module):
    """Two towers, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(block(3, 3), block(3, 12), nn.Conv2d(12, 3, 1))
        self.second = nn.Sequential(block(3, 3), block(3, 12), nn.Conv2d(12, 3, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("parts", [["second"], ["first", "second"]])
def test_weights_of_several_names_are_cut_and_counted_once(parts: list[str]) -> None:
    model = Twins().eval()
    model.second[0][0].weight = model.first[0][0].weight
    model.second[0][1] = model.first[0][1]
    graph = aacp.trace(model, torch.stack(IMAGES), parts=parts)
    assert [group.name for group in graph.free] == [f"{part}.1.0" for part in parts]
    assert aacp.params(graph)(graph.full) == sum(parameter.numel() for parameter in model.parameters())
    smaller = aacp.shrink(model, graph, [5] * len(parts))
    assert smaller.second[0][0].weight is smaller.first[0][0].weight
    assert smaller.second[1][0].out_channels == 5


def test_a_part_of_several_names_is_cut_by_the_first_of_them() -> None:
    model = Twins().eval()
    model.second = model.first
    graph = aacp.trace(model, torch.stack(IMAGES), parts=["first"])
    assert [group.name for group in graph.free] == ["first.0.0", "first.1.0"]
    assert aacp.shrink(model, graph, [2, 5])(torch.stack(IMAGES)).shape == (1, 3, 16, 16)
    with pytest.raises(aacp.InvalidOption, match=r"'second' of Twins is the same module as 'first'"):
        aacp.trace(model, torch.stack(IMAGES), parts=["second"])


class Reaching(Detector):
    """Code outside of the backbone calls a layer inside it."""

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        self.backbone.stem(torch.stack(images))
        return super().forward(images)


def test_a_layer_that_is_called_from_outside_is_frozen() -> None:
    graph = aacp.trace(Reaching().eval(), IMAGES, parts=["backbone"])
    reasons = {group.name: group.frozen for group in graph.groups}
    assert "called from outside of the part backbone" in str(reasons["backbone.stem.0"])
    assert reasons["backbone.body.0"] is None


@pytest.mark.slow
def test_the_graph_survives_json_and_verification(detector: Detector) -> None:
    graph = aacp.trace(detector, IMAGES)
    again = aacp.ChannelGraph.from_json(graph.to_json())
    assert again == graph
    assert again.parts == graph.parts
    assert aacp.verify(detector, graph, IMAGES) == graph


@pytest.mark.slow
def test_the_graph_of_a_wider_part_is_rejected(detector: Detector) -> None:
    graph = aacp.trace(detector, IMAGES)
    detector.head.tower = block(8, 9)
    detector.head.scores = nn.Conv2d(9, 3, 1)
    detector.eval()
    with pytest.raises(aacp.GraphMismatch, match="another network"):
        aacp.verify(detector, graph, IMAGES)


@pytest.mark.slow
def test_a_difference_inside_of_a_part_is_found(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = aacp.trace(detector, IMAGES)
    units = graph.kept_units([5, 7, 3])
    assert difference_when_cut(detector, graph, IMAGES, units) is None

    def wrong(model: nn.Module, *given: Any) -> nn.Module:
        smaller = cut(model, *given)
        if isinstance(smaller, Head):
            smaller.scores.weight.data.add_(1)
        return smaller

    monkeypatch.setattr(verification, "cut", wrong)
    assert "differ" in str(difference_when_cut(detector, graph, IMAGES, units))


@pytest.mark.slow
def test_nothing_is_printed_about_the_failed_export(detector: Detector, capfd: pytest.CaptureFixture[str]) -> None:
    aacp.trace(detector, IMAGES)
    assert capfd.readouterr() == ("", "")


def test_a_network_without_a_traceable_part_keeps_the_first_error() -> None:
    class Tangled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, images: Tensor) -> Tensor:
            return self.conv(images) if float(images.sum()) > 0 else images

    with pytest.raises(aacp.UntraceableModel, match=r"torch\.export cannot trace Tangled"):
        aacp.trace(Tangled(), torch.rand(1, 3, 8, 8))
