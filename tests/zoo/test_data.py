from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from aacp import Data, InvalidData, InvalidOption, UnknownData, load_data

MINE = """
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
import aacp

class Labelled(TensorDataset):
    classes = ["cat", "dog"]
    @property
    def targets(self):
        return self.tensors[1].tolist()

def pair(): return Labelled(torch.randn(40, 3), torch.arange(40) % 2), TensorDataset(torch.randn(8, 3), torch.zeros(8))
def silent(): return TensorDataset(torch.randn(40, 3), torch.arange(40) % 2), pair()[1]
def loaders(): return DataLoader(pair()[0], 5, shuffle=True, drop_last=True), DataLoader(pair()[1], 5)
def whole(): return aacp.Data(*3 * [pair()[1]], name="mine", classes=("x",))
def unnamed(): return aacp.Data(*3 * [pair()[1]])
def images(): return aacp.load_data("digits", holdout=0).train, aacp.load_data("digits").test

class Stream(IterableDataset):
    def __iter__(self): return iter([])

def stream(): return Stream(), Stream()
def one(): return 1
def broken(): raise ValueError("no disk")
nine = 9
"""


@pytest.fixture(autouse=True)
def _mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_data", raising=False)


def labels(part: Any) -> list[int]:
    return [int(label) for _, label in part]


def test_a_pair_of_data_sets_gets_a_hold_out_by_label() -> None:
    data = load_data("my_data:pair", holdout=0.25)
    assert sorted(labels(data.holdout)) == [0] * 5 + [1] * 5
    assert len(labels(data.train)) == 30
    assert data.classes == ("cat", "dog")
    assert data.name == "my_data:pair"


def test_data_that_does_not_tell_its_labels_is_split_all_the_same() -> None:
    data = load_data("my_data:silent", holdout=0.25)
    assert (len(labels(data.train)), len(labels(data.holdout))) == (30, 10)
    assert data.classes == ()


def test_a_loader_keeps_its_settings_and_loses_the_hold_out() -> None:
    data = load_data("my_data:loaders", holdout=0.3, seed=1)
    assert isinstance(data.train, DataLoader)
    assert (data.train.batch_size, data.train.drop_last, len(data.train)) == (5, True, 5)
    assert isinstance(data.train.sampler, torch.utils.data.RandomSampler)
    kept = {tuple(row.tolist()) for rows, _ in data.train for row in rows}
    held = {tuple(row.tolist()) for rows, _ in data.holdout for row in rows}  # type: ignore[union-attr]
    assert len(held) == 12
    assert not kept & held
    assert data.classes == ("cat", "dog")


def test_images_in_memory_stay_images_in_memory() -> None:
    data = load_data("my_data:images", holdout=0.5)
    assert type(data.train).__name__ == type(data.holdout).__name__ == "Images"


def test_whole_data_is_taken_as_it_is() -> None:
    data = load_data("my_data:whole")
    assert isinstance(data, Data)
    assert (data.name, data.classes) == ("mine", ("x",))
    assert len(labels(data.train)) == 8


def test_a_hold_out_for_data_that_has_one_is_rejected() -> None:
    with pytest.raises(
        InvalidOption, match=r"my_data:whole returns data with its own hold-out, .* 5000 would be ignored"
    ):
        load_data("my_data:whole", holdout=5000)


def test_a_cache_for_data_that_is_not_decoded_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"digits would ignore it\. Leave the cache out"):
        load_data("digits", cache="pixels")


def test_whole_data_without_a_name_gets_the_name_it_was_loaded_by() -> None:
    assert load_data("my_data:unnamed").name == "my_data:unnamed"


@pytest.mark.parametrize("name", ["mnist", "my_data:", ":", "no.such.module:f", "my_data:nine", "my_data:one"])
def test_names_that_lead_nowhere_are_rejected(name: str) -> None:
    with pytest.raises(UnknownData):
        load_data(name)


def test_a_function_that_fails_is_named_with_its_reason() -> None:
    with pytest.raises(UnknownData, match="my_data:broken failed with ValueError: no disk"):
        load_data("my_data:broken")


def test_a_stream_has_no_hold_out_to_take() -> None:
    with pytest.raises(InvalidData, match="No hold-out can be taken from the training data of my_data:stream"):
        load_data("my_data:stream")
