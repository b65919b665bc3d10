"""Data without labels: flat folders, files of tensors, and the user's loaders, data sets and tensors of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader, Dataset, TensorDataset

import aacp
from aacp.data.examples import inputs_of, targets_of
from aacp.data.splits import sampled
from aacp.errors import InvalidData, UnknownData
from aacp.zoo.data import load_data
from aacp.zoo.folders import image_folder

PARTS = ("train", "holdout", "test")


def write(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(folder / f"{number:03}.png")


class Inputs(Dataset[torch.Tensor]):
    """A data set of inputs alone: each is its own number."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= len(self):
            raise IndexError
        return torch.full((1, 2, 2), float(index))


def numbers() -> torch.Tensor:
    return torch.arange(50.0).reshape(50, 1, 1, 1).expand(50, 1, 2, 2).contiguous()


def images() -> Inputs:
    return Inputs()


def loader() -> DataLoader[Any]:
    return DataLoader(Inputs(), batch_size=8)


def inputs_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    return numbers(), torch.arange(50)


def contents(data: aacp.Data) -> list[list[float]]:
    """The first number of every example of each part; every batch must be inputs alone."""
    found = []
    for part in PARTS:
        batches = list(aacp.Batches.of(getattr(data, part)))
        assert all(targets_of(batch) is None for batch in batches)
        found.append([float(image.flatten()[0]) for batch in batches for image in inputs_of(batch)])
    return found


@pytest.mark.parametrize("name", ["numbers", "images", "loader"])
def test_one_source_of_inputs_is_split_into_three_parts_that_share_nothing(name: str) -> None:
    train, holdout, test = contents(load_data(f"zoo.test_unlabelled:{name}", holdout=8, seed=3))
    assert (len(train), len(holdout), len(test)) == (32, 8, 10)
    assert sorted([*train, *holdout, *test]) == list(range(50))
    other = contents(load_data(f"zoo.test_unlabelled:{name}", holdout=8, seed=4))
    assert other[1] != holdout


def test_a_pair_of_tensors_that_differ_in_shape_is_not_taken_for_training_and_test_inputs() -> None:
    with pytest.raises(InvalidData, match="if the second tensor holds labels"):
        load_data("zoo.test_unlabelled:inputs_and_labels")
    with pytest.raises(UnknownData, match="returned a int"):
        load_data("zoo.test_unlabelled:nothing")


def nothing() -> int:
    return 0


def test_a_pair_of_tensors_of_inputs_is_training_and_test_inputs() -> None:
    data = aacp.Data.of(numbers(), 100 + numbers(), holdout=5)
    train, holdout, test = contents(data)
    assert test == list(range(100, 150))
    assert sorted([*train, *holdout]) == list(range(50))


def test_a_tuple_of_two_tensors_is_inputs_and_labels() -> None:
    data = aacp.Data.of((numbers(), torch.arange(50)), holdout=5)
    batch = next(iter(aacp.Batches.of(data.train)))
    assert torch.equal(inputs_of(batch)[:, 0, 0, 0].long(), targets_of(batch))


def test_a_sample_of_a_tensor_is_drawn_from_all_of_it() -> None:
    sample: Any = sampled(numbers(), 10, seed=1)
    drawn = sample[:, 0, 0, 0].tolist()
    assert len(set(drawn)) == 10
    assert max(drawn) >= 10
    assert drawn == sorted(drawn)


def test_pictures_directly_in_a_folder_are_inputs_in_three_parts(tmp_path: Path) -> None:
    write(tmp_path, 30)
    (tmp_path / "notes.txt").write_text("not an image")
    data: Any = image_folder(tmp_path, holdout=4, size=8)
    train, holdout, test = contents(data)
    assert (len(train), len(holdout), len(test)) == (20, 4, 6)
    assert len({*train, *holdout, *test}) == 30  # each picture has its own red
    assert data.classes == ()
    assert data.train[0].shape == (3, 8, 8)
    assert not data.train.augment


def test_pictures_directly_in_train_and_val_stay_in_their_parts(tmp_path: Path) -> None:
    write(tmp_path / "train", 20)
    write(tmp_path / "val", 5)
    train, holdout, test = contents(image_folder(tmp_path, holdout=4, size=8))
    assert (len(train), len(holdout), len(test)) == (16, 4, 5)


def test_a_picture_beside_class_folders_changes_nothing(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write(tmp_path / part / "cat", 6)
        write(tmp_path / part, 1)
    data: Any = image_folder(tmp_path, holdout=2, size=8)
    assert data.classes == ("cat",)
    assert len(data.test) == 6


def test_class_folders_in_one_part_only_are_rejected(tmp_path: Path) -> None:
    write(tmp_path / "train", 6)
    write(tmp_path / "val" / "cat", 6)
    with pytest.raises(InvalidData, match=r"Only one of .*train and .*val has class folders"):
        image_folder(tmp_path)


def test_a_file_of_numpy_is_read_in_single_precision(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", numbers().double().numpy())
    data: Any = load_data(f"tensors:{tmp_path / 'x.npy'}", holdout=8)
    train, holdout, test = contents(data)
    assert sorted([*train, *holdout, *test]) == list(range(50))
    assert data.train.dtype == torch.float32


def test_a_safetensors_file_may_hold_labels(tmp_path: Path) -> None:
    save_file({"pictures": numbers()}, tmp_path / "x.safetensors")
    assert len(contents(load_data(f"tensors:{tmp_path / 'x.safetensors'}"))[2]) == 10
    save_file({"pictures": numbers(), "labels": torch.arange(50)}, tmp_path / "xy.safetensors")
    labelled: Any = load_data(f"tensors:{tmp_path / 'xy.safetensors'}")
    batch = next(iter(aacp.Batches.of(labelled.test)))
    assert torch.equal(inputs_of(batch)[:, 0, 0, 0].long(), targets_of(batch))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": torch.zeros(4, 3, dtype=torch.uint8)}, "Normalise the images"),
        ({"x": torch.zeros(4)}, "shape \\(examples, ...\\)"),
        ({"x": torch.zeros(4, 3), "z": torch.zeros(4, 3)}, "its other tensors are: x, z"),
        ({"labels": torch.zeros(4)}, "its other tensors are: none"),
        ({"x": torch.zeros(4, 3), "labels": torch.zeros(5, dtype=torch.int64)}, "for 4 inputs"),
    ],
)
def test_files_that_do_not_say_what_the_inputs_are_are_rejected(
    tensors: dict[str, torch.Tensor], message: str, tmp_path: Path
) -> None:
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(InvalidData, match=message):
        load_data(f"tensors:{tmp_path / 'x.safetensors'}")


def test_files_of_other_kinds_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="There is no file"):
        load_data(f"tensors:{tmp_path / 'x.npy'}")
    for name, message in (("x.pt", "neither a .safetensors"), ("x.npy", "cannot be read as tensors")):
        (tmp_path / name).write_text("text")
        with pytest.raises(InvalidData, match=message):
            load_data(f"tensors:{tmp_path / name}")


def test_training_on_inputs_alone_is_rejected(tmp_path: Path) -> None:
    network = aacp.build_model("digits_resnet")
    write(tmp_path, 40)
    for train in (torch.zeros(300, 1, 8, 8), image_folder(tmp_path, size=8).train):
        with pytest.raises(InvalidData, match="inputs without labels"):
            aacp.fit(network, train, device="cpu")
    unlabelled = TensorDataset(torch.zeros(300, 1, 8, 8))
    with pytest.raises(InvalidData, match="targets of type NoneType"):
        aacp.fit(network, unlabelled, device="cpu")


def test_pictures_have_the_size_that_the_name_of_the_data_requests(tmp_path: Path) -> None:
    write(tmp_path / "pictures", 20)
    data = load_data(f"imagefolder@16:{tmp_path / 'pictures'}")
    assert data.name == f"imagefolder@16:{tmp_path / 'pictures'}"
    assert data.test[0].shape == (3, 16, 16)
    assert load_data(f"imagefolder:{tmp_path / 'pictures'}").test[0].shape == (3, 224, 224)
    assert load_data(f"imagefolder@16:{tmp_path / 'pictures'}", cache=tmp_path / "cache").test[0].shape == (3, 16, 16)


@pytest.mark.parametrize("size", ["", "0", "small", "-3"])
def test_a_size_that_is_not_a_number_of_pixels_is_rejected(size: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownData, match=r"no size of images from 1 to 8,192 pixels.*Write imagefolder@32:PATH"):
        load_data(f"imagefolder@{size}:{tmp_path}")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"There is no folder .*nowhere\. Give a folder of images"):
        load_data(f"imagefolder:{tmp_path / 'nowhere'}")
