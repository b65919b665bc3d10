"""Data by name: the digits, CIFAR-10, folders of images, files of tensors, or the result of your function."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from torch.utils.data import DataLoader, Dataset

from aacp.data.splits import UNNAMED, Data, Holdout
from aacp.errors import InvalidOption, UnknownData
from aacp.user.options import advice
from aacp.user.values import checked_holdout, seed_number, shown
from aacp.zoo.catalogue import OWN_DATA, USAGES
from aacp.zoo.cifar10 import cifar10
from aacp.zoo.digits import digits
from aacp.zoo.folders import IMAGE_SIZE, image_folder
from aacp.zoo.imports import function_of
from aacp.zoo.tensor_files import tensor_file

MAX_IMAGE_SIZE = 8192  # pixels of each side of an image that a network reads


def load_data(
    name: str,
    *,
    holdout: Holdout = None,
    seed: int = 0,
    on_corrupt: str = "refuse",
    cache: str | os.PathLike[str] | None = None,
) -> Data:
    """Data by name, split into training data, hold-out and test data.

    To add a data set, write a function without arguments and name it as `package.module:function`. It returns a `Data`,
    or a pair (training, test) of data sets, loaders or tensors, from which `Data.of` takes the hold-out. A data set, a
    loader or a tensor alone is split into all three parts.

    Args:
        name: "digits", "cifar10:PATH", "imagefolder:PATH", "tensors:FILE" or "package.module:function". Images of
            a folder have 224 x 224 pixels, or those of "imagefolder@32:PATH" 32 x 32.
        holdout: the part of the training data that is held out for the search: a share below 1, a whole number of
            examples, or None for a tenth and at most 5,000.
        seed: chooses which examples are held out.
        on_corrupt: what to do with an image file that cannot be read: "refuse" raises an error, "skip" warns and uses
            the next one.
        cache: a folder for decoded images of "imagefolder:PATH", which later passes and commands read instead.
    """
    seed = seed_number(seed)
    holdout = checked_holdout(holdout)
    source, separator, place = name.partition(":") if isinstance(name, str) else ("", "", "")
    is_folder = source.partition("@")[0] == "imagefolder"
    if cache is not None and not is_folder:
        raise InvalidOption(
            f"A cache of decoded images is for imagefolder:PATH, and {name} would ignore it. Leave the cache out."
        )
    if isinstance(name, str) and name == "digits":
        return digits(holdout, seed)
    if not separator or not source or not place:
        known = advice(name, USAGES, f", or {OWN_DATA.usage} for your own")
        raise UnknownData(f"{shown(name)} is not the name of a data set. {known}")
    if source == "cifar10":
        return cifar10(place, holdout, seed)
    if is_folder:
        return image_folder(place, holdout, seed, on_corrupt, _image_size(source), cache)
    if source == "tensors":
        return tensor_file(place, holdout, seed)
    return _from_user(source, place, holdout, seed)


def _image_size(source: str) -> int:
    """The height and width that "imagefolder@32" requests."""
    _, separator, size = source.partition("@")
    if not separator:
        return IMAGE_SIZE
    if not size.isdecimal() or len(size) > 9 or not 1 <= int(size) <= MAX_IMAGE_SIZE:
        raise UnknownData(
            f"{shown(source)} has no size of images from 1 to {MAX_IMAGE_SIZE:,} pixels after the @. Write "
            "imagefolder@32:PATH."
        )
    return int(size)


def _from_user(source: str, entry: str, holdout: Holdout, seed: int) -> Data:
    name = f"{source}:{entry}"
    found = function_of(source, entry, "the data", UnknownData, USAGES)()
    if isinstance(found, Data) and holdout is not None:
        raise InvalidOption(
            f"{name} returns data with its own hold-out, and a hold-out of {holdout} would be ignored. Leave it out, "
            "or return (training, test)."
        )
    if isinstance(found, Data):
        return replace(found, name=name) if found.name == UNNAMED else found
    if isinstance(found, (torch.Tensor, Dataset, DataLoader)):
        return Data.of(found, holdout=holdout, seed=seed, name=name)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise UnknownData(
            f"{name} returned a {type(found).__name__}, which is neither aacp.Data nor a pair. Return aacp.Data, "
            "(training, test), or one data set, loader or tensor to be split."
        )
    train, test = found
    return Data.of(train, test, holdout=holdout, seed=seed, name=name)
