"""Gram matrices: means and covariances of what products read, compared with numpy over all positions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aacp
from aacp.repairs import grams as grams_module
from aacp.repairs.grams import Grams
from graph.micro_networks import chain, conv, unit

IMAGES = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + 0.5


def two_layers(**options: bool) -> nn.Module:
    torch.manual_seed(0)
    return chain(stem=conv(3, 6), relu=nn.ReLU(), reader=conv(6, 4, **options), head=conv(4, 2, 1)).eval()


def grams_of(model: nn.Module, images: torch.Tensor = IMAGES, batch_size: int | None = None) -> Grams:
    return Grams.of(model, aacp.trace(model, images[:2]), aacp.Batches.of(images, batch_size=batch_size))


def columns_read(model: nn.Module, images: torch.Tensor = IMAGES) -> np.ndarray:
    """What the layer `reader` reads at each position, one row per position, from torch's own unfold."""
    with torch.no_grad():
        unfolded = F.unfold(model.stem(images).relu(), 3, padding=1)
    return unfolded.movedim(1, 2).flatten(0, 1).double().numpy()


def test_the_covariance_is_that_of_all_windows() -> None:
    model = two_layers()
    gram = grams_of(model).grams["reader.weight"]
    columns = columns_read(model)
    assert gram.count == len(columns) == 24 * 64
    assert np.allclose(gram.mean[0], columns.mean(axis=0), atol=1e-6)
    assert np.allclose(gram.covariance[0], np.cov(columns.T, bias=True), atol=1e-5)


@pytest.mark.parametrize("size", [5, 11])
def test_images_of_another_size_are_read_at_their_own_positions(size: int) -> None:
    model = two_layers()
    others = torch.randn(12, 3, size, size, generator=torch.Generator().manual_seed(1))
    grams = Grams.of(model, aacp.trace(model, IMAGES[:2]), aacp.Batches.of([(IMAGES,), (others,)]))
    gram = grams.grams["reader.weight"]
    columns = np.concatenate([columns_read(model), columns_read(model, others)])
    assert gram.count == len(columns) == 24 * 64 + 12 * size**2
    assert np.allclose(gram.mean[0], columns.mean(axis=0), atol=1e-6)
    assert np.allclose(gram.covariance[0], np.cov(columns.T, bias=True), atol=1e-5)


def test_without_a_place_for_a_constant_it_is_the_second_moment() -> None:
    model = two_layers(bias=False)
    gram = grams_of(model).grams["reader.weight"]
    columns = columns_read(model)
    assert np.allclose(gram.covariance[0], columns.T @ columns / len(columns), atol=1e-5)


def test_a_batch_norm_after_the_product_takes_the_constant() -> None:
    torch.manual_seed(0)
    model = chain(stem=conv(3, 6), reader=unit(6, 4), head=conv(4, 2, 1)).eval()
    assert grams_of(model).grams["reader.0.weight"].is_centred


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 7, 24])
def test_batches_do_not_matter(monkeypatch, batch_size: int) -> None:
    monkeypatch.setattr(grams_module, "MAX_ROWS", 500)  # rows are sampled
    monkeypatch.setattr(grams_module, "ROWS_PER_COLUMN", 1)
    model = two_layers()
    expected = grams_of(model).grams["reader.weight"]
    monkeypatch.setattr(grams_module, "BATCH_SIZE", {"cpu": batch_size})
    found = grams_of(model).grams["reader.weight"]
    assert found.count == expected.count == 500
    assert torch.allclose(found.covariance, expected.covariance, atol=1e-5)


def test_a_wide_product_has_a_covariance_over_channels(monkeypatch) -> None:
    monkeypatch.setattr(grams_module, "MAX_COLUMNS", 53)
    model = two_layers()
    grams = grams_of(model)
    gram = grams.grams["reader.weight"]
    columns = columns_read(model).reshape(-1, 6, 9)
    expected = sum(np.cov(columns[:, :, tap].T, bias=True) for tap in range(9))
    assert np.allclose(gram.covariance[0], expected, atol=1e-5)
    assert grams.notes == ["reader.weight reads 54 values: its covariance is over 6 channels."]


def test_a_wide_linear_layer_shares_its_map_over_the_positions_of_a_channel(monkeypatch) -> None:
    monkeypatch.setattr(grams_module, "MAX_COLUMNS", 20)
    torch.manual_seed(0)
    model = chain(stem=conv(3, 6), pool=nn.MaxPool2d(4), flat=nn.Flatten(), fc=nn.Linear(24, 3)).eval()
    gram = grams_of(model).grams["fc.weight"]
    assert gram.taps == 4
    assert gram.covariance.shape == (1, 6, 6)
    matrix = torch.randn(1, 3, 24)
    assert torch.equal(gram.unfolded(gram.folded(matrix)), matrix)


def test_a_product_that_is_too_wide_in_both_forms_has_none(monkeypatch) -> None:
    monkeypatch.setattr(grams_module, "MAX_COLUMNS", 5)
    grams = grams_of(two_layers())
    assert set(grams.grams) == {"head.weight"}
    assert grams.notes == ["reader.weight reads 54 values, too many for a covariance: it is left out."]


@pytest.mark.slow
def test_memory_is_bounded(monkeypatch) -> None:
    full = grams_of(two_layers())
    room = 8 * (54**2 + 4**2) - 1
    assert sum(gram.bytes for gram in full) == room + 1
    monkeypatch.setattr(grams_module, "MAX_BYTES", room)
    bounded = grams_of(two_layers())
    assert sum(gram.bytes for gram in bounded) == 8 * (6**2 + 4**2)


def test_what_cannot_be_mixed_has_no_gram_matrix() -> None:
    """The stem reads the images, and a depthwise convolution reads a single channel."""
    torch.manual_seed(0)
    model = chain(stem=conv(3, 6), depthwise=conv(6, 6, groups=6), head=conv(6, 2, 1)).eval()
    assert set(grams_of(model).grams) == {"head.weight"}


def test_images_that_are_not_finite_are_rejected() -> None:
    broken = IMAGES.clone()
    broken[3, 0, 0, 0] = torch.nan
    with pytest.raises(aacp.InvalidData, match=r"reader.weight is multiplied by is not finite"):
        grams_of(two_layers(), broken)


def test_images_of_another_shape_are_rejected() -> None:
    torch.manual_seed(0)
    model = chain(stem=conv(3, 6), pool=nn.MaxPool2d(4), flat=nn.Flatten(), fc=nn.Linear(24, 3)).eval()
    graph = aacp.trace(model, IMAGES[:2])
    with pytest.raises(aacp.InvalidData, match=r"does not run on images of shape \(4, 3, 12, 12\)"):
        Grams.of(model, graph, aacp.Batches.of(torch.randn(4, 3, 12, 12)))
