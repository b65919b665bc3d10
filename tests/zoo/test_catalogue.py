"""The catalogue of named data sets agrees with what loads them, trains on them and reports about them."""

import subprocess
import sys

import pytest

from aacp import UnknownData, load_data
from aacp.train.recipe import RECIPES
from aacp.zoo.catalogue import CATALOGUE, OWN_DATA, data_title, named_data


@pytest.mark.parametrize("known", [*CATALOGUE.values(), OWN_DATA], ids=lambda known: known.usage)
def test_default_recipes_exist(known) -> None:
    assert {known.recipe, known.finetune_recipe} <= set(RECIPES)


def test_an_unknown_name_is_rejected_with_every_name_of_the_catalogue() -> None:
    with pytest.raises(UnknownData) as rejected:
        load_data("mnist")
    assert all(known.usage in str(rejected.value) for known in [*CATALOGUE.values(), OWN_DATA])


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("digits", "the digits"),
        ("cifar10:some/folder", "CIFAR-10"),
        ("imagefolder:/data/birds", "/data/birds"),
        ("imagefolder@32:birds", "birds"),
        ("mine:loaders", "mine:loaders"),
        ("digits:load", "digits:load"),
    ],
)
def test_a_report_calls_data_by_its_title(name: str, title: str) -> None:
    assert data_title(name) == title


def test_a_function_of_the_user_has_the_defaults() -> None:
    assert named_data("mine:digits") is OWN_DATA
    assert named_data("digits:mine") is OWN_DATA


def test_the_catalogue_is_read_without_torch() -> None:
    code = "import sys, aacp.zoo.catalogue; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
