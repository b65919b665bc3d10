"""The shape of the house: imports go downward, public names exist, plain data never imports torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import aacp

SOURCE = Path(aacp.__file__).parent
FLOORS = [
    {"errors", "lanes", "correlation", "acceleration", "version"},
    {"structure", "channels", "space"},
    {"cost", "search", "table", "runs"},
    {"modules"},
    {"data"},
    {"graph", "estimate", "train", "zoo", "accelerate"},
    {"artefact", "report", "bench", "latency"},
    {"pipeline"},
    {"commands", "cli"},
]
TORCHLESS = {"report", "errors", "lanes", "correlation", "structure", "channels", "space", "runs", "cost", "search"}


_TRAIN = ("checkpoint", "folding", "loop", "session", "step")
BEHIND_NO_DOOR_YET = {f"train/{name}.py" for name in _TRAIN}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def floor(name: str) -> int:
    return next(level for level, rooms in enumerate(FLOORS) if name in rooms)


def imports(path: Path, inside_functions: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if inside_functions else tree.body
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downward(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for module in imports(path, inside_functions=False):
        if module.startswith("aacp."):
            assert floor(room(module)) <= floor(here), f"{here} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_the_method_thinks_about_is_plain_data(path: Path) -> None:
    if path.relative_to(SOURCE).parts[0].removesuffix(".py") in TORCHLESS:
        assert not {module.split(".")[0] for module in imports(path, inside_functions=True)} & {"torch", "lightning"}


def test_every_public_name_is_defined_where_the_stub_says() -> None:
    for name in aacp.__all__:
        assert getattr(aacp, name).__name__ == name
    assert set(aacp.__all__) <= set(dir(aacp))
    with pytest.raises(AttributeError):
        aacp.nonsense  # noqa: B018


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_door_imports_accelerate(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here not in ("accelerate", "acceleration") and str(path.relative_to(SOURCE)) not in BEHIND_NO_DOOR_YET:
        assert not [module for module in imports(path, inside_functions=True) if "accelerate" in module.split(".")]
