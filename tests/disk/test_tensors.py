"""Safetensors files are checked before memory is allocated, and damage is a DamagedFile."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save

from aacp.disk.tensors import tensor_bytes, tensor_header, tensors_in
from aacp.errors import DamagedFile, UnreadableFile

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(4), "none": torch.zeros(0, 3)}
WHOLE = save(TENSORS, {"epochs": "3"})


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file.safetensors"
    path.write_bytes(content)
    return path


def with_header(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_equal_tensors_and_metadata_give_equal_bytes(tmp_path: Path) -> None:
    metadata = {"steps": "7", "epochs": "3", "ü": '"quoted"', "optimiser": "{}"}
    contents = {
        tensor_bytes(TENSORS, dict(pairs)) for pairs in (list(metadata.items()), list(metadata.items())[::-1]) * 20
    }
    (content,) = contents
    path = written(tmp_path, content)
    assert tensor_header(path).metadata == metadata
    with safe_open(path, "pt") as file:  # the library reads what it would have written itself
        assert file.metadata() == metadata
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
            name: tensor.tolist() for name, tensor in TENSORS.items()
        }


@pytest.mark.parametrize("metadata", [None, {}, {"epochs": "3"}])
def test_fewer_entries_are_written_as_the_library_writes_them(metadata: dict[str, str] | None) -> None:
    assert tensor_bytes(TENSORS, metadata) == save(TENSORS, metadata or None)


def test_the_header_and_the_tensors_are_those_that_were_saved(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    header = tensor_header(path)
    assert header.metadata == {"epochs": "3"}
    assert header.shapes == {"weight": (2, 3), "count": (), "none": (0, 3)}
    assert header.dtypes["weight"] == "F32"
    found = tensors_in(path)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_tensors_stay_valid_if_the_file_is_cut_off_while_they_are_used(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    found = tensors_in(path)
    os.truncate(path, 0)
    assert float(found["weight"].sum()) == 15.0


@pytest.mark.parametrize("reading", [tensor_header, tensors_in])
def test_a_file_cut_off_anywhere_is_damaged(tmp_path: Path, reading: Any) -> None:
    for length in range(len(WHOLE)):
        path = written(tmp_path, WHOLE[:length])
        with pytest.raises(DamagedFile, match=r"is not a complete safetensors file: .*Write it"):
            reading(path, "Write it again.")


def test_a_shape_beyond_the_file_is_rejected_before_memory_is_allocated(tmp_path: Path) -> None:
    too_large = r"a.shape\[0\] should be a whole number, but is 1000"
    beyond = "tensor a has shape"
    for shape, reason in ([10**10], beyond), ([10**9, 10**9, 10**9], beyond), ([10**30], too_large):
        header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}
        with pytest.raises(DamagedFile, match=reason):
            tensors_in(written(tmp_path, with_header(header, bytes(4))))


@pytest.mark.parametrize(
    "header",
    [
        [], None, 3, {"a": 1}, {"a": {}}, {"__metadata__": [], }, {"__metadata__": {"a": 1}},
        {"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}},
        {"a": {"dtype": "X32", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": 32, "shape": [1], "data_offsets": [0, 4]}},
    ],
)  # fmt: skip
def test_a_header_that_is_not_one_is_damage(tmp_path: Path, header: Any) -> None:
    with pytest.raises(DamagedFile):
        tensors_in(written(tmp_path, with_header(header, bytes(4))))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_any_changed_byte_gives_tensors_or_damage(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(WHOLE) - 1))
    content = bytearray(WHOLE)
    content[place] = data.draw(st.integers(0, 255))
    path = written(tmp_path_factory.getbasetemp(), bytes(content))
    with contextlib.suppress(DamagedFile):
        assert all(isinstance(tensor, torch.Tensor) for tensor in tensors_in(path).values())


def test_a_pipe_is_not_a_file_of_tensors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="is a pipe"):
        tensors_in(tmp_path / "pipe")
