"""Fuzzing: valid files that were changed at random, and how long a reader may take over them.

`AACP_FUZZ_EXAMPLES=1000 pytest tests/faults -k fuzz` tries more of them, other ones in every run.
"""

from __future__ import annotations

import copy
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import aacp

EXAMPLES = int(os.environ.get("AACP_FUZZ_EXAMPLES", "12"))
SECONDS = 180  # after which a reader of one small file counts as hanging, on a slow machine too
few = settings(
    max_examples=EXAMPLES,
    derandomize="AACP_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
fewer = settings(few, max_examples=max(3, EXAMPLES // 5))  # for readers that take long

# What a stranger may write in the place of any value of a JSON file.
WRONG_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**53, 2**63, 10**40, -(10**20), 0.5, -0.5, 1e-300, 1e308, "", "x", "0",
    "évil\n", "a:b", "../..", "/dev/zero", [], {}, [[]], [0], [None], {"a": 1}, {"": []}, ["x"] * 3, [[[[[[]]]]]],
)  # fmt: skip


class TooSlowError(Exception):
    """A reader took longer than it may."""


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Interrupt a block that takes too long."""

    def interrupt(*_: object) -> None:
        raise TooSlowError(f"a reader took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read_or_reject(read: Callable[[], object]) -> None:
    """Call a reader, which may return anything or raise one of our errors with two sentences, but nothing else."""
    with in_time():
        try:
            read()
        except aacp.AACPError as error:
            message = str(error)
            assert "\n" not in message, message
            assert len(message) < 2000, message
            assert message.rstrip().endswith((".", "?")), message


def any_bytes() -> st.SearchStrategy[bytes]:
    return st.binary(max_size=200)


@st.composite
def changed_bytes(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid file with a few changes: bytes replaced, removed, inserted, repeated, or the end cut off."""
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        # Headers are at the beginning and at the end of files: half of the changes are made there.
        near = draw(st.integers(0, min(len(content), 160)))
        place = draw(st.sampled_from([near, max(0, len(content) - near), draw(st.integers(0, len(content)))]))
        length = draw(st.integers(0, 9))
        change = draw(st.sampled_from(["replace", "remove", "insert", "repeat", "cut", "flip"]))
        if change == "replace":
            content[place : place + length] = draw(st.binary(min_size=length, max_size=length))
        elif change == "remove":
            del content[place : place + length]
        elif change == "insert":
            content[place:place] = draw(st.binary(max_size=9))
        elif change == "repeat":
            content[place:place] = content[place : place + 20 * length]
        elif change == "cut":
            del content[place:]
        elif place < len(content):
            content[place] ^= 1 << draw(st.integers(0, 7))
    return bytes(content)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all values inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in _places(item, (*path, key)))]


def _short_places(value: Any) -> list[tuple[Any, ...]]:
    """Some places of every depth and field: of long lists the first items, of several objects the first."""
    places = _places(value)
    kept = [path for path in places if all(step in (0, 1) or isinstance(step, str) for step in path)]
    return kept or places


def _wrong_values() -> st.SearchStrategy[Any]:
    """A wrong value of its own, which a second change may change."""
    return st.sampled_from(WRONG_VALUES).map(copy.deepcopy)


@st.composite
def changed_json(draw: st.DrawFn, valid: Any) -> Any:
    """A valid JSON value with one or two values replaced, removed or repeated."""
    value = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(_short_places(value)))
        if not path:
            return draw(_wrong_values())
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        change = draw(st.sampled_from(["replace", "replace", "replace", "remove", "repeat"]))
        if change == "replace":
            holder[path[-1]] = draw(_wrong_values())
        elif change == "remove":
            del holder[path[-1]]
        elif isinstance(holder, list):
            with suppress(IndexError):
                holder.append(holder[path[-1]])
    return value
