"""Pictures: which part of a file is shown, and how large files are decoded."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aacp.zoo.pictures import centred_crop, random_box, random_crop


def save(file: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels.astype(np.uint8)).convert("RGB").save(file, quality=95)
    return file


def test_the_centred_crop_is_the_middle_of_the_resized_picture(tmp_path: Path) -> None:
    # 512 x 256 halves of black and white need no resizing: the crop is columns 144 to 367, half of them black.
    file = save(tmp_path / "halves.png", np.repeat([[0] * 256 + [255] * 256], 256, axis=0))
    crop = centred_crop(file, 224)
    assert (crop.shape, crop.dtype) == ((224, 224, 3), torch.uint8)
    assert (crop[:, :112] == 0).all()
    assert (crop[:, 112:] == 255).all()


def test_random_crops_follow_from_the_seed_and_mirror_half_of_the_pictures(tmp_path: Path) -> None:
    file = save(tmp_path / "ramp.png", np.tile(np.arange(256), (256, 1)))
    crops = [random_crop(file, 16, seed) for seed in range(200)]
    assert 70 < sum(bool(crop[0, 0, 0] > crop[0, -1, 0]) for crop in crops) < 130
    assert torch.equal(crops[3], random_crop(file, 16, 3))
    assert not torch.equal(crops[3], crops[4])


def test_random_boxes_lie_within_the_picture_and_have_the_areas_and_ratios_of_the_usual_augmentation() -> None:
    drawn = random.Random(0)
    boxes = np.array([random_box(500, 375, drawn) for _ in range(2000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 500
    assert boxes[:, 3].max() <= 375
    areas = width * height / (500 * 375)
    assert 0.075 < areas.min() < 0.1 < 0.95 < areas.max() <= 1
    assert (width / height).min() > 0.72
    assert (width / height).max() < 1.36


@pytest.mark.parametrize("size", [(1000, 10), (10, 1000), (1, 1)])
def test_a_picture_that_is_too_narrow_for_a_random_box_gives_its_middle(size: tuple[int, int]) -> None:
    left, top, right, bottom = random_box(*size, random.Random(0))
    assert 0 <= left < right <= size[0]
    assert 0 <= top < bottom <= size[1]
    assert abs((left + right) - size[0]) <= 1 or size[0] < size[1]


@pytest.mark.parametrize("crop", [centred_crop, lambda file, size: random_crop(file, size, 5)])
def test_a_large_jpeg_decoded_at_a_fraction_of_its_size_shows_the_same(crop, tmp_path: Path) -> None:
    waves = 128 + 60 * np.sin(np.arange(1600) / 90)[:, None] + 60 * np.cos(np.arange(2000) / 70)
    small = crop(save(tmp_path / "large.jpg", waves), 64).float()
    whole = crop(save(tmp_path / "large.png", waves), 64).float()  # no PNG decoder reduces
    assert (small - whole).abs().mean() < 1.5
