"""Code of the user: where an exception was raised in it, for messages that name the function and the line."""

from __future__ import annotations

import functools
import re
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from traceback import FrameSummary, StackSummary, walk_tb
from typing import ParamSpec, TypeVar

from aacp.errors import AACPError, InvalidOption, UserCodeFailed, failing_as, first_line

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")  # where Python and its packages are installed
_LOADER_PROCESS = "in DataLoader worker process"  # in the message of every exception that torch passes on from one
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)  # a line of the text of a traceback
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def without_exit(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function of the library in which a `sys.exit` of the user's code is an error and does not end the program."""

    @functools.wraps(function)
    def called(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **named)
        except SystemExit as error:
            raise UserCodeFailed(
                f"Your code ended the program with {described_failure(error)}. Let it return, or raise an exception."
            ) from error

    return called


def users_function(name: str, arguments: str, failure: type[AACPError] = InvalidOption) -> AbstractContextManager[None]:
    """Report whatever a function of the user raises, except errors of aacp and failures of a device.

    Args:
        name: what the function is, for the message.
        arguments: what it is called with.
        failure: the error to raise.
    """
    return failing_as(failure, f"The {name} failed", f"It is called with {arguments}.", described_failure)


def user_frame(error: BaseException) -> FrameSummary | None:
    """The innermost line of the user's own code that an exception passed through, if it passed through any."""
    return _innermost_of_user(_frames(error))


def _frames(error: BaseException) -> list[FrameSummary]:
    return StackSummary.extract(walk_tb(error.__traceback__), lookup_lines=False)


def _innermost_of_user(frames: Sequence[FrameSummary]) -> FrameSummary | None:
    return next((frame for frame in reversed(frames) if _is_user_file(frame.filename)), None)


def is_from_user_code(error: BaseException) -> bool:
    """Whether the user's own code raised an exception or called what raised it, in this process or in a loader's."""
    return user_frame(error) is not None or isinstance(error, SystemExit) or _LOADER_PROCESS in str(error)


def described_failure(error: BaseException) -> str:
    """An exception in one line, with the function and the line of the user's code that raised it, if it is known."""
    if _LOADER_PROCESS in str(error):  # the message is the text of the traceback, which ends with the real message
        message = str(error).strip().splitlines()[-1].rstrip(". ")
        frames = [FrameSummary(file, int(line), name) for file, line, name in _FRAME.findall(str(error))]
    else:
        message = first_line(error)
        frames = _frames(error)
    frame = _innermost_of_user(frames)
    place = "" if frame is None else f" (in {frame.name}, {Path(frame.filename).name}, line {frame.lineno})"
    return f"{message}{place}"


def _is_user_file(name: str) -> bool:
    """True for a file that belongs neither to aacp, nor to Python, nor to an installed package."""
    if name.startswith("<"):  # code without a file, such as that of a dataclass
        return False
    path = Path(name)
    is_installed = any(part in _PACKAGE_FOLDERS for part in path.parts)
    return not is_installed and not any(path.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return (Path(__file__).parents[1], *(Path(paths[name]) for name in _LIBRARIES))
