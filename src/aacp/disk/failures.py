"""The errors of the system at writing, as sentences."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aacp.errors import AACPError, DiskError

REPEAT = "Check the disk and the path, and repeat the command: what was complete is unchanged."
NOT_ALLOWED = "Allow writing there, or choose another folder: what was complete is unchanged."
MAKE_ROOM = "Make room on the disk, and repeat the command: what was complete is unchanged."
REMEDIES = {
    errno.ENOSPC: MAKE_ROOM,
    errno.EDQUOT: MAKE_ROOM,
    errno.EFBIG: MAKE_ROOM,
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EROFS: NOT_ALLOWED,
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ELOOP: "Replace the link by a file or folder of its own, or choose another folder.",
    errno.ENOTDIR: "Choose a folder that exists or can be created.",
    errno.EISDIR: "A folder stands in the place of the file: move it away, or choose another folder.",
}


@contextmanager
def writing_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise errors of the system inside the block as a DiskError that names the path."""
    try:
        yield
    except AACPError:
        raise
    except OSError as error:
        words = "a link stands in its place" if error.errno == errno.ELOOP else error.strerror or str(error)
        remedy = REMEDIES.get(error.errno or 0, REPEAT)
        raise DiskError(f"{shown_path(path)} cannot be written: {words}. {remedy}") from error


def absolute(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a place to write to; one that no system accepts is rejected."""
    text = os.fspath(path)
    try:
        if b"\0" in os.fsencode(text):
            raise ValueError("it holds a NUL character")
    except ValueError as error:
        raise DiskError(f"{text!r} is not a path: {error}. Choose another name.") from None
    return Path(os.path.abspath(text))


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path for a message, shortened if it is longer than any system allows."""
    text = os.fspath(path)
    return text if len(text) <= 300 else f"{text[:150]}...{text[-100:]}"
