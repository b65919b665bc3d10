"""Sealed lines: a line of a log ends with a checksum of itself, so that a changed line is noticed.

A manifest lists how a log begins, but not the lines that were appended since. Their seals verify those.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

SEAL = "crc32"  # the field of a line that holds its checksum
_SEALED = re.compile(rb'^(\{.*), "crc32": "([0-9a-f]{8})"\}$')


def sealed(line: bytes) -> bytes:
    """A line with the checksum of its content as the last field; only objects with fields can be sealed."""
    if not line.startswith(b"{") or line == b"{}":
        return line
    return line[:-1] + b', "%s": "%08x"}' % (SEAL.encode(), zlib.crc32(line))


def is_intact(line: bytes) -> bool:
    """Whether a line is JSON and, if it is sealed, has the content that it was sealed with."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    found = _SEALED.match(line)
    if found is None:
        return not isinstance(record, dict) or SEAL not in record
    return zlib.crc32(found[1] + b"}") == int(found[2], 16)


def unsealed(record: Any) -> Any:
    """The record of a line without its checksum."""
    if isinstance(record, dict):
        record.pop(SEAL, None)
    return record
