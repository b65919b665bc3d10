"""Data by name: the digits, CIFAR-10, folders of pictures, or a function of the user's."""

from __future__ import annotations

from dataclasses import replace

from aacp.data.splits import UNNAMED, Data
from aacp.errors import UnknownData
from aacp.zoo.cifar10 import cifar10
from aacp.zoo.digits import digits
from aacp.zoo.folders import image_folder
from aacp.zoo.imports import function_of

NAMES = "digits, cifar10:PATH, imagefolder:PATH, or package.module:function for your own"


def load_data(name: str, *, holdout: float = 0.1, seed: int = 0, on_corrupt: str = "refuse") -> Data:
    """The data of a name; `holdout` of its training pictures, the same ones for the same seed, are for the search.

    A function of the user's returns `Data`, or training and test data (data sets or loaders) without a hold-out.
    Of pictures in folders, those that cannot be read are named and, with `on_corrupt`, refused or skipped.
    """
    source, separator, place = name.partition(":")
    if name == "digits":
        return digits(holdout, seed)
    if not separator or not source or not place:
        raise UnknownData(f"{name!r} is not a name of data. Write {NAMES}.")
    if source == "cifar10":
        return cifar10(place, holdout, seed)
    if source == "imagefolder":
        return image_folder(place, holdout, seed, on_corrupt)
    return _from_user(source, place, holdout, seed)


def _from_user(source: str, entry: str, holdout: float, seed: int) -> Data:
    name = f"{source}:{entry}"
    found = function_of(source, entry, "the data", UnknownData)()
    if isinstance(found, Data):
        return replace(found, name=name) if found.name == UNNAMED else found
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise UnknownData(
            f"{name} returned a {type(found).__name__}, neither aacp.Data nor a pair. Return (training, test) data."
        )
    train, test = found
    return Data.of(train, test, holdout=holdout, seed=seed, name=name)
