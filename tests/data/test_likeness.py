"""Likeness: the score of outputs without labels, compared with hand-computed values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aacp.data import likeness
from aacp.data.batches import Batches
from aacp.data.likeness import Likeness
from aacp.errors import InvalidData


class Scaled(nn.Module):
    """Multiplies its inputs; the original multiplies by 1."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class Several(Scaled):
    """Two outputs of very different size, a constant one, and one of whole numbers."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {
            "small": self.factor * x,
            "large": 1000 * x,
            "constant": torch.ones(len(x)) * self.factor,
            "class": x.argmax(1),
        }


@pytest.fixture
def inputs() -> Tensor:
    return torch.tensor([[1.0, 10.0], [3.0, 14.0], [5.0, 12.0]])


def test_the_score_is_one_minus_the_error_over_the_variance_around_the_mean_of_each_channel(inputs: Tensor) -> None:
    # Squares around the means 3 and 12: 4 + 0 + 4 and 4 + 4 + 0. Half of each value is wrong by half of it.
    expected = 1 - float((0.5 * inputs).square().sum()) / 16
    score = Likeness(Scaled(1.0))
    assert score(Scaled(0.5), Batches.of(inputs)) == pytest.approx(expected)
    assert score(Scaled(1.0), Batches.of(inputs)) == 1.0


def test_batches_of_another_size_and_outputs_that_are_not_kept_change_nothing(
    inputs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Likeness(Scaled(1.0))(Scaled(0.8), Batches.of(inputs))
    assert Likeness(Scaled(1.0))(Scaled(0.8), Batches.of(inputs, batch_size=2)) == pytest.approx(whole)
    monkeypatch.setattr(likeness, "MAX_KEPT", 0)
    score = Likeness(Scaled(1.0))
    batches = Batches.of(inputs, batch_size=1)
    assert [score(Scaled(0.8), batches) for _ in range(2)] == [pytest.approx(whole)] * 2


def test_several_outputs_count_alike_whatever_their_size(inputs: Tensor) -> None:
    one = Likeness(Scaled(1.0))(Scaled(0.5), Batches.of(inputs))
    both = Likeness(Several(1.0))(Several(0.5), Batches.of(inputs))
    assert both == pytest.approx((one + 1) / 2)  # the large output is equal; constants and classes are left out


def test_the_original_runs_once_for_the_same_batches(inputs: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []  # how many examples each call is given
    original = Scaled(1.0)
    original.register_forward_hook(lambda _, arguments, __: seen.append(len(arguments[0])))
    monkeypatch.setattr(likeness, "private_copy", lambda model, _: model)  # a copy would count for itself
    score = Likeness(original)
    batches = Batches.of(inputs)
    for factor in (0.9, 0.8):
        score(Scaled(factor), batches)
    assert seen == [1, 3]  # one example is tried with another memory layout
    score(Scaled(0.7), Batches.of(inputs[:2]))  # other batches have other outputs
    assert seen == [1, 3, 2]


def test_an_original_that_writes_into_its_inputs_leaves_the_data_alone(inputs: Tensor) -> None:
    class Writing(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            return self.factor * x.mul_(2)

    before = inputs.clone()
    with torch.no_grad():
        assert Likeness(Writing(0.5))(Scaled(1.0), Batches.of(inputs)) == 1
    assert torch.equal(inputs, before)


def test_constant_outputs_are_rejected() -> None:
    with pytest.raises(InvalidData, match="constant on these inputs"):
        Likeness(Scaled(1.0))(Scaled(0.5), Batches.of(torch.full((5, 3), 0.1)))


class Nothing(nn.Module):
    """A detector that finds no boxes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(0, 4)


def test_empty_outputs_are_rejected_as_constant_ones_are(inputs: Tensor) -> None:
    with pytest.raises(InvalidData, match=r"constant on these inputs.*your own score function"):
        Likeness(Nothing())(Nothing(), Batches.of(inputs))


def test_outputs_without_a_known_tensor_are_not_called_constant(inputs: Tensor) -> None:
    class Wrapped(Scaled):
        def forward(self, x: Tensor) -> set[Tensor]:  # type: ignore[override]
            return {super().forward(x)}

    with pytest.raises(InvalidData, match="hold no tensors of real numbers in tuples, lists or dictionaries"):
        Likeness(Wrapped(1.0))(Wrapped(2.0), Batches.of(inputs))
