"""PSAE: the score of the inherited and recalibrated network, computed once for each structure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aacp
from aacp.data import batches, memory
from aacp.data.examples import inputs_of, targets_of
from aacp.estimate.importance import unit_importance
from aacp.estimate.inheritance import ChannelOrder
from estimate.small_network import CALIBRATION, IMAGES, LABELS, OTHER, STRUCTURE, negative_loss, network
from graph.micro_networks import Block, conv

INHERITANCE = ("model", "graph", "calibration", "importance", "seed", "reconstruction", "device")
EXECUTIONS = ["sliced", pytest.param("masked", marks=pytest.mark.accelerated)]


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    return aacp.trace(network(), IMAGES[:2])


@pytest.fixture
def model() -> nn.Sequential:
    return network()


@pytest.fixture
def psae(model, graph) -> Callable[..., aacp.PSAE]:
    """An estimate with some arguments replaced."""

    def make(**options: Any) -> aacp.PSAE:
        given = {"model": model, "graph": graph, "calibration": CALIBRATION, "holdout": (IMAGES, LABELS), **options}
        inherits = {name: given.pop(name) for name in INHERITANCE if name in given}
        return aacp.PSAE(aacp.Inheritance(**inherits), **given)

    return make


def by_hand(model: nn.Module, graph: aacp.ChannelGraph, structure: Any, calibration: Tensor = CALIBRATION) -> nn.Module:
    order = ChannelOrder.of(graph, unit_importance(model, graph))
    smaller = aacp.shrink(model, graph, order.kept(structure)).eval()
    aacp.recalibrate(smaller, calibration)
    return smaller


def state(model: nn.Module) -> Any:
    """All that could be changed in a model."""
    hooks = [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in model.modules()]
    values = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [p.requires_grad for p in model.parameters()], [p.grad is None for p in model.parameters()]
    return values, hooks, flags, [m.training for m in model.modules()], [repr(m) for m in model.modules()]


def same(one: Any, other: Any) -> bool:
    return one[1:] == other[1:] and all(torch.equal(value, other[0][name]) for name, value in one[0].items())


# -- what is scored ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_score_is_the_accuracy_of_the_inherited_and_recalibrated_network(psae, model, graph, execution) -> None:
    estimate = psae(execution=execution, batch_size=16)
    for structure in (STRUCTURE, OTHER, graph.full):
        with torch.no_grad():
            named = by_hand(model, graph, structure)(IMAGES).argmax(1)
        assert estimate(structure) == sum(int(a) == int(b) for a, b in zip(named, LABELS, strict=True)) / 60
    assert len(set(estimate.scores.values())) > 1


def test_importance_and_its_seed_decide_what_is_inherited(psae, model, graph) -> None:
    kept = {"0": [0, 0, 0, 1, 1, 1, 1, 1], "4": [1, 1, 1, 0, 0, 0]}
    smaller = aacp.shrink(model, graph, {"0": [3, 4, 5, 6, 7], "4": [0, 1, 2]})
    aacp.recalibrate(smaller, CALIBRATION)
    expected = negative_loss(smaller, aacp.Batches.of((IMAGES, LABELS)))
    assert psae(importance=lambda *_: kept, score=negative_loss)(STRUCTURE) == pytest.approx(expected, rel=1e-5)
    drawn = {psae(importance="random", seed=seed, score=negative_loss)(STRUCTURE) for seed in (1, 1, 2, 3)}
    assert len(drawn) == 3


def test_the_network_it_gives_is_the_one_it_scores(psae) -> None:
    estimate = psae(score=negative_loss)
    assert negative_loss(estimate.inheritance.network(STRUCTURE), estimate.holdout) == estimate(STRUCTURE)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_networks_without_batch_norm_are_scored_and_a_note_says_so(psae, execution: str) -> None:
    model = nn.Sequential(conv(3, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    graph = aacp.trace(model, IMAGES[:2])
    estimate = psae(model=model, graph=graph, execution=execution, score=negative_loss)
    assert estimate([4]) == pytest.approx(negative_loss(by_hand(model, graph, [4]), estimate.holdout), rel=1e-5)
    assert any("no batch norm" in note for note in estimate.notes)


# -- any score --------------------------------------------------------------------------------------------------------


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm, self.up = conv(3, 10, stride=2), nn.BatchNorm2d(10), nn.ConvTranspose2d(10, 3, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.norm(self.down(x)).relu())


@pytest.fixture(scope="module")
def segmentation() -> tuple[nn.Module, aacp.ChannelGraph, Tensor]:
    torch.manual_seed(0)
    model = Segmenter().eval()
    return model, aacp.trace(model, IMAGES[:2]), torch.randint(0, 3, (60, 8, 8))


def intersection_over_union(network: nn.Module, batches: aacp.Batches) -> float:
    pairs = [(network(inputs_of(batch)).argmax(1), targets_of(batch)) for batch in batches]
    found, wanted = (torch.cat(part) for part in zip(*pairs, strict=True))
    shares = [((found == c) & (wanted == c)).sum() / ((found == c) | (wanted == c)).sum() for c in range(3)]
    return float(sum(shares)) / 3


def psnr(network: nn.Module, batches: aacp.Batches) -> Tensor:
    errors = torch.cat([(network(x) - x).square().flatten() for x in batches.inputs()])
    return -10 * errors.mean().log10()  # a tensor is a number too


@pytest.mark.parametrize("score", [intersection_over_union, psnr, aacp.accuracy])
def test_any_function_of_network_and_batches_is_a_score(segmentation, score) -> None:
    model, graph, masks = segmentation
    inheritance = aacp.Inheritance(model, graph, CALIBRATION)
    estimate = aacp.PSAE(inheritance, (IMAGES, masks), score=score, batch_size=13)
    with torch.no_grad():
        expected = float(score(by_hand(model, graph, [6]), aacp.Batches.of((IMAGES, masks))))
    assert estimate([6]) == pytest.approx(expected, rel=1e-4)


# -- once and for all -------------------------------------------------------------------------------------------------


def test_each_structure_is_scored_once_however_it_is_given(psae) -> None:
    calls = []

    def score(*_: Any) -> float:
        calls.append(1)
        return float(len(calls))

    estimate = psae(score=score)
    given = (
        aacp.Structure(STRUCTURE),
        list(STRUCTURE),
        tuple(STRUCTURE),
        np.array(STRUCTURE),
        iter(STRUCTURE),
        [5.0, 3.0],
    )
    assert [estimate(structure) for structure in given] == [1.0] * 6
    assert estimate(OTHER) == 2.0
    assert estimate(STRUCTURE) == 1.0
    assert len(calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_scores_repeat_to_the_last_bit_in_any_order(psae, execution: str) -> None:
    one, other = (psae(execution=execution, score=negative_loss) for _ in range(2))
    tried = [STRUCTURE, OTHER, [8, 6], [1, 1]]
    forwards = [one(structure) for structure in tried]
    torch.manual_seed(99)
    assert [other(structure) for structure in reversed(tried)] == forwards[::-1]


SOURCES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tensors": lambda x, y: (x, y),
    "dataset": TensorDataset,
    "loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=9),
    "list": lambda x, y: [(x[:1], y[:1]), (x[1:], y[1:])],
    "generator": lambda x, y: ((x[i::2], y[i::2]) for i in range(2)),
    "batches": lambda x, y: aacp.Batches.of((x, y), batch_size=11),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_data_is_taken_in_every_form(psae, kind: str) -> None:
    wrap = SOURCES[kind]
    given = psae(calibration=wrap(CALIBRATION, LABELS[:20]), holdout=wrap(IMAGES, LABELS), score=negative_loss)
    assert given(STRUCTURE) == pytest.approx(psae(score=negative_loss)(STRUCTURE), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_model_is_not_touched_and_its_later_changes_do_not_show(psae, model, execution: str) -> None:
    model.train()
    model[0].eval()
    model[0].weight.requires_grad_(False)
    model[2].register_forward_hook(lambda *_: None)
    before = state(model)
    first = psae(execution=execution, score=negative_loss)
    expected = [first(STRUCTURE), first(OTHER)]
    assert same(before, state(model))
    second = psae(execution=execution, score=negative_loss)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(3)
    assert [second(STRUCTURE), second(OTHER)] == expected


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "structure",
    [[5], [5, 3, 1], [0, 3], [9, 3], [-1, 3], [5.5, 3], [True, 3], ["a", 3], [math.nan, 3], None, 5, "53", []],
)
def test_what_is_no_structure_of_the_graph_is_rejected(psae, structure: Any) -> None:
    estimate = psae()
    with pytest.raises(aacp.InvalidStructure):
        estimate(structure)
    assert not estimate.scores


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"execution": "fast"}, "execution is 'fast'"),
        ({"importance": "l7"}, "There is no importance 'l7'"),
        ({"score": "accuracy"}, "score is 'accuracy', not a function"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"calibration": []}, "no examples"),
        ({"holdout": []}, "no examples"),
        ({"holdout": DataLoader(TensorDataset(IMAGES[:0], LABELS[:0]))}, "no examples"),
        ({"calibration": CALIBRATION.log()}, r"calibration images \(of the training data\) are not finite"),
        ({"holdout": (IMAGES / 0, LABELS)}, "held-out images are not finite"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_options_and_data_are_rejected_before_anything_is_scored(psae, model, options, words: str) -> None:
    before = state(model)
    with pytest.raises(aacp.AACPError, match=words):
        psae(**options)
    assert same(before, state(model))


def test_the_graph_of_another_network_is_rejected(psae) -> None:
    with pytest.raises(aacp.GraphMismatch):
        psae(model=nn.Sequential(conv(3, 9), conv(9, 5)))


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"holdout": (IMAGES, LABELS + 2)}, aacp.InvalidData, r"labels are outside 0\.\.4"),
        ({"holdout": (IMAGES, LABELS - 1)}, aacp.InvalidData, r"labels are outside 0\.\.4"),
        ({"holdout": IMAGES}, aacp.InvalidData, "labels are missing"),
        ({"holdout": (IMAGES, torch.rand(60))}, aacp.InvalidData, "labels are torch.float32"),
        ({"score": lambda *_: math.nan}, aacp.InvalidScore, "score on the held-out data is nan"),
        ({"score": lambda *_: -math.inf}, aacp.InvalidScore, "score on the held-out data is -inf"),
        ({"score": lambda *_: None}, aacp.InvalidScore, "score on the held-out data is None, which is not a number"),
        (
            {"score": lambda *_: 1 / 0},
            aacp.InvalidScore,
            "failed on the held-out data: ZeroDivisionError",
        ),
        ({"calibration": CALIBRATION[:, :2]}, aacp.AACPError, "expected input"),
    ],
    ids=["high", "low", "none", "real", "nan", "infinite", "nothing", "raises", "channels"],
)
def test_what_cannot_be_scored_is_a_clear_error_each_time(psae, model, execution, options, error, words) -> None:
    before = state(model)
    estimate = psae(execution=execution, **options)
    for _ in range(2):  # a failure leaves no score behind
        with pytest.raises(error, match=words):
            estimate(STRUCTURE)
    assert same(before, state(model))


def test_the_error_of_a_score_function_keeps_its_cause(psae) -> None:
    cause = KeyError("mIoU")

    def score(*_: Any) -> float:
        raise cause

    with pytest.raises(aacp.InvalidScore, match="KeyError: 'mIoU'") as caught:
        psae(score=score)(STRUCTURE)
    assert caught.value.__cause__ is cause


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_batch_of_one_value_per_channel_is_a_clear_error(psae, execution: str) -> None:
    parts = (conv(3, 8), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 5))
    model = nn.Sequential(*parts).eval()
    graph = aacp.trace(model, IMAGES[:2])
    estimate = psae(model=model, graph=graph, calibration=CALIBRATION[:1], execution=execution)
    with pytest.raises(aacp.InvalidData, match="Batch norm 2 saw 1 value per channel"):
        estimate([4])
    assert 0 <= psae(model=model, graph=graph, calibration=CALIBRATION[:2], execution=execution)([4]) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_after_an_error_scores_are_what_they_would_have_been(psae, execution: str) -> None:
    fails = [True]

    def score(network: nn.Module, batches: aacp.Batches) -> float:
        if fails.pop():
            network.train()
            network(next(batches.inputs()))
            raise RuntimeError("no score today")
        fails.append(False)
        return negative_loss(network, batches)

    expected = psae(execution=execution, score=negative_loss)(OTHER)
    estimate = psae(execution=execution, score=score)
    with pytest.raises(aacp.InvalidScore, match="no score today"):
        estimate(STRUCTURE)
    fails.append(False)
    assert estimate(OTHER) == expected
    assert list(estimate.scores) == [tuple(OTHER)]


# -- which execution --------------------------------------------------------------------------------------------------


def halve_the_head(network: nn.Module, *_: object) -> None:
    with torch.no_grad():
        network[-1].weight.mul_(0.5)


def test_with_a_reconstruction_the_estimate_scores_what_is_delivered(psae) -> None:
    estimate = psae(reconstruction=halve_the_head, score=negative_loss)
    delivered = estimate.inheritance.network(STRUCTURE)
    assert estimate(STRUCTURE) == negative_loss(delivered, estimate.holdout)
    assert estimate(STRUCTURE) != psae(score=negative_loss)(STRUCTURE)
    assert any("really cut" in note for note in estimate.notes)


def test_masked_execution_with_a_reconstruction_is_rejected(psae, model) -> None:
    with pytest.raises(aacp.InvalidOption, match="cannot apply a reconstruction"):
        psae(reconstruction=halve_the_head, execution="masked")
    exported = aacp.trace(model, IMAGES[:2], form="exported")
    with pytest.raises(aacp.InvalidOption, match="cannot apply a reconstruction"):
        psae(reconstruction=halve_the_head, graph=exported)


def test_without_the_accelerate_folder_masked_execution_is_a_clear_error(psae, model, monkeypatch) -> None:
    monkeypatch.setattr("aacp.acceleration.FOLDER", "aacp.not_there")
    assert psae().execution == "sliced"
    with pytest.raises(aacp.InvalidOption, match=r"aacp\.accelerate, which is not installed\. Install"):
        psae(execution="masked")
    with pytest.raises(aacp.InvalidOption, match='form="module"'):
        psae(graph=aacp.trace(model, IMAGES[:2], form="exported"))


def test_a_network_that_writes_into_its_inputs_does_not_change_the_held_out_images(psae) -> None:
    first = Block(lambda m, x: m.conv(x.mul_(0.5)), conv=conv(3, 8))
    model = nn.Sequential(first, nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()
    estimate = psae(model=model, graph=aacp.trace(model, IMAGES[:2].clone()), score=negative_loss, batch_size=60)
    estimate([4])
    assert torch.equal(next(estimate.holdout.inputs()), IMAGES)


# -- memory -----------------------------------------------------------------------------------------------------------


def limited(most: int, score: Any = negative_loss) -> tuple[Any, list[int]]:
    """A score that runs out of memory on batches of more than `most` images, and the sizes it was tried with."""
    tried: list[int] = []

    def scored(network: nn.Module, batches: aacp.Batches) -> float:
        tried.append(max(len(inputs) for inputs in batches.inputs()))
        if tried[-1] > most:
            raise torch.OutOfMemoryError("out of memory")
        return float(score(network, batches))

    return scored, tried


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_out_of_memory_halves_the_batch_continues_and_is_noted(psae, execution: str) -> None:
    score, tried = limited(16)
    estimate = psae(execution=execution, score=score)
    assert estimate(STRUCTURE) == pytest.approx(psae(score=negative_loss)(STRUCTURE), rel=1e-4)
    estimate(OTHER)
    assert tried == [60, 30, 15, 15]  # the second structure profits
    assert [note for note in estimate.notes if "Out of memory" in note] == [
        f"Out of memory: held-out images are now scored in batches of {size}." for size in (30, 15)
    ]


@pytest.mark.parametrize("images", [1, 60])
def test_out_of_memory_on_a_single_image_is_passed_on(psae, images: int) -> None:
    score, tried = limited(0)
    estimate = psae(score=score, holdout=(IMAGES[:images], LABELS[:images]))
    with pytest.raises(torch.OutOfMemoryError):
        estimate(STRUCTURE)
    assert tried[-1] == 1


def test_a_hold_out_that_is_streamed_gives_the_same_scores(psae, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = psae()(STRUCTURE)
    monkeypatch.setattr(batches, "room_for_data", lambda device: 100)
    streaming = psae(holdout=DataLoader(TensorDataset(IMAGES, LABELS), 7))
    assert streaming.holdout.is_streamed
    assert streaming(STRUCTURE) == pytest.approx(expected, rel=1e-6)


def test_large_inputs_are_scored_in_smaller_batches(psae, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.MAX_BATCH_BYTES, "cpu", 10 * 3 * 8 * 8 * 4 + 1)
    assert [len(inputs) for inputs in psae().holdout.inputs()] == [10] * 6
    assert len(psae(batch_size=60).holdout) == 1


# -- memory layouts ---------------------------------------------------------------------------------------------------


class Viewed(nn.Module):
    """The small network, but joined with `view`, which needs contiguous tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[:-2](x)
        return self.layers[-1](x.view(len(x), -1))  # type: ignore[no-any-return]


def test_networks_are_scored_with_channels_last_and_delivered_contiguous(model, graph) -> None:
    inheritance = aacp.Inheritance(model, graph, CALIBRATION)
    scored, delivered = inheritance.scored_network(STRUCTURE), inheritance.network(STRUCTURE)
    assert not scored[4].weight.is_contiguous()
    assert all(weight.is_contiguous() for weight in delivered.parameters())
    assert model[4].weight.is_contiguous()
    assert all(torch.equal(a, b) for a, b in zip(scored.parameters(), delivered.parameters(), strict=True))


@pytest.mark.parametrize("reconstruction", [None, "repair"])
def test_a_network_that_needs_contiguous_tensors_has_the_same_score(graph, reconstruction) -> None:
    viewed = Viewed().eval()
    other = aacp.Inheritance(network(), graph, CALIBRATION, reconstruction=reconstruction)
    found = aacp.Inheritance(viewed, aacp.trace(viewed, IMAGES[:2]), CALIBRATION, reconstruction=reconstruction)
    score = aacp.PSAE(found, (IMAGES, LABELS), score=negative_loss, execution="sliced")(STRUCTURE)
    assert score == pytest.approx(aacp.PSAE(other, (IMAGES, LABELS), score=negative_loss)(STRUCTURE), rel=1e-5)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_score_of_the_user_gets_contiguous_outputs(execution) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), conv(8, 4)).eval()
    graph = aacp.trace(model, IMAGES[:2])

    def size(found: nn.Module, batches: aacp.Batches) -> float:
        return float(sum(found(inputs_of(batch)).view(len(inputs_of(batch)), -1).abs().sum() for batch in batches))

    inheritance = aacp.Inheritance(model, graph, CALIBRATION)
    assert aacp.PSAE(inheritance, (IMAGES, LABELS), score=size, execution=execution)([5]) > 0
