"""Weights, tensors, pictures, CIFAR-10 and names, changed at random: a value or one of our errors, in bounded time."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save
from torch import nn

import aacp
from aacp.zoo import cifar10 as cifar
from aacp.zoo.pictures import centred_crop, random_crop
from aacp.zoo.tensor_files import tensor_file
from aacp.zoo.weights import load_weights
from faults.fuzzing import any_bytes, changed_bytes, few, read_or_reject

NETWORK = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))


def torch_file(new: bool) -> bytes:
    content = io.BytesIO()
    torch.save({"state_dict": NETWORK.state_dict(), "epoch": 3}, content, _use_new_zipfile_serialization=new)
    return content.getvalue()


def picture(kind: str) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.arange(768, dtype=np.uint8).reshape(16, 16, 3)).save(content, kind)
    return content.getvalue()


def array() -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros((10, 2), np.float32))
    return content.getvalue()


SAFETENSORS = save(NETWORK.state_dict())
DATA = save({"x": torch.zeros(10, 2), "labels": torch.zeros(10, dtype=torch.int64)})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(st.one_of(any_bytes(), *(changed_bytes(valid) for valid in (torch_file(True), torch_file(False), SAFETENSORS))))
@few
def test_fuzz_weights(place: Path, content: bytes) -> None:
    (place / "weights").write_bytes(content)
    read_or_reject(lambda: load_weights(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)), place / "weights"))


@given(st.sampled_from(["npy", "safetensors"]), st.one_of(any_bytes(), changed_bytes(array()), changed_bytes(DATA)))
@few
def test_fuzz_tensor_files(place: Path, ending: str, content: bytes) -> None:
    (place / f"a.{ending}").write_bytes(content)
    read_or_reject(lambda: tensor_file(place / f"a.{ending}"))


@given(st.one_of(any_bytes(), changed_bytes(picture("PNG")), changed_bytes(picture("JPEG"))))
@few
def test_fuzz_pictures(place: Path, content: bytes) -> None:
    (place / "a.png").write_bytes(content)
    read_or_reject(lambda: centred_crop(place / "a.png", 8))
    read_or_reject(lambda: random_crop(place / "a.png", 8, 0))


LABELS = b"](" + b"K\x01" * 3 + b"e"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
DTYPE = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
STATE = b"(K\x01K\x03M\x00\x0c\x86" + DTYPE + b"\x89T\x00\x24\x00\x00" + bytes(3 * 3072) + b"tb"
PICKLE = b"\x80\x02}(U\x06labels" + LABELS + b"U\x04data" + ARRAY + STATE + b"u."  # as Python 2 wrote the files
KINDS = ("", "cifar10:", "imagefolder:", "imagefolder@", "tensors:", "timm:", "torchvision:", ":")


def test_the_pickle_that_is_changed_is_valid(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "test_batch").write_bytes(PICKLE)
    monkeypatch.setattr(cifar, "IMAGES", 3)
    assert cifar._checked(place / "test_batch", cifar._pickled)[:, 0].tolist() == [1, 1, 1]


@given(st.one_of(any_bytes(), changed_bytes(PICKLE)))
@few
def test_fuzz_cifar10(place: Path, content: bytes) -> None:
    (place / "test_batch").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar, "IMAGES", 3)
        read_or_reject(lambda: cifar._checked(place / "test_batch", cifar._pickled))


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=40), st.sampled_from(KINDS))
@few
def test_fuzz_names(text: str, before: str) -> None:
    read_or_reject(lambda: aacp.build_model(before + text))
    read_or_reject(lambda: aacp.load_data(before + text))
