"""Examples mixed in pairs, as blends and with patches, and their labels in the same shares."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from aacp.errors import InvalidData, InvalidOption
from aacp.train.loop import fit
from aacp.train.mixing import mixed
from aacp.train.recipe import Mixture, Recipe
from train.small_data import network, small_images

RECIPE = Recipe(epochs=2, batch_size=24, lr=0.05, mixing=1.0)


def test_every_example_and_its_label_are_blended_with_the_one_before_in_the_same_share() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.eye(6).reshape(6, 6, 1, 1), torch.tensor([0, 1, 2, 0, 1, 2])
    found, probabilities = mixed(inputs, labels, 3, 0.7)
    for row in range(6):
        share = found[row].flatten()[row]
        assert 0 < share < 1
        before = (row - 1) % 6
        torch.testing.assert_close(found[row].flatten()[before], 1 - share)
        assert int((found[row] != 0).sum()) == 2
        expected = share * F.one_hot(labels[row], 3) + (1 - share) * F.one_hot(labels[before], 3)
        torch.testing.assert_close(probabilities[row], expected)
    assert len(set(found.diagonal(0, 0, 1).flatten().tolist())) == 6


@pytest.mark.parametrize(("concentration", "deviation"), [(0.2, 0.4226), (1.0, 0.2887), (8.0, 0.1213)])
def test_shares_follow_their_distribution(concentration: float, deviation: float) -> None:
    torch.manual_seed(1)
    found, _ = mixed(torch.arange(20_000.0)[:, None] % 2, torch.zeros(20_000, dtype=torch.long), 1, concentration)
    assert float(found.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(found.std()) == pytest.approx(deviation, abs=0.01)  # 1 / (2 sqrt(2 concentration + 1))


def test_a_patch_is_one_rectangle_of_the_one_before_and_labels_count_its_pixels() -> None:
    torch.manual_seed(2)
    count, height, width = 50, 12, 8
    inputs = torch.arange(float(count))[:, None, None, None].expand(count, 3, height, width)
    labels = torch.arange(count)
    found, probabilities = mixed(inputs, labels, count, 1.0, "patches")
    areas = set()
    for row in range(count):
        replaced = found[row] == (row - 1) % count
        assert bool((replaced | (found[row] == row)).all())
        assert bool((replaced == replaced[:1]).all()), "all channels of a image have the same patch"
        rows, columns = replaced[0].any(1), replaced[0].any(0)
        assert torch.equal(replaced[0], rows[:, None] & columns[None, :])
        for line in (rows, columns):
            assert int(line.int().diff().abs().sum()) <= 2, "a rectangle has no gaps"
        area = float(replaced[0].float().mean())
        assert float(probabilities[row, row]) == pytest.approx(1 - area)
        assert float(probabilities[row, (row - 1) % count]) == pytest.approx(area)
        areas.add(area)
    assert len(areas) > 20


@pytest.mark.slow
def test_patches_that_lie_inside_have_the_area_that_was_drawn() -> None:
    torch.manual_seed(3)
    inputs = torch.zeros(4000, 1, 64, 64)
    inputs[::2] = 1
    found, _ = mixed(inputs, torch.zeros(4000, dtype=torch.long), 1, 50.0, "patches")  # shares of 0.5 ± 0.05
    whole = (found[:, 0, [0, -1]] == inputs[:, 0, [0, -1]]).all((1, 2)) & (
        found[:, 0, :, [0, -1]] == inputs[:, 0, :, [0, -1]]
    ).all((1, 2))
    areas = (found != inputs).float().mean((1, 2, 3))[whole]
    assert len(areas) > 100
    assert float(areas.mean()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("mixture", ["blends", "patches"])
def test_the_memory_layout_is_kept(mixture: Mixture) -> None:
    inputs = torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    found, _ = mixed(inputs, torch.zeros(4, dtype=torch.long), 2, 1.0, mixture)
    assert found.stride() == inputs.stride()


@pytest.mark.slow
@pytest.mark.parametrize("mixture", ["blends", "patches"])
def test_training_on_mixtures_learns_and_repeats(mixture: Mixture) -> None:
    models = [network() for _ in range(2)]
    recipe = replace(RECIPE.scaled(24), mixture=mixture)
    last = [fit(model, small_images(), recipe, holdout=small_images(seed=5), device="cpu").last for model in models]
    assert last[0] == replace(last[1], seconds=last[0].seconds, images_per_second=last[0].images_per_second)
    assert last[0].accuracy is None  # mixed examples have no correct label
    assert last[0].holdout is not None
    assert last[0].holdout > 0.9


@pytest.mark.parametrize("position", [0, 23])
def test_a_label_that_losses_ignore_cannot_be_mixed(position: int) -> None:
    inputs, labels = torch.randn(24, 2, 6, 6), torch.arange(24) % 4
    labels[position] = -100
    loader = DataLoader(TensorDataset(inputs, labels), 8)
    fit(network(), loader, replace(RECIPE, mixing=0.0), device="cpu")
    with pytest.raises(InvalidData, match=r"the label -100, which losses ignore, .* Use .*mixing=0\), or --recipe"):
        fit(network(), loader, RECIPE, device="cpu")


def test_labels_of_every_pixel_and_losses_of_ones_own_are_rejected() -> None:
    with pytest.raises(
        InvalidData, match=r"one label for each input\. Use .*mixing=0\), or --recipe finetune on the command line\.$"
    ):
        mixed(torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long), 3, 1.0)
    with pytest.raises(InvalidData, match=r"2 dimensions are not images\. Use"):
        mixed(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), 3, 1.0, "patches")
    with pytest.raises(InvalidData, match=r"the inputs are whole numbers \(torch.int64\), not quantities\. Use"):
        mixed(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, dtype=torch.long), 3, 1.0)
    with pytest.raises(
        InvalidOption,
        match=r"may not accept mixed labels\. Use .*mixing=0\), or --recipe finetune on the command line\.$",
    ):
        fit(network(), small_images(), RECIPE, loss=F.cross_entropy, device="cpu")
