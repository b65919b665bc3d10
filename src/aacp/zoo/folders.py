"""Folders of JPEG or PNG files: in the layout of ImageNet, with one folder for each class, or without labels."""

from __future__ import annotations

import functools
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aacp.data.memory import worker_count
from aacp.data.seeding import derived
from aacp.data.splits import Data, Holdout, split
from aacp.errors import CorruptImage, InvalidData
from aacp.user.options import require_known
from aacp.user.values import path_text
from aacp.zoo.listing import ImagePaths, is_flat, list_flat, list_images
from aacp.zoo.pictures import centred_crop, random_crop
from aacp.zoo.pixel_cache import PixelCache

TRAINING = ("train",)  # the folder of training images
TEST = ("val", "validation", "test")  # possible names of the folder of test images
IMAGE_SIZE = 224  # height and width of the input of most networks for ImageNet
MEAN = (0.485, 0.456, 0.406)  # the mean of each channel on ImageNet
STD = (0.229, 0.224, 0.225)  # the standard deviation of each channel on ImageNet


@dataclass(frozen=True, eq=False)
class ImageFolder(Dataset[Any]):
    """Images on disk, read, cropped and normalised on access; its items are (image, label), or images without labels.

    If a file cannot be read as an image, an error names it (`on_corrupt="refuse"`); with "skip", a warning names it and
    the next readable image takes its place, which has the same class unless the file was the last one of its class.

    Args:
        files: the paths of the images.
        labels: the label of each image; zeros if the images have none.
        classes: the name of each label; empty if the images have none.
        size: height and width of the input of the network.
        augment: True crops and flips at random, for training; False takes the middle of the image.
        on_corrupt: "refuse" or "skip".
        cache: the folder of decoded images, if they are kept on disk; random crops are not.
    """

    files: ImagePaths
    labels: Tensor
    classes: tuple[str, ...]
    size: int = IMAGE_SIZE
    augment: bool = False
    on_corrupt: str = "refuse"
    cache: Path | None = None

    def __post_init__(self) -> None:
        require_known("on_corrupt", self.on_corrupt, ("refuse", "skip"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]  # negative positions and IndexError, as in a list
        pixels, label = self.decoded(index, int(torch.randint(1 << 62, ())) if self.augment else None)
        image = self.normalised(pixels[None])[0].contiguous()
        return (image, label) if self.is_labelled else image

    @property
    def is_labelled(self) -> bool:
        """Whether the images have labels."""
        return bool(self.classes)

    @property
    def bytes_per_image(self) -> int:
        """The bytes of a decoded image."""
        return 3 * self.size**2

    def decoded(self, index: int, seed: int | None) -> tuple[Tensor, int]:
        """An image as bytes of shape (size, size, 3) and its label; with a seed, cropped and flipped at random."""
        for step in range(len(self)):
            position = (index + step) % len(self)
            file = self.files[position]
            try:
                pixels = centred_crop(file, self.size) if seed is None else random_crop(file, self.size, seed)
                return pixels, int(self.labels[position])
            except CorruptImage:
                if self.on_corrupt == "refuse":
                    raise
                warnings.warn(f"{file} cannot be read as an image; the next one takes its place.", stacklevel=2)
        raise InvalidData(f"None of the {len(self)} image files can be read. Check the folder.")

    def as_bytes(self, *seeds: int) -> Dataset[tuple[Tensor, int]]:
        """The images as bytes, from the cache if there is one; random crops follow from the seeds and the position."""
        if self.cache is None or self.augment:
            return DecodedImages(self, seeds)
        return PixelCache(self.cache).read(self.identity(), DecodedImages(self, ()), self.labels)

    def normalised(self, pixels: Tensor) -> Tensor:
        """Bytes (n, height, width, 3) as inputs (n, 3, height, width) on the same device."""
        shift, scale = _shift_and_scale(pixels.device)
        inputs = torch.addcmul(shift, pixels.float(), scale).permute(0, 3, 1, 2)
        return inputs if inputs.is_cuda else inputs.contiguous()  # GPUs are faster with the channels last

    def identity(self) -> dict[str, Any]:
        """What distinguishes these images from others, without decoding them."""
        crop = "random" if self.augment else "centre"
        return {"files": self.files.digest(), "images": len(self), "size": self.size, "crop": crop}

    def unaugmented(self) -> ImageFolder:
        """The same images, cropped as for evaluation."""
        return replace(self, augment=False)

    def subset(self, index: Tensor) -> ImageFolder:
        """The images at the given positions, in that order."""
        return replace(self, files=self.files.subset(index.numpy()), labels=self.labels[index])

    def joined(self, others: ImageFolder) -> ImageFolder:
        """These images followed by others, all cropped and normalised like these."""
        labels = torch.cat([self.labels, others.labels])
        return replace(self, files=self.files.joined(others.files), labels=labels)

    def loader(
        self, batch_size: int, *, shuffle: bool = False, workers: int | None = None, seed: int = 0
    ) -> DataLoader[Any]:
        """A DataLoader whose worker processes prepare batches while the network computes.

        Args:
            batch_size: images per batch.
            shuffle: whether every epoch has a new order.
            workers: the number of worker processes, by default one per core.
            seed: the seed of the order and of each worker's random crops.
        """
        count = worker_count(len(self)) if workers is None else workers
        return DataLoader(
            self,
            batch_size,
            shuffle,
            num_workers=count,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(seed),
            persistent_workers=count > 0,
        )


@dataclass(frozen=True, eq=False)
class DecodedImages(Dataset[tuple[Tensor, int]]):
    """The images of a folder as bytes of shape (size, size, 3), with their labels.

    Random crops follow from `seeds` and the position of the image: they do not depend on the number of processes.
    """

    folder: ImageFolder
    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.folder.decoded(index, derived(*self.seeds, index) if self.folder.augment else None)


def image_folder(
    path: str | os.PathLike[str],
    holdout: Holdout = None,
    seed: int = 0,
    on_corrupt: str = "refuse",
    size: int = IMAGE_SIZE,
    cache: str | os.PathLike[str] | None = None,
) -> Data:
    """Data from a folder that contains `train` and `val` (or `test`), or images without labels.

    Images that lie directly in the folder, without class folders, have no labels and are split into three parts. So do
    those that lie directly in `train` and `val`. The hold-out is cropped as for evaluation.

    Args:
        path: the folder.
        holdout: the part of the training images that is held out for the search: a share, a number, or None for a tenth
            and at most 5,000.
        seed: chooses which images are held out.
        on_corrupt: "refuse" or "skip" files that cannot be read, see ImageFolder.
        size: height and width of the input of the network.
        cache: a folder for decoded images, which later passes and commands read instead of the files.
    """
    root = Path(path)
    if not root.is_dir():
        raise InvalidData(f"There is no folder {root}. Give a folder of images, or one that contains train and val.")
    place = None if cache is None else Path(path_text("cache", cache))
    source = "imagefolder" if size == IMAGE_SIZE else f"imagefolder@{size}"
    if is_flat(root):
        return Data.of(_read(root, size, on_corrupt, place), holdout=holdout, seed=seed, name=f"{source}:{root}")
    training = _read(_part(root, TRAINING), size, on_corrupt, place)
    test = _read(_part(root, TEST), size, on_corrupt, place)
    if training.is_labelled != test.is_labelled:
        raise InvalidData(
            f"Only one of {training.files.root} and {test.files.root} has class folders. Give both class folders, or "
            "put the images of both directly into these folders, without labels."
        )
    if training.classes != test.classes:
        unmatched = ", ".join(sorted(set(training.classes) ^ set(test.classes)))
        raise InvalidData(
            f"Training and test images of {root} do not have the same classes: only one of them has {unmatched}. "
            "Give both the same class folders."
        )
    rest, held = split(training.labels, holdout, seed)
    train = replace(training.subset(rest), augment=training.is_labelled)
    return Data(train, training.subset(held), test, f"{source}:{root}", training.classes)


@functools.cache  # a copy to a GPU would wait for all work that is queued there
def _shift_and_scale(device: torch.device) -> tuple[Tensor, Tensor]:
    """What normalisation adds to each channel, and what it multiplies bytes by before that."""
    std = torch.tensor(STD)
    return (-torch.tensor(MEAN) / std).to(device), (1 / (255 * std)).to(device)


def _part(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise InvalidData(
        f"{root} contains no folder {' or '.join(names)}. Put the images into {root / TRAINING[0]}/CLASS and "
        f"{root / TEST[0]}/CLASS; images without labels lie directly in {root}, without folders."
    )


def _read(folder: Path, size: int, on_corrupt: str, cache: Path | None) -> ImageFolder:
    """All images below a folder, cropped as for evaluation; those that lie directly in it have no labels."""
    if is_flat(folder):
        flat = list_flat(folder)
        return ImageFolder(flat, torch.zeros(len(flat), dtype=torch.int64), (), size, False, on_corrupt, cache)
    files, labels, classes = list_images(folder)
    return ImageFolder(files, torch.from_numpy(labels), classes, size, False, on_corrupt, cache)
