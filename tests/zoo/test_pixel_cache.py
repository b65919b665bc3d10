"""The cache of decoded images: written once, whole or not at all, compared with its checksums."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from aacp import Batches, DiskError, InvalidData
from aacp.zoo import pixel_cache
from aacp.zoo.folders import image_folder

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, six training images and three test images of each."""
    random = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 3)):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.png")
    return tmp_path


def read(folder: Path, cache: Path | None, part: str = "test", **settings: Any) -> torch.Tensor:
    data = image_folder(folder, size=16, cache=cache, **settings)
    return torch.cat(list(Batches.of(getattr(data, part), batch_size=4).inputs()))


def test_images_of_the_cache_are_those_of_the_files_which_are_decoded_once(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    expected = read(folder, None)
    assert torch.equal(read(folder, cache), expected)
    for file in (folder / "val").rglob("*.png"):
        file.write_bytes(b"")  # the names stay
    assert torch.equal(read(folder, cache), expected)
    assert sorted(file.suffix for file in cache.iterdir()) == [".crc32", ".pixels"]


def test_other_files_sizes_and_parts_have_caches_of_their_own(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    read(folder, cache)
    (folder / "val" / "a" / "0.png").rename(folder / "val" / "a" / "9.png")
    assert torch.equal(read(folder, cache), read(folder, None))
    read(folder, cache, "holdout", holdout=4)
    data: Any = image_folder(folder, size=8, cache=cache)
    list(Batches.of(data.test))
    assert len(list(cache.glob("*.pixels"))) == 4


def test_random_crops_are_not_cached(folder: Path, tmp_path: Path) -> None:
    data: Any = image_folder(folder, size=16, cache=tmp_path / "cache")
    data.train.as_bytes(0, 1)[0]
    assert not (tmp_path / "cache").exists()
    data.train.unaugmented().as_bytes()
    assert (tmp_path / "cache").exists()


@pytest.mark.parametrize("how", ["flipped", "cut", "without checksums of all"])
def test_a_damaged_cache_is_named_and_replaced_once_it_is_deleted(how: str, folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    expected = read(folder, cache)
    (pixels,) = cache.glob("*.pixels")
    content = bytearray(pixels.read_bytes())
    if how == "flipped":
        content[1000] ^= 1
        pixels.write_bytes(content)
    elif how == "cut":
        pixels.write_bytes(content[:-1])
    else:
        pixels.with_suffix(".crc32").write_bytes(b"\0" * 4)
    with pytest.raises(InvalidData, match=rf"{pixels.name}.*\. Delete"):
        read(folder, cache)
    pixels.unlink()
    assert torch.equal(read(folder, cache), expected)


def test_an_interrupted_cache_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    (folder / "val" / "b" / "2.png").write_bytes(b"no image")
    cache = tmp_path / "cache"
    with pytest.raises(InvalidData, match=r"2\.png cannot be read"):
        read(folder, cache)
    assert list(cache.iterdir()) == []


def test_a_full_disk_is_reported_before_and_while_it_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10, 9, 1))
    with pytest.raises(InvalidData, match=r"has 0\.0 GB free\. Give a folder on another disk"):
        read(folder, tmp_path / "cache")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(1 << 40, 0, 1 << 40))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pixel_cache, "zlib", SimpleNamespace(crc32=full))
    with pytest.raises(DiskError, match=r"cannot be written: No space left.*\. Make room"):
        read(folder, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_place_that_is_no_folder_is_rejected(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="cannot be written"):
        read(folder, tmp_path / "file")
