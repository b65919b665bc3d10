"""Python modules and functions by name, as `package.module:function` on the command line."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aacp.errors import AACPError, MissingPackage, first_line
from aacp.user.options import nearest
from aacp.zoo._torchvision import MISMATCH, import_torchvision


def module_of(name: str, error: type[AACPError], known: Iterable[str] = ()) -> types.ModuleType:
    """A Python module by its dotted name; `error` is raised if it cannot be imported.

    Args:
        name: the name of the module.
        error: the class of error to raise.
        known: names that could be given instead of a module, such as "cifar10:PATH", for the message.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        near = nearest(missing.name, [*known, *(path.stem for path in Path.cwd().glob("*.py"))])
        raise error(
            f"There is no Python module {missing.name!r}. "
            + (f"Give {near}, run" if near else "Run")
            + " the command where it can be imported, or install it."
        ) from missing
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # a module may also call sys.exit, which must not end this process
        if MISMATCH in str(failure):
            import_torchvision()  # makes it importable for the second attempt
            return module_of(name, error, known)
        raise error(
            f"Importing {name} failed with {first_line(failure)}. Correct it, or name another module."
        ) from failure


def function_of(
    source: str, entry: str, returned: str, error: type[AACPError], known: Iterable[str] = ()
) -> Callable[[], Any]:
    """The function `entry` of the module `source`, which takes no arguments; its exceptions become `error`.

    Args:
        source: the dotted name of the module.
        entry: the name of the function or class in it.
        returned: what the function should return, for the message.
        error: the class of error to raise.
        known: names that could be given instead, as in `module_of`.
    """
    function = _found(source, entry, error, known)
    if not callable(function):
        near = _nearest(source, entry)
        example = f", such as {near}" if near else ""
        raise error(f"{source} has no function {entry!r}. Name a function or class that returns {returned}{example}.")
    return lambda: result_of(f"{source}:{entry}", function, error)


def named_object(name: str, error: type[AACPError]) -> Any:
    """Import an object that a user names as `package.module:NAME`."""
    source, _, entry = name.partition(":")
    found = _found(source, entry, error) if source and entry else None
    if found is None:
        example = _nearest(source, entry, lambda value: True) or "package.module:NAME"
        raise error(f"There is no {name}. Name an object of your own, such as {example}.")
    return found


def require_package(name: str, install: str) -> types.ModuleType:
    """Import an optional package; `install` is the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise MissingPackage(f"{name} is not installed. Install it with: {install}.") from missing


def named_function(name: str, arguments: str, error: type[AACPError]) -> Callable[..., Any]:
    """The function of `package.module:function`, to be called later with `arguments` (named in the message)."""
    source, _, entry = name.partition(":")
    function = _found(source, entry, error) if source and entry else None
    if not callable(function):
        example = _nearest(source, entry) or "package.module:function"
        raise error(f"{name} is not a function. Name a function of {arguments}, such as {example}.")
    found: Callable[..., Any] = function
    return found


def _nearest(source: str, entry: str, is_meant: Callable[[Any], bool] = callable) -> str:
    """The function of a module whose name is most like another, as `package.module:function`; empty if none is."""
    content = getattr(sys.modules.get(source), "__dict__", {})
    near = nearest(entry, [name for name, value in content.items() if is_meant(value)])
    return f"{source}:{near}" if near else ""


def _found(source: str, entry: str, error: type[AACPError], known: Iterable[str] = ()) -> Any:
    _reject_file(source, entry, error)
    with _current_folder_first():
        module = module_of(source, error, known)
        # A module may compute its attributes in a function of its own, which may fail.
        return result_of(f"{source}:{entry}", lambda: getattr(module, entry, None), error)


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Import from the current folder, so that "my_model:build" finds my_model.py there.

    Afterwards the folder stays importable for what the module imports later, but it is searched last: a file beside the
    user's module must not replace a package that aacp imports itself.
    """
    here = str(Path.cwd())
    before = list(sys.path)
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:  # the module may have changed the list
            sys.path.remove(here)
        if here not in before:
            sys.path.append(here)


def _reject_file(source: str, entry: str, error: type[AACPError]) -> None:
    """Reject the path of a file, and name the module that it contains."""
    path = Path(source)
    if path.suffix != ".py" and "/" not in source and not source.startswith("."):
        return
    outside = path.is_absolute() or ".." in path.parts
    name = path.name.removesuffix(".py").lstrip(".")
    module = name if outside else ".".join([*path.parent.parts, name])
    place = f", and run the command in {path.parent}" if outside else ""
    raise error(f"{source} is the path of a file, but a Python module is needed. Use {module}:{entry}{place}.")


def result_of(name: str, function: Callable[[], Any], error: type[AACPError]) -> Any:
    """The result of a function without arguments; any exception it raises becomes `error`."""
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # also SystemExit: a function that calls sys.exit(0) has not succeeded
        raise error(
            f"{name} failed with {first_line(failure)}. Correct it, or name another function without arguments."
        ) from failure
