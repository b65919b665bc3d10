"""Synthetic pictures for benchmarks of folders: files that decode like photographs, in as many copies as needed.

A picture is noise at several scales, saved as JPEG: at 500 x 375 pixels and quality 90 it has about 70 kB and takes as
long to decode as a photograph of ImageNet. Copies are hard links: they take no room, but each is opened and decoded.
"""

from __future__ import annotations

import os
from itertools import count, islice
from pathlib import Path

import numpy as np
from PIL import Image

SCALES = ((4, 20), (16, 40), (64, 60))  # the size of patches in pixels, and the spread of their brightness
MAX_LINKS = 60_000  # a file of ext4 can have 65,000 names


def picture(width: int, height: int, seed: int) -> Image.Image:
    """One picture."""
    random = np.random.default_rng(seed)
    pixels = random.normal(128, 6, (height, width, 3))
    for patch, spread in SCALES:
        coarse = random.normal(128, spread, (height // patch + 2, width // patch + 2, 3)).clip(0, 255)
        pixels += np.asarray(Image.fromarray(coarse.astype(np.uint8)).resize((width, height)), float) - 128
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_pictures(folder: Path, pictures: int, width: int = 500, height: int = 375) -> list[Path]:
    """Different pictures, one file each."""
    folder.mkdir(parents=True)
    files = [folder / f"{number}.jpg" for number in range(pictures)]
    for seed, file in enumerate(files):
        picture(width, height, seed).save(file, quality=90)
    return files


def write_folder(root: Path, files: list[Path], classes: int, images: int) -> int:
    """A folder of class folders with links to files; returns the bytes that the images pretend to have."""
    sizes = [file.stat().st_size for file in files]
    if images > MAX_LINKS * len(files):
        raise SystemExit(f"{images} links need at least {images // MAX_LINKS + 1} different pictures.")
    for label in range(classes):
        (root / f"class{label:04d}").mkdir(parents=True)
    for number in islice(count(), images):
        os.link(files[number % len(files)], root / f"class{number % classes:04d}" / f"image_{number:07d}.JPEG")
    return sum(sizes[number % len(files)] for number in range(images))
