"""Variants of inputs: mirrored, shifted, blended, and reproducible."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aacp.train.variants import varied


def images(count: int = 6) -> Tensor:
    return torch.rand(count, 2, 8, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def unblended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "lerp", lambda start, end, weight: end)


def test_a_blend_lies_between_an_example_and_the_one_before_it() -> None:
    rows = torch.eye(5)
    torch.manual_seed(0)
    found = varied(rows)
    for row in range(5):
        share = found[row, row]
        assert 0 < share < 1
        expected = share * rows[row] + (1 - share) * rows[row - 1]
        assert torch.allclose(found[row], expected)


@pytest.mark.usefixtures("unblended")
def test_images_are_mirrored_and_shifted_around_the_edge_by_an_eighth_at_most() -> None:
    given = images(40)
    mirrored = 0
    shifts = set()
    for seed in range(20):
        torch.manual_seed(seed)
        found = varied(given)
        matches = [
            (dy, dx, is_flipped)
            for dy in range(-1, 2)
            for dx in range(-2, 3)
            for is_flipped in (False, True)
            if torch.equal(found[0], torch.roll(given[0].flip(-1) if is_flipped else given[0], (dy, dx), (-2, -1)))
        ]
        ((dy, dx, is_flipped),) = matches
        mirrored += is_flipped
        shifts.add((dy, dx))
        plain = torch.roll(found, (-dy, -dx), (-2, -1))
        assert all(
            torch.equal(one, other) or torch.equal(one.flip(-1), other) for one, other in zip(plain, given, strict=True)
        )
    assert 0 < mirrored < 20
    assert len(shifts) > 5


def test_the_seed_decides_the_variant_and_the_inputs_stay() -> None:
    given = images()
    before = given.clone()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(varied(given))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(given, before)


def test_all_tensors_of_an_example_change_alike() -> None:
    given = images()
    torch.manual_seed(0)
    found = varied({"left": given, "right": 2 * given})
    assert torch.allclose(found["right"], 2 * found["left"])


@pytest.mark.parametrize(
    "inputs",
    [torch.arange(6).reshape(3, 2), (torch.rand(3, 2), torch.rand(4, 2)), (torch.rand(3, 2), torch.tensor(1.0))],
)
def test_inputs_that_cannot_be_blended_are_returned_unchanged(inputs: object) -> None:
    assert varied(inputs) is inputs
