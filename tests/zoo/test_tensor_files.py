"""Files of tensors that are damaged, or claim more than they hold: test_unlabelled.py reads whole ones."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from aacp import InvalidData
from aacp.zoo.tensor_files import tensor_file


def npy(header: str, content: bytes = b"", version: int = 1) -> bytes:
    text = header.encode() + b"\n"
    length = struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000, 3)}", bytes(24)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", bytes(20)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}", bytes(24)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}", bytes(48)),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", bytes(24)),
        npy("{'descr': '<U9', 'fortran_order': False, 'shape': (2, 3)}", bytes(216)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", bytes(24)),
        npy("(" * 5000 + ")" * 5000),
        npy("{'shape': " + "9" * 9000 + "}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", bytes(24), version=9),
        b"PK\x03\x04" + bytes(100),  # a zip file, as np.savez writes it
        b"\x80\x04N.",  # a pickle
    ],
)
def test_a_damaged_array_is_rejected_before_memory_is_allocated(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InvalidData, match=r"a.npy cannot be read as tensors: .*\. Write it again\."):
        tensor_file(tmp_path / "a.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8"])
def test_arrays_of_every_order_are_read_as_numpy_reads_them(order: str, kind: str, tmp_path: Path) -> None:
    values = np.asarray(np.random.default_rng(0).normal(size=(30, 3, 4)), kind, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", values)
    data = tensor_file(tmp_path / "a.npy", holdout=5)
    parts = torch.cat([data.train, data.holdout, data.test])  # type: ignore[list-item]
    assert sorted(parts.flatten().tolist()) == sorted(np.float32(values).flatten().tolist())
    assert parts.shape == (30, 3, 4)


def test_a_tensor_that_claims_ten_billion_numbers_is_rejected(tmp_path: Path) -> None:
    header = b'{"x":{"dtype":"F32","shape":[10000000000],"data_offsets":[0,40000000000]}}'
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(100))
    with pytest.raises(InvalidData, match=r"a.safetensors is not a complete safetensors file"):
        tensor_file(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "labels",
    [torch.tensor([0.7, 1.0]), torch.tensor([True, False]), torch.tensor([1j, 0j]), torch.tensor([[0], [1]])],
)
def test_labels_that_are_not_one_whole_number_each_are_rejected(labels: torch.Tensor, tmp_path: Path) -> None:
    save_file({"x": torch.zeros(2, 3), "labels": labels}, tmp_path / "a.safetensors")
    with pytest.raises(InvalidData, match=r"The labels in .* Give one whole number per input"):
        tensor_file(tmp_path / "a.safetensors")


@pytest.mark.parametrize("ending", ["npy", "safetensors"])
def test_pipes_devices_and_folders_are_not_files_of_tensors(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe.{ending}")
    (tmp_path / f"zero.{ending}").symlink_to("/dev/zero")
    (tmp_path / f"folder.{ending}").mkdir()
    for name, kind in (("pipe", "a pipe"), ("zero", "a device"), ("folder", "a folder")):
        with pytest.raises(InvalidData, match=f"{name}.{ending} is {kind}, not a file"):
            tensor_file(tmp_path / f"{name}.{ending}")
