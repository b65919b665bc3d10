"""Reading: the only place that opens files to read them.

Only regular files are read, so that a pipe, a device or a folder in the place of a file is an error and not a wait.
Every error is an UnreadableFile with two sentences. What to do is the caller's second sentence, or a general one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from aacp.disk.failures import shown_path
from aacp.disk.parsing import parse_json
from aacp.errors import AACPError, DamagedFile, MissingFile, UnreadableFile

AnyPath = str | os.PathLike[str]

MAX_BYTES = 1 << 34  # 16 GiB: of any file that is read as a whole
MAX_TEXT = 1 << 27  # 128 MiB: of a file of text or JSON
MAX_LINE = 1 << 24  # 16 MiB: of one line of a log
CHUNK = 1 << 20
NAME_ANOTHER = "Check the path, or give another file."
RESTORE = "Restore the file from a copy, or write it again."


@contextmanager
def open_file(path: AnyPath, remedy: str = NAME_ANOTHER) -> Iterator[BinaryIO]:
    """A regular file, opened for reading. Errors of the system, also later ones, are raised as UnreadableFile.

    Args:
        path: the file; links are followed.
        remedy: the second sentence of an error.
    """
    with reading_errors(path, remedy), os.fdopen(_regular(path), "rb") as file:
        yield file


def read_bytes(path: AnyPath, remedy: str = RESTORE, limit: int = MAX_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes."""
    with open_file(path, remedy) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DamagedFile(f"{path} has {size:,} bytes, but at most {limit:,} are read. {remedy}")
        try:
            content = file.read(size)  # no more, since memory is reserved for all that is requested
            while len(content) <= limit and (piece := file.read(CHUNK)):  # a file of /proc, or a log that has grown
                content += piece
        except MemoryError:
            raise DamagedFile(f"{path} has {size:,} bytes, which do not fit into memory. {remedy}") from None
        if len(content) > limit:
            raise DamagedFile(f"{path} has more than {limit:,} bytes. {remedy}")
        return content


def read_text(path: AnyPath, limit: int = MAX_TEXT) -> str:
    """The content of a file of text in UTF-8."""
    try:
        return read_bytes(path, RESTORE, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path} is damaged: it is not UTF-8 text at byte {error.start}. {RESTORE}") from None


def read_json(path: AnyPath, remedy: str = RESTORE, limit: int = MAX_TEXT) -> Any:
    """The value in a JSON file: bounded in size and depth, and without NaN, infinity and numbers of endless digits."""
    content = read_bytes(path, remedy, limit)
    try:
        return parse_json(content)
    except (ValueError, MemoryError) as error:
        raise DamagedFile(f"{path} is damaged: {error or 'it does not fit into memory'}. {remedy}") from None


def read_json_lines(path: AnyPath, remedy: str = RESTORE, parse: Callable[[bytes], Any] = parse_json) -> Iterator[Any]:
    """The values of a log, one line of JSON each, read one at a time.

    An incomplete last line, left by a crash, is skipped.

    Args:
        path: the log.
        remedy: the second sentence of an error.
        parse: the value of a line; it raises ValueError with a reason for a damaged line.
    """
    with open_file(path, remedy) as file:
        number = 0
        while (line := file.readline(MAX_LINE + 1)).endswith(b"\n"):
            number += 1
            try:
                yield parse(line)
            except ValueError as error:
                raise DamagedFile(f"Line {number} of {path} is damaged: {error}. {remedy}") from None
        if len(line) > MAX_LINE:
            raise DamagedFile(f"Line {number + 1} of {path} has more than {MAX_LINE:,} bytes. {remedy}")


def sha256_of(path: AnyPath, length: int = sys.maxsize) -> str:
    """The SHA-256 of a file, or of its first bytes, in hexadecimal digits."""
    return str(file_hash(path, length).hexdigest())


def file_hash(path: AnyPath, length: int) -> Any:
    """The running SHA-256 of the first bytes of a file, read in pieces; more bytes can be added to it."""
    found = hashlib.sha256()
    with open_file(path, RESTORE) as file:
        while length > 0 and (piece := file.read(min(CHUNK, length))):
            found.update(piece)
            length -= len(piece)
    return found


def _regular(path: AnyPath) -> int:
    """The descriptor of a regular file. Opening never waits, not even for the other end of a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a NUL character, or half of a surrogate pair
        raise OSError(errno.EINVAL, f"the system does not accept this path ({error})") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise _NotRegularError(kind_of(mode))


def kind_of(mode: int) -> str:
    """What something on disk is, by its mode, with an article."""
    kinds = {
        stat.S_ISDIR: "a folder",
        stat.S_ISLNK: "a link",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISSOCK: "a socket",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }
    return next((words for is_kind, words in kinds.items() if is_kind(mode)), "a file")


class _NotRegularError(Exception):
    """The path leads to something other than a regular file."""


@contextmanager
def reading_errors(path: AnyPath, remedy: str = NAME_ANOTHER) -> Iterator[None]:
    """Turn errors of the system inside the block into an UnreadableFile."""
    try:
        yield
    except AACPError:
        raise
    except _NotRegularError as error:
        raise UnreadableFile(f"{path} is {error}, not a file. {remedy}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"There is no file {shown_path(path)}. {remedy}") from None
    except OSError as error:
        if error.errno is None:  # raised by a library that reads the content, for instance Pillow
            raise
        raise UnreadableFile(f"{shown_path(path)} cannot be read: {error.strerror}. {remedy}") from error


@contextmanager
def reading_as(kind: type[AACPError]) -> Iterator[None]:
    """Raise an UnreadableFile inside the block as another class, with the same sentences."""
    try:
        yield
    except UnreadableFile as error:
        raise kind(str(error)) from error
