"""What is planted in a folder before a case: damaged files, files that are not files, links."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEEP = 100_000  # levels of nesting that no recursive parser survives
DIGITS = 5_000  # of an integer: more than Python converts


@dataclass(frozen=True)
class Plant:
    """A change at a path, with a name for reports."""

    name: str
    act: Callable[[Path], None]

    def __call__(self, place: Path) -> None:
        self.act(place)


def raw(content: bytes, name: str = "") -> Plant:
    """A file with these bytes."""
    return Plant(name or f"{content[:24]!r}", lambda place: _write(_cleared(place), content))


def text(content: str, name: str = "") -> Plant:
    return raw(content.encode(), name or content[:40])


def edited(*keys: str | int, value: Any) -> Plant:
    """A JSON file in which one value is replaced; the keys lead to it."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return Plant(f"{'.'.join(map(str, keys))} is {value!r}"[:60], lambda place: _edit(place, change))


def shortened(share: float) -> Plant:
    """The first part of a file."""
    return Plant(
        f"cut to {share:.0%}", lambda place: _change(place, lambda content: content[: int(share * len(content))])
    )


def flipped(position: float) -> Plant:
    """A file with one bit flipped, at this share of its length."""

    def flip(content: bytes) -> bytes:
        place = min(int(position * len(content)), len(content) - 1)
        return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]

    return Plant(f"bit flipped at {position:.0%}", lambda place: _change(place, flip))


def copied(source: str) -> Plant:
    """A copy of another file of the same folder."""
    return Plant(f"copy of {source}", lambda place: _write(_cleared(place), (place.parent / source).read_bytes()))


def linked(target: str) -> Plant:
    """A link to another place."""
    return Plant(f"link to {target}", lambda place: _cleared(place).symlink_to(target))


def large(size: int) -> Plant:
    """A file of zeros that takes no space on disk."""

    def plant(place: Path) -> None:
        with _cleared(place).open("wb") as file:
            file.truncate(size)

    return Plant(f"{size >> 30} GiB of zeros", plant)


def header(fields: dict[str, Any], content: bytes = b"") -> Plant:
    """A safetensors file with this header."""
    written = json.dumps(fields).encode()
    return raw(len(written).to_bytes(8, "little") + written + content, f"header {written[:60].decode()}")


def both(first: Plant, second: Plant) -> Plant:
    """One change after another."""

    def plant(place: Path) -> None:
        first(place)
        second(place)

    return Plant(second.name, plant)


NESTED = text("[" * DEEP + "]" * DEEP, "deeply nested")
HUGE_NUMBER = text('{"format": 1' + "0" * DIGITS + "}", f"an integer of {DIGITS} digits")
FIFO = Plant("a pipe", lambda place: os.mkfifo(_cleared(place)))  # nobody writes to it: opening it waits for ever
ENDLESS = Plant("link to /dev/zero", lambda place: _cleared(place).symlink_to("/dev/zero"))
FOLDER = Plant("a folder", lambda place: _cleared(place).mkdir())
LOOP = Plant("link to itself", lambda place: _cleared(place).symlink_to(place.name))
MISSING = Plant("removed", lambda place: _forget(place))


def _forget(place: Path) -> None:
    _cleared(place)


def _write(place: Path, content: bytes) -> None:
    place.write_bytes(content)


def _change(place: Path, change: Callable[[bytes], bytes]) -> None:
    place.write_bytes(change(place.read_bytes()))


def _edit(place: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(place.read_text())
    change(content)
    place.write_text(json.dumps(content))


def _cleared(place: Path) -> Path:
    """The path, with nothing there."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    return place
