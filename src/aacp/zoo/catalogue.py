"""The data sets that `load_data` knows by name, with what other modules need to know about each of them.

This table is plain data, so that the command line and the report can read it without importing torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedData:
    """A named data set: how to write it, what a report calls it, and its default recipes."""

    usage: str  # as it is written on the command line
    title: str | None = None  # the name in reports; None is the text after the colon
    recipe: str = "base"  # the name of the recipe that trains a network from scratch
    finetune_recipe: str = "finetune"  # the name of the recipe that fine-tunes a pruned network


CATALOGUE = {
    # The digits are few: training takes fewer steps, and a teacher knows little more than the labels.
    "digits": NamedData("digits", "the digits", "digits", "digits-finetune"),
    # Networks fit all training images of CIFAR-10 soon, so fine-tuning mixes images.
    "cifar10": NamedData("cifar10:PATH", "CIFAR-10", finetune_recipe="finetune-mixed"),
    "imagefolder": NamedData("imagefolder:PATH"),
    "tensors": NamedData("tensors:FILE"),
}
OWN_DATA = NamedData("package.module:function")  # the defaults for your own data
USAGES = [known.usage for known in CATALOGUE.values()]


def named_data(name: str) -> NamedData:
    """The entry of a name as `load_data` accepts it, such as "cifar10:data"; OWN_DATA for a function of the user."""
    source, colon, _ = name.partition(":")
    known = CATALOGUE.get("imagefolder" if source.startswith("imagefolder@") else source, OWN_DATA)
    # A module may be called like data that have no path: "digits:load" is a function of the user.
    return OWN_DATA if colon and ":" not in known.usage else known


def data_title(name: str) -> str:
    """What a report calls the data of this name: "CIFAR-10" for "cifar10:data"."""
    known = named_data(name)
    return name if known is OWN_DATA else known.title or name.partition(":")[2]
