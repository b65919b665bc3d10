"""The layers of the package: imports go downward, public names exist, plain data never imports torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import aacp

SOURCE = Path(aacp.__file__).parent
FLOORS = [
    {"errors", "user_code", "values", "correlation", "acceleration", "version"},
    {"disk"},
    {"structure", "lane_runs", "channels", "coordinates", "space"},
    {"cost", "search", "runs"},
    {"modules", "torch_internals"},
    {"data"},
    {"zoo"},
    {"train"},
    {"graph"},
    {"repairs"},
    {"estimate"},
    {"accelerate"},
    {"artefact"},
    {"report", "bench", "latency"},
    {"pipeline"},
    {"commands", "cli"},
]
TORCHLESS = {
    "disk", "report", "errors", "user_code", "values", "correlation", "structure", "lane_runs", "channels",
    "coordinates", "space", "runs", "cost", "search",
}  # fmt: skip

NUMPY_ONLY = {f"latency/{name}.py" for name in ("calibration", "curves", "lookup", "pieces", "table", "timing")}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def floor(name: str) -> int:
    return next(level for level, rooms in enumerate(FLOORS) if name in rooms)


def imports(path: Path) -> set[str]:
    """The modules that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downward(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for module in imports(path):
        if module.startswith("aacp."):
            assert floor(room(module)) <= floor(here), f"{here} imports {module}"


def test_no_module_imports_itself_through_others() -> None:
    names = {".".join(["aacp", *path.relative_to(SOURCE).with_suffix("").parts]): path for path in FILES}
    left = {name: {module for module in imports(path) if module in names} for name, path in names.items()}
    while leaves := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in leaves:
            del left[name]
    assert not left


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_the_method_thinks_about_is_plain_data(path: Path) -> None:
    relative = path.relative_to(SOURCE)
    if relative.parts[0].removesuffix(".py") in TORCHLESS or str(relative) in NUMPY_ONLY:
        assert not {module.split(".")[0] for module in imports(path)} & {"torch", "lightning"}


def test_the_modules_that_predict_latency_import_nothing_that_needs_torch() -> None:
    for name in NUMPY_ONLY:
        found = {module for module in imports(SOURCE / name) if module.startswith("aacp.")}
        rooms = {room(module) for module in found if f"{module[5:].replace('.', '/')}.py" not in NUMPY_ONLY}
        assert rooms <= TORCHLESS, f"{name} imports {rooms - TORCHLESS}"


def test_every_public_name_is_defined_where_the_stub_says() -> None:
    for name in aacp.__all__:
        assert getattr(aacp, name).__name__ == name
    assert set(aacp.__all__) <= set(dir(aacp))
    with pytest.raises(AttributeError):
        aacp.nonsense  # noqa: B018


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_door_imports_accelerate(path: Path) -> None:
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here not in ("accelerate", "acceleration"):
        assert not [module for module in imports(path) if "accelerate" in module.split(".")]
