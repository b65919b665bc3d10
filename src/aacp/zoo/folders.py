"""Folders of pictures as ImageNet has them: one folder for each class, JPEG or PNG files in it."""

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
from aacp.errors import CorruptPicture, InvalidData, InvalidOption
from aacp.zoo._torchvision import import_torchvision

ENDINGS = {".jpg", ".jpeg", ".png"}
TRAINING, TEST = ("train",), ("val", "validation", "test")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
PREFETCHED = 4  # batches each worker keeps ready

Pipeline = Callable[[Any], Tensor]  # from a picture of PIL's to what the network reads


@dataclass(frozen=True, eq=False)
class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Pictures on disk with a label each, read, cropped and normalised when they are asked for.

    A file that is no picture ends the reading with its name (`on_corrupt="refuse"`), or with a warning the next
    picture that can be read, of the same class unless it was the last of it, takes its place ("skip").
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
        index = range(len(self))[index]  # counts from the end and out of range, as a list does
        for step in range(len(self)):
            position = (index + step) % len(self)
            try:
                return self.pipeline(_picture(self.files[position])), int(self.labels[position])
            except CorruptPicture:
                if self.on_corrupt == "refuse":
                    raise
                file = self.files[position]
                warnings.warn(f"{file} cannot be read as a picture; the next one takes its place.", stacklevel=2)
        raise InvalidData(f"None of the {len(self)} pictures can be read. Check the folder.")

    def subset(self, index: Tensor) -> ImageFolder:
        """Those with the given positions, in that order."""
        files = tuple(self.files[position] for position in index.tolist())
        return replace(self, files=files, labels=self.labels[index])

    def joined(self, others: ImageFolder) -> ImageFolder:
        """These and others after them, cropped and normalised as these are."""
        return replace(self, files=self.files + others.files, labels=torch.cat([self.labels, others.labels]))

    def loader(
        self, batch_size: int, *, shuffle: bool = False, workers: int | None = None, seed: int = 0
    ) -> DataLoader[tuple[Tensor, int]]:
        """Batches that worker processes (one for each core unless told) prepare while the network computes."""
        count = usable_cores() if workers is None else workers
        return DataLoader(
            self,
            batch_size,
            shuffle,
            num_workers=count,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(seed),  # of the order, and of each worker's crops
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
    """Data of a folder with `train` and `val` (or `test`) in it; the hold-out is cropped as for evaluation."""
    root = Path(path)
    training = _read(_part(root, TRAINING), training_pipeline(size), on_corrupt)
    test = _read(_part(root, TEST), evaluation_pipeline(size), on_corrupt)
    if training.classes != test.classes:
        strange = ", ".join(sorted(set(training.classes) ^ set(test.classes)))
        raise InvalidData(
            f"Training and test pictures of {root} are not of the same classes: only one of them has {strange}. "
            "Give both the same class folders."
        )
    rest, held = split(training.labels, holdout, seed)
    held_out = replace(training.subset(held), pipeline=test.pipeline)
    return Data(training.subset(rest), held_out, test, f"imagefolder:{root}", training.classes)


def training_pipeline(size: int = 224) -> Pipeline:
    """A random part of the picture, resized to `size`, mirrored half of the time, normalised."""
    v2 = _transforms()
    return v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), *_normalised(v2)])  # type: ignore[no-any-return]


def evaluation_pipeline(size: int = 224) -> Pipeline:
    """The middle of the picture: its shorter side resized to `size` x 8 / 7 (256 for 224), then cropped, normalised."""
    v2 = _transforms()
    return v2.Compose([v2.Resize(round(size * 8 / 7)), v2.CenterCrop(size), *_normalised(v2)])  # type: ignore[no-any-return]


def _transforms() -> Any:
    import_torchvision(InvalidData)
    return importlib.import_module("torchvision.transforms.v2")


def _normalised(v2: Any) -> list[Any]:
    return [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


def _picture(file: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return picture.convert("RGB")
    except Exception as error:  # each format has failures of its own
        raise CorruptPicture(
            f"{file} cannot be read as a picture ({error}). Replace or delete it, or choose on_corrupt='skip'."
        ) from error


def _part(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise InvalidData(
        f"{root} has no folder {' or '.join(names)}. Put the pictures into {root / TRAINING[0]}/CLASS and "
        f"{root / TEST[0]}/CLASS."
    )


def _read(folder: Path, pipeline: Pipeline, on_corrupt: str) -> ImageFolder:
    """All pictures below a folder, by class and name; they are not opened yet."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    files = [_pictures_below(folder / name) for name in classes]
    empty = [name for name, found in zip(classes, files, strict=True) if not found]
    if empty or not classes:
        what = f"the class folder {empty[0]} holds no JPEG or PNG file" if empty else "there are no class folders"
        raise InvalidData(f"{folder} is no folder of pictures: {what}. Put each class into a folder of its own.")
    labels = [label for label, found in enumerate(files) for _ in found]
    return ImageFolder(tuple(chain(*files)), torch.tensor(labels), tuple(classes), pipeline, on_corrupt)


def _pictures_below(folder: Path) -> list[Path]:
    found = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sorted(file for file in found if file.suffix.lower() in ENDINGS and not file.name.startswith("."))
