"""CIFAR-10 in both layouts, written here byte by byte with a few images a file."""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aacp import InvalidData, load_data
from aacp.zoo import cifar10 as module
from aacp.zoo.cifar10 import cifar10

FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
N = 20  # images in each file


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGES", N)


def images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (6, N, 3, 32, 32), np.uint8), generator.integers(0, 10, (6, N))


def python2_pickle(pixels: bytes, labels: list[int], shape: tuple[int, int]) -> bytes:
    """The opcodes Python 2 wrote for the canonical files: byte strings, and an array through numpy's old name."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"M" + struct.pack("<H", value)

    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01" + number(shape[0]) + number(shape[1]) + b"\x86" + dtype + b"\x89"
    state += b"T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    items = text(b"batch_label") + text(b"training batch 1 of 5")
    items += text(b"labels") + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items += text(b"data") + array + state + text(b"filenames") + b"](" + text(b"frog_s_000001.png") + b"e"
    return b"\x80\x02}(" + items + b"u."


def write_binary(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, pixels, labels in zip(FILES, *images(), strict=True):
        rows = [bytes([label]) + image.tobytes() for image, label in zip(pixels, labels.tolist(), strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(rows))


def write_python2(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, pixels, labels in zip(FILES, *images(), strict=True):
        (folder / name).write_bytes(python2_pickle(pixels.tobytes(), labels.tolist(), (N, 3072)))


def write_python3(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, pixels, labels in zip(FILES, *images(), strict=True):
        content = {"data": pixels.reshape(N, 3072), "labels": labels.tolist(), "filenames": ["a.png"]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=3))


LAYOUTS: list[tuple[str, Callable[[Path], None]]] = [
    ("cifar-10-batches-bin", write_binary),
    ("cifar-10-batches-py", write_python2),
    ("cifar-10-batches-py", write_python3),
]


@pytest.mark.parametrize(("folder", "write"), LAYOUTS)
@pytest.mark.parametrize("inside", [False, True])
def test_images_and_labels_come_back_in_order(
    folder: str, write: Callable[[Path], None], inside: bool, tmp_path: Path
) -> None:
    write(tmp_path / folder)
    data: Any = load_data(f"cifar10:{tmp_path / folder if inside else tmp_path}", holdout=0)
    pixels, labels = images()
    assert np.array_equal(data.train.pixels, pixels[:5].reshape(-1, 3, 32, 32))
    assert np.array_equal(data.train.labels, labels[:5].reshape(-1))
    assert np.array_equal(data.test.pixels, pixels[5])
    assert np.array_equal(data.test.labels, labels[5])
    assert data.classes[6] == "frog"


def test_images_are_normalised_as_those_of_the_checkpoints(tmp_path: Path) -> None:
    write_binary(tmp_path / "bin")
    image, label = cifar10(tmp_path / "bin").test[3]  # type: ignore[index]
    pixels, labels = images()
    expected = (pixels[5, 3, 1] / 255 - 0.456) / 0.224
    assert np.allclose(image[1], expected, atol=1e-5)
    assert label == labels[5, 3]


def test_the_hold_out_comes_from_the_training_images(tmp_path: Path) -> None:
    write_binary(tmp_path / "bin")
    data: Any = cifar10(tmp_path / "bin", holdout=0.3, seed=4)
    assert (len(data.train), len(data.holdout), len(data.test)) == (70, 30, N)
    together = torch.cat([data.train.pixels, data.holdout.pixels]).flatten(1).numpy()
    everything = images()[0][:5].reshape(100, -1)
    assert {row.tobytes() for row in together} == {row.tobytes() for row in everything}
    assert (data.train.padding, data.train.flip, data.holdout.padding, data.holdout.flip) == (4, True, 0, False)


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("written by a pickle",)


def test_a_pickle_that_names_anything_else_is_rejected_unexecuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_python2(tmp_path / "py")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "py" / "data_batch_3").write_bytes(pickle.dumps({"data": Malicious(), "labels": []}, protocol))
        with pytest.raises(InvalidData, match=r"data_batch_3 is not a CIFAR-10 file \(it names (posix|nt).mkdir"):
            cifar10(tmp_path / "py")
    assert not (tmp_path / "written by a pickle").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a CIFAR-10 file"),
        (python2_pickle(b"\0" * N * 3072, [0] * N, (N, 3072))[:-3000], "not a CIFAR-10 file"),
        (python2_pickle(b"\0" * 3 * 3072, [0] * 3, (3, 3072)), "3 images and 3 labels, not 20"),
        (python2_pickle(b"\0" * N * 3072, [0] * 3, (N, 3072)), "20 images and 3 labels"),
        (python2_pickle(b"\0" * N * 3072, [0] * 19 + [10], (N, 3072)), "image 19 has the label 10"),
        (python2_pickle(b"\0" * N * 3072, [0] * N, (N, 3072)).replace(b"U\x02u1", b"U\x02i8"), "i8, not bytes"),
        (pickle.dumps([1, 2]), "not a CIFAR-10 file"),
        (python2_pickle(b"\0" * N * 3072, [0] * N, (N, 3072)).replace(b"](K\0", b"](G?\xe6ffffff"), "whole numbers"),
        (b"\x80\x02cnumpy\ndtype\nN}U\x08__call__Ns\x86b.", "not a CIFAR-10 file"),  # tries to change our stand-in
    ],
)
def test_damaged_pickles_are_rejected(content: bytes, message: str, tmp_path: Path) -> None:
    write_python2(tmp_path / "py")
    (tmp_path / "py" / "test_batch").write_bytes(content)
    with pytest.raises(InvalidData, match=message):
        cifar10(tmp_path / "py")


def shared(levels: int, empty: bytes, close: bytes) -> bytes:
    """The opcodes of ten times the same container, inside ten times the same, and so on."""
    content = empty + b"q\x00"
    for level in range(levels):
        content += b"(" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + close + b"q" + bytes([level + 1])
    return content


@pytest.mark.parametrize(
    "labels",
    [
        shared(10, b")", b"t"),  # tuples of 10^10 parts
        b"](" + shared(10, b"]", b"l") + b"e",  # lists of 10^10 parts
        b"}" + shared(12, b")", b"t") + b"K\x00s",  # a dictionary whose key has 10^12 parts
        b"]r\xff\xff\xff\x7f",  # a list that is remembered as number 2^31 - 1
    ],
)
def test_a_small_pickle_of_endless_labels_is_rejected_at_once(labels: bytes, tmp_path: Path) -> None:
    write_python2(tmp_path / "py")
    array = python2_pickle(b"\0" * N * 3072, [0] * N, (N, 3072))
    start = array.index(b"U\x04data")
    content = b"\x80\x02}(U\x06labels" + labels + array[start:]
    (tmp_path / "py" / "test_batch").write_bytes(content)
    started = time.process_time()
    with pytest.raises(InvalidData, match="test_batch is not a CIFAR-10 file"):
        cifar10(tmp_path / "py")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("layout", ["test_batch", "test_batch.bin"])
def test_pipes_and_devices_in_the_place_of_files_are_rejected(layout: str, tmp_path: Path) -> None:
    (write_binary if layout.endswith(".bin") else write_python2)(tmp_path / "files")
    file = tmp_path / "files" / layout
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InvalidData, match=f"{layout} is a pipe, not a file"):
        cifar10(tmp_path / "files")
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(InvalidData, match=f"{layout} is a device, not a file"):
        cifar10(tmp_path / "files")


def test_damaged_binary_files_are_rejected(tmp_path: Path) -> None:
    write_binary(tmp_path / "bin")
    file = tmp_path / "bin" / "data_batch_2.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-3073])
    with pytest.raises(InvalidData, match=r"data_batch_2.bin has 58,387 bytes, but 20 images take 61,460"):
        cifar10(tmp_path / "bin")
    file.write_bytes(whole[:3073] + b"\xc8" + whole[3074:])
    with pytest.raises(InvalidData, match="image 1 has the label 200"):
        cifar10(tmp_path / "bin")
    file.unlink()
    with pytest.raises(InvalidData, match=r"data_batch_2.bin is missing"):
        cifar10(tmp_path / "bin")


def test_a_folder_without_the_files_is_rejected(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidData, match="does not contain CIFAR-10"):
            cifar10(path)
