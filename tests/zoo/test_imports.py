import sys

import pytest

from aacp import UnknownData, UnknownModel
from aacp.zoo.imports import function_of, import_torchvision, module_of


def test_failures_are_told_in_the_words_of_who_asked() -> None:
    with pytest.raises(UnknownModel, match="no Python module 'no_such'"):
        module_of("no_such.module", UnknownModel)
    with pytest.raises(UnknownData, match=r"math has no function 'pi'. Name a function or class that returns the data"):
        function_of("math", "pi", "the data", UnknownData)
    with pytest.raises(UnknownData, match="math:sqrt failed with TypeError"):
        function_of("math", "sqrt", "the data", UnknownData)()


def test_torchvision_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UnknownData, match="torchvision is not installed"):
        import_torchvision(UnknownData)
