"""Pictures: which part of a file is shown, and how large files are decoded."""

from __future__ import annotations

import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aacp import CorruptImage
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("crop", [centred_crop, lambda file, size: random_crop(file, size, 5)])
def test_a_large_jpeg_decoded_at_a_fraction_of_its_size_shows_the_same(crop, tmp_path: Path) -> None:
    waves = 128 + 60 * np.sin(np.arange(1600) / 90)[:, None] + 60 * np.cos(np.arange(2000) / 70)
    small = crop(save(tmp_path / "large.jpg", waves), 64).float()
    whole = crop(save(tmp_path / "large.png", waves), 64).float()  # no PNG decoder reduces
    assert (small - whole).abs().mean() < 1.5


# -- files of strangers -----------------------------------------------------------------------------------------------

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def header_of_png(width: int, height: int) -> bytes:
    """A PNG file that claims a size, with very few pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100)))


def test_postscript_named_as_a_picture_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "x.png").write_bytes(POSTSCRIPT)
    with pytest.raises(CorruptImage, match=r"x.png cannot be read as an image"):
        centred_crop(tmp_path / "x.png", 8)
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "PPM", "WEBP", "ICO", "TGA", "PCX"])
def test_only_jpeg_and_png_are_decoded_whatever_the_name_says(kind: str, tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "x.png", kind)
    with pytest.raises(CorruptImage, match="cannot be read as an image"):
        centred_crop(tmp_path / "x.png", 8)
    Image.new("RGB", (16, 16)).save(tmp_path / "y.png", "JPEG")  # of the two formats, either name will do
    assert centred_crop(tmp_path / "y.png", 8).shape == (8, 8, 3)


@pytest.mark.parametrize("size", [(10_000, 10_000), (65_535, 65_535), (2**31 - 1, 2**31 - 1)])
def test_a_picture_with_too_many_pixels_is_not_decoded(size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(header_of_png(*size))
    with pytest.raises(CorruptImage, match=r"bomb.png cannot be read as an image \(.*pixels"):
        centred_crop(tmp_path / "bomb.png", 8)


def test_pipes_devices_and_folders_are_not_pictures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "folder.png").mkdir()
    for name, kind in (("pipe.png", "a pipe"), ("zero.png", "a device"), ("folder.png", "a folder")):
        with pytest.raises(CorruptImage, match=f"{name} is {kind}, not a file"):
            centred_crop(tmp_path / name, 8)
