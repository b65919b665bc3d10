import sys
from pathlib import Path

import pytest

from aacp import UnknownData, UnknownModel
from aacp.zoo._torchvision import import_torchvision
from aacp.zoo.imports import function_of, module_of, named_function


def test_a_failure_is_raised_as_the_error_of_the_caller() -> None:
    with pytest.raises(UnknownModel, match="no Python module 'no_such'"):
        module_of("no_such.module", UnknownModel)
    with pytest.raises(UnknownData, match=r"math has no function 'pi'. Name a function or class that returns the data"):
        function_of("math", "pi", "the data", UnknownData)
    with pytest.raises(UnknownData, match=r"no function 'sqrtt'\. Name a function .* the data, such as math:sqrt\.$"):
        function_of("math", "sqrtt", "the data", UnknownData)
    with pytest.raises(UnknownData, match="math:sqrt failed with TypeError"):
        function_of("math", "sqrt", "the data", UnknownData)()


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules can be imported, for the time of a test."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    return tmp_path


def test_a_module_that_cannot_be_imported_says_why(beside: Path) -> None:
    (beside / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UnknownData, match=r"broken failed with ZeroDivisionError: division by zero\. Correct it"):
        module_of("broken", UnknownData)


def test_a_module_may_import_a_torchvision_that_does_not_fit_torch(beside: Path) -> None:
    count = "import os\nos.environ['TRIES'] = str(int(os.environ.get('TRIES', '0')) + 1)\n"
    fails = "if os.environ['TRIES'] == '1':\n    raise RuntimeError('operator torchvision::nms does not exist')\n"
    (beside / "needs_vision.py").write_text(f"{count}{fails}def build():\n    return 7\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIES", "0")
        assert function_of("needs_vision", "build", "the network", UnknownModel)() == 7


def test_torchvision_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UnknownData, match="torchvision is not installed"):
        import_torchvision(UnknownData)


def test_a_function_of_the_users_is_found_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_metric.py").write_text("def score(network, batches):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_metric", raising=False)
    assert named_function("my_metric:score", "(network, batches)", UnknownData)(None, None) == 1.0


@pytest.mark.parametrize("name", ["math:pi", "math:", ":sqrt", "sqrt"])
def test_what_is_not_a_function_is_rejected_with_the_arguments_it_should_take(name: str) -> None:
    with pytest.raises(UnknownData, match=rf"{name} is not a function. Name a function of \(outputs, targets\)"):
        named_function(name, "(outputs, targets)", UnknownData)


def test_a_misspelt_function_gets_the_nearest_name() -> None:
    with pytest.raises(
        UnknownData, match=r"^math:sqr is not a function\. Name a function of \(x\), such as math:sqrt\.$"
    ):
        named_function("math:sqr", "(x)", UnknownData)


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("./sm", "Use sm:build."),
        ("sm.py", "Use sm:build."),
        (".sm", "Use sm:build."),
        ("nets/small/sm.py", "Use nets.small.sm:build."),
        ("../nets/sm.py", "Use sm:build, and run the command in ../nets."),
        ("/nets/sm", "Use sm:build, and run the command in /nets."),
    ],
)
def test_the_path_of_a_file_is_rejected_with_the_name_of_its_module(source: str, advice: str) -> None:
    expected = f"{source} is the path of a file, but a Python module is needed. {advice}"
    with pytest.raises(UnknownModel) as refused:
        function_of(source, "build", "the network", UnknownModel)
    assert str(refused.value) == expected
    with pytest.raises(UnknownData) as refused_score:
        named_function(f"{source}:build", "(network, batches)", UnknownData)
    assert str(refused_score.value) == expected
