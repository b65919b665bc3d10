"""The layers of the package: imports go downward, public names exist, plain data never imports torch."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import aacp

SOURCE = Path(aacp.__file__).parent
FLOORS = [
    {"errors", "version", "acceleration"},
    {"user"},
    {"disk"},
    {"channels"},
    {"cost"},
    {"runs"},
    {"search"},
    {"pytorch"},
    {"data"},
    {"zoo"},
    {"workers"},
    {"train"},
    {"graph"},
    {"repairs"},
    {"estimate"},
    {"accelerate"},
    {"artefact"},
    {"report", "bench", "latency"},
    {"pipeline"},
    {"contrib"},
    {"commands", "cli", "__main__"},
]
TORCHLESS = {"errors", "user", "disk", "channels", "runs", "cost", "search", "report"}

NUMPY_ONLY = {
    f"latency/{name}.py" for name in ("calibration", "curves", "judging", "lookup", "pieces", "table", "timing")
}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def floor(name: str) -> int:
    return next(level for level, rooms in enumerate(FLOORS) if name in rooms)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, those inside of others too; expressions hold no imports and are many more."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield node
            yield from statements(node)


@functools.cache
def imports(path: Path) -> set[str]:
    """The modules that a file imports, inside functions too."""
    found: set[str] = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def place(path: Path) -> str:
    """The first folder of a file, or the name of a module at the top."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_go_downward() -> None:
    upward = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in FILES
        for module in imports(path)
        if module.startswith("aacp.") and floor(room(module)) > floor(place(path))
    ]
    assert not upward


def test_no_module_imports_itself_through_others() -> None:
    names = {".".join(["aacp", *path.relative_to(SOURCE).with_suffix("").parts]): path for path in FILES}
    left = {name: {module for module in imports(path) if module in names} for name, path in names.items()}
    while leaves := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in leaves:
            del left[name]
    assert not left


def test_what_the_method_thinks_about_is_plain_data() -> None:
    plain = [path for path in FILES if place(path) in TORCHLESS or str(path.relative_to(SOURCE)) in NUMPY_ONLY]
    assert len(plain) > 50
    assert not [path for path in plain if {module.split(".")[0] for module in imports(path)} & {"torch", "lightning"}]


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


def test_only_the_door_imports_accelerate() -> None:
    others = [path for path in FILES if place(path) not in ("accelerate", "acceleration")]
    assert not [path for path in others for module in imports(path) if "accelerate" in module.split(".")]


# Functions and methods that open, write, rename, remove or lock files by themselves. `write_text` and `write_bytes` of
# a RunFolder have two arguments, those of a Path have one.
FILE_CALLS = set(
    "open fdopen read_text read_bytes write_text write_bytes touch unlink rmdir mkdir makedirs rmtree rename "
    "symlink_to hardlink_to truncate fsync flock lockf copyfile copytree load_file save_file safe_open fromfile tofile "
    "memmap savez mkdtemp mkstemp TemporaryDirectory TemporaryFile NamedTemporaryFile".split()
)
MODULE_CALLS = {
    "json": {"load", "dump"},
    "np": {"load", "save", "loadtxt", "genfromtxt"},
    "torch": {"load", "save"},
    "os": {"replace", "remove"},
    "shutil": {"move", "copy", "copy2"},
}
NAMES = FILE_CALLS.union(*MODULE_CALLS.values())
ALLOWED_FILE_CALLS = {
    "commands/border.py": {"NamedTemporaryFile"},  # the traceback of a mistake, in the folder of temporary files
    # Folders and files outside of all run folders, with names that nobody can guess, removed at the end.
    "commands/repeat.py": {"TemporaryFile"},
    "latency/runtimes/converted.py": {"TemporaryDirectory"},
    "latency/runtimes/ncnn.py": {"TemporaryDirectory"},
    "latency/runtimes/onnx_pieces.py": {"mkdtemp"},
    "latency/runtimes/onnxruntime.py": {"TemporaryDirectory"},
    "latency/runtimes/openvino.py": {"TemporaryDirectory"},
    "latency/runtimes/openvino_pieces.py": {"TemporaryDirectory"},
    "pipeline/finding.py": {"TemporaryDirectory"},
    "latency/resources.py": {"write_text"},  # a command to the kernel, in a file that Linux shows for this process
    # A program that is copied to devices without aacp, and never called here.
    "latency/devices/runner.py": {"open", "load", "dump", "fsync", "replace"},
    # Decoders of libraries, which read from a file that aacp.disk has opened.
    "zoo/pictures.py": {"open"},
    "zoo/weights.py": {"open", "load"},
    "zoo/digits.py": {"load"},  # a file of the package itself
    "zoo/pixel_cache.py": {"memmap"},  # the images of a cache are too large to be read as a whole
}


def file_calls(tree: ast.Module) -> set[str]:
    """The calls in a file that use the disk without aacp.disk."""
    own = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aacp.")
        for alias in node.names
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Attribute, ast.Name)):
            continue
        is_method = isinstance(node.func, ast.Attribute)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        if name not in NAMES:
            continue
        called_on = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        is_of_run_folder = name in ("write_text", "write_bytes") and is_method and len(node.args) == 2
        is_ours = not is_method and name in own
        if not (is_of_run_folder or is_ours) and (name in FILE_CALLS or name in MODULE_CALLS.get(called_on, ())):
            found.add(name)
    return found


def test_only_the_disk_package_opens_writes_and_removes_files() -> None:
    others = [path for path in FILES if place(path) != "disk"]
    found = {str(path.relative_to(SOURCE)): file_calls(parsed(path)) for path in others}
    forbidden = {name: calls - ALLOWED_FILE_CALLS.get(name, set()) for name, calls in found.items()}
    assert not {name: calls for name, calls in forbidden.items() if calls}


def test_calls_that_use_the_disk_are_recognised() -> None:
    allowed = (
        "from aacp.disk.reading import read_text\n"
        "read_text(path); folder.write_text('name', 'text'); text.replace('a', 'b'); json.dumps(1); np.load\n"
    )
    assert file_calls(ast.parse(allowed)) == set()
    others = "open(path); path.write_text('text'); os.replace(a, b); np.load(path); (a / b).unlink()\n"
    assert file_calls(ast.parse(others)) == {"open", "write_text", "replace", "load", "unlink"}
