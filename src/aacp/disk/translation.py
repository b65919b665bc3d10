"""Errors of reading as the error class of a caller, which its documentation names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aacp.errors import AACPError, UnreadableFile


@contextmanager
def reading_as(kind: type[AACPError]) -> Iterator[None]:
    """Raise an UnreadableFile inside the block as another class, with the same sentences."""
    try:
        yield
    except UnreadableFile as error:
        raise kind(str(error)) from error
