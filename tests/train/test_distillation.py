"""The distance from a teacher's outputs: heads by name, formulas written out, and what cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import aacp
from aacp.train.distillation import heads_of


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def divergence(outputs: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Hinton's loss, written out."""
    soft, answer = (taught / temperature).softmax(1), (outputs / temperature).softmax(1)
    return temperature**2 * (soft * (soft / answer).log()).sum(1).mean()


def relative_error(outputs: Tensor, taught: Tensor) -> Tensor:
    return (outputs - taught).square().sum() / taught.square().sum()


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_one_tensor_of_classes_is_compared_by_probabilities() -> None:
    outputs, taught = numbers(6, 5), numbers(6, 5, seed=1)
    assert close(aacp.distillation_loss(outputs, taught, temperature=3.0), divergence(outputs, taught, 3.0))


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 1, 4, 4), (6, 3, 4, 4), (6, 5, 2)])
def test_anything_else_is_compared_by_values_and_never_by_probabilities(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, taught = numbers(*shape), numbers(*shape, seed=1)
    expected = relative_error(outputs, taught)
    monkeypatch.setattr("torch.nn.functional.log_softmax", lambda *_: pytest.fail("there are no probabilities"))
    assert close(aacp.distillation_loss(outputs, taught), expected)


def test_pixels_are_compared_by_probabilities_on_demand() -> None:
    outputs, taught = numbers(2, 5, 3, 3), numbers(2, 5, 3, 3, seed=1)
    found = aacp.distillation_loss(outputs, taught, heads="classes", temperature=2.0)
    assert close(found, divergence(outputs, taught, 2.0))


def test_one_channel_has_no_probabilities_even_on_demand() -> None:
    for shape in ((6, 1), (6,), (6, 1, 4, 4)):
        with pytest.raises(aacp.InvalidData, match=r"no probabilities.*heads='values'"):
            aacp.distillation_loss(numbers(*shape), numbers(*shape, seed=1), heads="classes")


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class Answer:
    logits: Tensor
    features: tuple[Tensor, Tensor]
    loss: Tensor | None = None


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (numbers(2, 3), [""]),
        ((numbers(2, 3), numbers(2)), ["0", "1"]),
        (Pair(numbers(2), numbers(2)), ["0", "1"]),
        ({"boxes": [numbers(2), numbers(3)], "labels": torch.zeros(2, dtype=torch.long)}, ["boxes.0", "boxes.1"]),
        (Answer(numbers(2, 3), (numbers(1), numbers(1))), ["logits", "features.0", "features.1"]),
        ("text", []),
    ],
)
def test_heads_are_named_by_the_keys_and_positions_that_lead_to_them(outputs: Any, names: list[str]) -> None:
    assert list(heads_of(outputs)) == names


def test_several_heads_weigh_the_same_whatever_their_scale() -> None:
    outputs = {"boxes": 1000 * numbers(4, 4, 3), "scores": numbers(4, 2)}
    taught = {"boxes": 1000 * numbers(4, 4, 3, seed=1), "scores": numbers(4, 2, seed=1)}
    errors = [relative_error(outputs[name], taught[name]) for name in outputs]
    assert close(aacp.distillation_loss(outputs, taught), sum(errors) / 2)


def test_named_heads_are_compared_as_the_user_says_and_others_are_left_out() -> None:
    outputs = Answer(numbers(4, 3), (numbers(4, 2), numbers(4, 5)), loss=torch.ones(()))
    taught = Answer(numbers(4, 3, seed=1), (numbers(4, 2, seed=2), numbers(4, 5, seed=3)))
    found = aacp.distillation_loss(outputs, taught, heads={"logits": "classes", "features": "values"}, temperature=2.0)
    parts = [divergence(outputs.logits, taught.logits, 2.0)]
    parts += [relative_error(one, other) for one, other in zip(outputs.features, taught.features, strict=True)]
    assert close(found, torch.stack(parts).mean())


def test_auxiliary_outputs_of_training_are_left_out_if_the_teacher_has_one_output() -> None:
    main, auxiliary, taught = torch.randn(3, 4, 5).unbind()
    named = {"aux_logits": auxiliary, "logits": main}
    for outputs in ((main, auxiliary), named, (auxiliary[:, :2], main)):
        assert aacp.distillation_loss(outputs, taught) == aacp.distillation_loss(main, taught)
    with pytest.raises(aacp.InvalidData, match=r"have the heads '0', '1', those of the teacher"):
        aacp.distillation_loss((main[:2], auxiliary[:2]), taught)


def test_heads_that_only_one_of_both_has_are_named() -> None:
    outputs, taught = {"out": numbers(2, 3), "aux": numbers(2, 3)}, {"out": numbers(2, 3, seed=1)}
    with pytest.raises(aacp.InvalidData, match=r"'out', 'aux'.*'out'\. Choose heads"):
        aacp.distillation_loss(outputs, taught)
    with pytest.raises(aacp.InvalidData, match="no head 'aux'"):
        aacp.distillation_loss(outputs, taught, heads={"aux": "values"})
    assert float(aacp.distillation_loss(outputs, taught, heads={"out": "values"})) > 0


def test_shapes_must_agree() -> None:
    with pytest.raises(aacp.InvalidData, match=r"head 'a' has shape \(2, 3\), that of the teacher \(2, 4\)"):
        aacp.distillation_loss({"a": numbers(2, 3)}, {"a": numbers(2, 4)})


@pytest.mark.parametrize("heads", [5, "softmax", {}, {"a": "softmax"}, {1: "values"}, [("a",)], None])
def test_a_choice_that_means_nothing_is_rejected(heads: Any) -> None:
    with pytest.raises(aacp.InvalidOption):
        aacp.distillation_loss(numbers(2, 3), numbers(2, 3), heads=heads)


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), 2000, "warm"])
def test_a_temperature_outside_its_range_is_rejected(temperature: Any) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"temperature is .*\. Give a number from 0\.01 to 1000\."):
        aacp.distillation_loss(numbers(2, 3), numbers(2, 3), temperature=temperature)


def test_gradients_lead_to_the_teacher() -> None:
    for outputs in (numbers(6, 5), numbers(6, 1)):
        taught = numbers(*outputs.shape, seed=1)
        moving = outputs.clone().requires_grad_()
        optimiser = torch.optim.SGD([moving], lr=0.1)
        first = float(aacp.distillation_loss(outputs, taught))
        for _ in range(20):
            optimiser.zero_grad()
            aacp.distillation_loss(moving, taught).backward()
            optimiser.step()
        assert float(aacp.distillation_loss(moving.detach(), taught)) < 0.9 * first


def test_a_teacher_that_answers_zero_gives_a_finite_distance() -> None:
    assert torch.isfinite(aacp.distillation_loss(numbers(3, 1), torch.zeros(3, 1)))
