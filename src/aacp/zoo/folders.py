"""Folders of images in the layout of ImageNet: one folder of JPEG or PNG files for each class."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aacp.data.devices import usable_cores
from aacp.data.splits import Data, split
from aacp.errors import CorruptImage, InvalidData, InvalidOption
from aacp.zoo._torchvision import import_torchvision

ENDINGS = {".jpg", ".jpeg", ".png"}
TRAINING = ("train",)  # the folder of training images
TEST = ("val", "validation", "test")  # possible names of the folder of test images
MEAN = (0.485, 0.456, 0.406)  # the mean of each channel on ImageNet
STD = (0.229, 0.224, 0.225)  # the standard deviation of each channel on ImageNet
PREFETCHED = 4  # batches that each worker prepares in advance

Pipeline = Callable[[Any], Tensor]  # from a PIL image to the input of the network


@dataclass(frozen=True, eq=False)
class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Labelled images on disk, read, cropped and normalised on access.

    If a file cannot be read as an image, an error names it (`on_corrupt="refuse"`); with "skip", a warning names it and
    the next readable image takes its place, which has the same class unless the file was the last one of its class.
    """

    files: tuple[Path, ...]
    labels: Tensor
    classes: tuple[str, ...]
    pipeline: Pipeline
    on_corrupt: str = "refuse"

    def __post_init__(self) -> None:
        if self.on_corrupt not in ("refuse", "skip"):
            raise InvalidOption(f"on_corrupt is {self.on_corrupt!r}. Choose refuse or skip.")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        index = range(len(self))[index]  # negative positions and IndexError, as in a list
        for step in range(len(self)):
            position = (index + step) % len(self)
            try:
                return self.pipeline(_image(self.files[position])), int(self.labels[position])
            except CorruptImage:
                if self.on_corrupt == "refuse":
                    raise
                file = self.files[position]
                warnings.warn(f"{file} cannot be read as an image; the next one takes its place.", stacklevel=2)
        raise InvalidData(f"None of the {len(self)} image files can be read. Check the folder.")

    def subset(self, index: Tensor) -> ImageFolder:
        """The images at the given positions, in that order."""
        files = tuple(self.files[position] for position in index.tolist())
        return replace(self, files=files, labels=self.labels[index])

    def joined(self, others: ImageFolder) -> ImageFolder:
        """These images followed by others, all cropped and normalised like these."""
        return replace(self, files=self.files + others.files, labels=torch.cat([self.labels, others.labels]))

    def loader(
        self, batch_size: int, *, shuffle: bool = False, workers: int | None = None, seed: int = 0
    ) -> DataLoader[tuple[Tensor, int]]:
        """A DataLoader whose worker processes prepare batches while the network computes.

        Args:
            batch_size: images per batch.
            shuffle: whether every epoch has a new order.
            workers: the number of worker processes, by default one per core.
            seed: the seed of the order and of each worker's random crops.
        """
        count = usable_cores() if workers is None else workers
        return DataLoader(
            self,
            batch_size,
            shuffle,
            num_workers=count,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(seed),
            prefetch_factor=PREFETCHED if count else None,
            persistent_workers=count > 0,
        )


def image_folder(
    path: str | os.PathLike[str],
    holdout: float = 0.1,
    seed: int = 0,
    on_corrupt: str = "refuse",
    size: int = 224,
) -> Data:
    """Data from a folder that contains `train` and `val` (or `test`). The hold-out is cropped as for evaluation.

    Args:
        path: the folder.
        holdout: the share of the training images that is held out for the search.
        seed: chooses which images are held out.
        on_corrupt: "refuse" or "skip" files that cannot be read, see ImageFolder.
        size: height and width of the input of the network.
    """
    root = Path(path)
    training = _read(_part(root, TRAINING), training_pipeline(size), on_corrupt)
    test = _read(_part(root, TEST), evaluation_pipeline(size), on_corrupt)
    if training.classes != test.classes:
        unmatched = ", ".join(sorted(set(training.classes) ^ set(test.classes)))
        raise InvalidData(
            f"Training and test images of {root} do not have the same classes: only one of them has {unmatched}. "
            "Give both the same class folders."
        )
    rest, held = split(training.labels, holdout, seed)
    held_out = replace(training.subset(held), pipeline=test.pipeline)
    return Data(training.subset(rest), held_out, test, f"imagefolder:{root}", training.classes)


def training_pipeline(size: int = 224) -> Pipeline:
    """Transforms for training: a random crop resized to `size`, a horizontal flip with probability 1/2, normalised."""
    v2 = _transforms()
    return v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), *_normalised(v2)])  # type: ignore[no-any-return]


def evaluation_pipeline(size: int = 224) -> Pipeline:
    """Transforms for evaluation: shorter side resized to `size` x 8 / 7 (256 for 224), centre crop, normalised."""
    v2 = _transforms()
    return v2.Compose([v2.Resize(round(size * 8 / 7)), v2.CenterCrop(size), *_normalised(v2)])  # type: ignore[no-any-return]


def _transforms() -> Any:
    import_torchvision(InvalidData)
    return importlib.import_module("torchvision.transforms.v2")


def _normalised(v2: Any) -> list[Any]:
    return [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


def _image(file: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except Exception as error:  # the decoder of each format raises its own exceptions
        raise CorruptImage(
            f"{file} cannot be read as an image ({error}). Replace or delete it, or choose on_corrupt='skip'."
        ) from error


def _part(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise InvalidData(
        f"{root} contains no folder {' or '.join(names)}. Put the images into {root / TRAINING[0]}/CLASS and "
        f"{root / TEST[0]}/CLASS."
    )


def _read(folder: Path, pipeline: Pipeline, on_corrupt: str) -> ImageFolder:
    """All image files below a folder, sorted by class and name, without opening them."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    files = [_images_below(folder / name) for name in classes]
    empty = [name for name, found in zip(classes, files, strict=True) if not found]
    if empty or not classes:
        reason = f"the class folder {empty[0]} contains no JPEG or PNG file" if empty else "there are no class folders"
        raise InvalidData(f"{folder} is not a folder of images: {reason}. Put each class into its own folder.")
    labels = [label for label, found in enumerate(files) for _ in found]
    return ImageFolder(tuple(chain(*files)), torch.tensor(labels), tuple(classes), pipeline, on_corrupt)


def _images_below(folder: Path) -> list[Path]:
    found = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sorted(file for file in found if file.suffix.lower() in ENDINGS and not file.name.startswith("."))
