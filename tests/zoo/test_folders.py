"""Folders of JPEG and PNG images written here, from the files to a trained network."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from aacp import CorruptImage, InvalidData, InvalidOption, accuracy, load_data
from aacp.data import batches as batches_module
from aacp.data.batches import Batches
from aacp.data.splits import sampled
from aacp.zoo._torchvision import import_torchvision
from aacp.zoo.folders import MEAN, STD, image_folder

pytestmark = pytest.mark.slow


def torchvision_transforms() -> Any:
    import_torchvision()
    return importlib.import_module("torchvision.transforms.v2")


COLOURS = {"blue": (20, 30, 220), "green": (20, 200, 30), "red": (220, 20, 30)}


def write_image(file: Path, colour: tuple[int, int, int], size: tuple[int, int], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 35, (size[1], size[0], 3))
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((noise + colour).astype(np.uint8)).save(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three colours, ten training images and four test images of each, of many sizes."""
    for part, count in (("train", 10), ("val", 4)):
        for name, colour in COLOURS.items():
            for number in range(count):
                ending = ("jpg", "png", "JPEG")[number % 3]
                size = (40 + 7 * number, 90 - 5 * number)
                write_image(tmp_path / part / name / f"{number:02d}.{ending}", colour, size, number)
    (tmp_path / "train" / "red" / "notes.txt").write_text("not an image")
    return tmp_path


def test_a_network_trains_from_a_folder_to_the_right_answers(folder: Path) -> None:
    data: Any = load_data(f"imagefolder:{folder}", holdout=0.2)
    assert (len(data.train), len(data.holdout), len(data.test)) == (24, 6, 12)
    assert data.classes == ("blue", "green", "red")
    both: Any = data.all_training()
    assert (len(both), both.augment) == (30, True)
    network = nn.Sequential(nn.Conv2d(3, 4, 16, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    loader = data.train.loader(8, shuffle=True, workers=1)
    for _ in range(12):
        for images, labels in loader:
            assert images.shape == (8, 3, 224, 224)
            F.cross_entropy(network(images), labels).backward()
            optimiser.step()
            optimiser.zero_grad()
    assert accuracy(network, Batches.of(data.holdout)) == 1
    assert accuracy(network, Batches.of(data.test)) == 1


def test_every_file_is_read_once_with_the_label_of_its_folder(folder: Path) -> None:
    data: Any = image_folder(folder, holdout=0.2)
    files = [*data.train.files, *data.holdout.files]
    assert sorted(files) == sorted(
        file for file in (folder / "train").rglob("*") if file.suffix in {".jpg", ".png", ".JPEG"}
    )
    for part in (data.train, data.holdout, data.test):
        assert [file.parent.name for file in part.files] == [data.classes[label] for label in part.labels]
    assert sorted(data.holdout.labels.tolist()) == [0, 0, 1, 1, 2, 2]


def test_evaluation_repeats_itself_and_training_varies(folder: Path) -> None:
    data: Any = image_folder(folder, holdout=0.2)
    assert torch.equal(data.test[0][0], data.test[0][0])
    assert torch.equal(data.holdout[1][0], data.holdout[1][0])
    assert not torch.equal(data.train[0][0], data.train[0][0])


def test_the_same_seed_gives_the_same_order_and_crops(folder: Path) -> None:
    data: Any = image_folder(folder, size=32)
    one, again, other = (
        torch.cat([images for images, _ in data.train.loader(4, shuffle=True, workers=1, seed=seed)])
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_any_loader_takes_a_folder_and_any_mode_of_image(folder: Path) -> None:
    for number, mode in enumerate(("L", "P", "RGBA", "CMYK", "1")):
        name = folder / "val" / "red" / f"mode{number}.{'jpg' if mode == 'CMYK' else 'png'}"
        Image.new("RGB", (30, 30), (200, 10, 10)).convert(mode).save(name)
    data: Any = image_folder(folder, size=16)
    batches = list(DataLoader(data.test, batch_size=5))
    assert [tuple(images.shape) for images, _ in batches] == [(5, 3, 16, 16)] * 3 + [(2, 3, 16, 16)]


def test_an_item_is_the_middle_of_the_picture_normalised_as_torchvision_does(folder: Path) -> None:
    data: Any = image_folder(folder, size=32)
    v2 = torchvision_transforms()
    steps = [v2.Resize(37), v2.CenterCrop(32), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    oracle = v2.Compose([*steps, v2.Normalize(MEAN, STD)])
    for position, file in enumerate(data.test.files):
        expected = oracle(Image.open(file).convert("RGB"))
        difference = (data.test[position][0] - expected).abs() * torch.tensor(STD)[:, None, None] * 255
        assert difference.max() < 1.01, file  # the last bit of a byte


def test_random_crops_for_training_do_not_depend_on_the_number_of_workers(folder: Path) -> None:
    data: Any = image_folder(folder, size=16)
    epochs = []
    for workers, epoch in ((0, 1), (2, 1), (0, 2)):
        loader = DataLoader(data.train.as_bytes(7, epoch), 4, num_workers=workers)
        epochs.append(torch.cat([pixels for pixels, _ in loader]))
    assert epochs[0].dtype == torch.uint8
    assert torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0], epochs[2])


def test_a_folder_is_kept_as_bytes_or_streamed_with_the_same_images(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = image_folder(folder, size=16)
    expected = torch.stack([data.test[position][0] for position in range(12)])
    for keep, prepared in ((True, 1 << 30), (True, 0), (False, 0)):
        monkeypatch.setattr(batches_module, "MAX_PREPARED", prepared)
        batches = Batches.of(data.test, batch_size=5, keep=keep)
        assert (batches.is_streamed, batches.are_bytes) == (not keep, not prepared)
        assert torch.allclose(torch.cat(list(batches.inputs())), expected, atol=1e-5)
        assert torch.cat([labels for _, labels in batches]).tolist() == data.test.labels.tolist()
    assert Batches.of(data.train.unaugmented(), images=3, keep=False).images == 3


def test_a_number_of_images_is_held_out_evenly_and_apart_from_the_training_images(folder: Path) -> None:
    data: Any = image_folder(folder, holdout=9, seed=4)
    assert data.holdout.labels.bincount().tolist() == [3, 3, 3]
    assert not data.holdout.augment
    assert not set(data.holdout.files) & {*data.train.files, *data.test.files}
    assert len(data.train) == 21
    with pytest.raises(InvalidOption, match=r"hold-out of 30 examples is requested, but the training data has 30"):
        image_folder(folder, holdout=30)


def test_a_calibration_sample_of_a_folder_has_images_of_all_classes_and_is_not_augmented(folder: Path) -> None:
    data: Any = image_folder(folder, holdout=0)
    part: Any = sampled(data.train, 6, seed=1)
    assert part.labels.bincount().tolist() == [2, 2, 2]
    assert torch.equal(part[0][0], part[0][0])
    assert set(part.files) < set(data.train.files)


def spoil(file: Path, how: str) -> None:
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "truncated": whole[: len(whole) // 2], "text": b"no image at all"}[how])


@pytest.mark.parametrize("how", ["empty", "truncated", "text"])
@pytest.mark.parametrize("name", ["00.jpg", "01.png"])
def test_a_corrupt_image_is_named_and_rejected_or_skipped(folder: Path, how: str, name: str) -> None:
    corrupt = folder / "val" / "green" / name
    spoil(corrupt, how)
    with pytest.raises(CorruptImage, match=f"green/{name} cannot be read as an image"):
        Batches.of(load_data(f"imagefolder:{folder}").test)
    skipping: Any = load_data(f"imagefolder:{folder}", on_corrupt="skip").test
    position = list(skipping.files).index(corrupt)
    with pytest.warns(UserWarning, match=f"green/{name} cannot be read"):
        image, label = skipping[position]
    assert label == skipping.classes.index("green")
    assert torch.equal(image, skipping[position + 1][0])


def test_a_corrupt_image_is_named_in_one_line_by_a_worker_too(folder: Path) -> None:
    spoil(folder / "val" / "red" / "02.JPEG", "truncated")
    data: Any = image_folder(folder, size=16)
    with pytest.raises(CorruptImage) as caught:
        list(data.test.loader(4, workers=1))
    assert str(caught.value).startswith(str(folder / "val" / "red" / "02.JPEG"))
    assert "\n" not in str(caught.value)


def test_a_folder_without_one_readable_image_is_rejected_even_when_skipping(folder: Path) -> None:
    for file in (folder / "val").rglob("*.*"):
        spoil(file, "text")
    data: Any = image_folder(folder, on_corrupt="skip")
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(InvalidData, match="None of the 12"):
        data.test[0]


def test_positions_count_as_in_a_list(folder: Path) -> None:
    data: Any = image_folder(folder, size=16)
    assert torch.equal(data.test[-1][0], data.test[11][0])
    with pytest.raises(IndexError):
        data.test[12]


def test_folders_of_another_shape_are_rejected(folder: Path) -> None:
    with pytest.raises(InvalidData, match="contains no folder train"):
        load_data(f"imagefolder:{folder / 'train'}")
    (folder / "val" / "yellow").mkdir()
    with pytest.raises(InvalidData, match="yellow contains no JPEG or PNG file"):
        image_folder(folder)
    write_image(folder / "val" / "yellow" / "a.jpg", (200, 200, 20), (30, 30), 0)
    with pytest.raises(InvalidData, match="only one of them has yellow"):
        image_folder(folder)
    (folder / "empty" / "train").mkdir(parents=True)
    with pytest.raises(InvalidData, match="there are no class folders"):
        image_folder(folder / "empty")
    with pytest.raises(InvalidOption, match="Choose from refuse, skip"):
        image_folder(folder, on_corrupt="ignore")
