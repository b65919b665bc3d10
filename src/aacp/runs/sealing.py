"""Sealed lines: a line of a log ends with a checksum of itself, so that a changed line is noticed.

A manifest lists how a log begins, but not the lines that were appended since. Their seals verify those.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from aacp.disk.parsing import parse_json

SEAL = "crc32"  # the field of a line that holds its checksum
SEALED = re.compile(rb'(\{.*), "crc32": "([0-9a-f]{8})"\}\n?')


def sealed(line: bytes, key: int = 0) -> bytes:
    """A line with the checksum of its content as the last field; only objects with fields can be sealed.

    Args:
        line: the line without its end.
        key: a number that lines of other runs are not sealed with.
    """
    if not line.startswith(b"{") or line == b"{}":
        return line
    return line[:-1] + b', "%s": "%08x"}' % (SEAL.encode(), zlib.crc32(line, key))


def opened(line: bytes, key: int = 0) -> Any:
    """The value of a line without its checksum; ValueError if it was changed, or sealed with another key."""
    value = parse_json(line)
    if isinstance(value, dict) and value.pop(SEAL, None) is not None:
        found = SEALED.fullmatch(line)
        if found is None or zlib.crc32(found[1] + b"}", key) != int(found[2], 16):
            raise ValueError("its checksum is not the one that it was written with")
    return value


def is_intact(line: bytes, key: int = 0) -> bool:
    """Whether a line is JSON and, if it is sealed, has the content that it was sealed with."""
    try:
        opened(line, key)
    except ValueError:
        return False
    return True
