"""Checks of pickles before they are read: nothing may stand for much more than it takes in the file.

A pickle may hold one tuple many times: forty tuples of two, each inside the next, are a few hundred bytes. Whatever
visits every part of them, such as the hash of a dictionary's key, then never ends. Unpickling itself is left to readers
that import nothing.
"""

from __future__ import annotations

import pickletools
from typing import Any, BinaryIO

MAX_TUPLE = 100_000  # parts of a tuple, with those of the tuples inside it
MAX_PARTS = 50_000_000  # parts of all values of a pickle, each counted as often as it is used
MAX_MEMO = 5_000_000  # the largest number that a value is remembered by: a reader makes a list of that length
TUPLES = {"EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE"}
GETS = {"GET", "BINGET", "LONG_BINGET"}
PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}


def require_bounded(file: BinaryIO) -> None:
    """Read the instructions of the next pickle of a file; a ValueError rejects what takes too much time or memory."""
    stack: list[int | None] = []  # the number of parts of each value; None is a mark
    memo: dict[int, int] = {}
    total = 0
    for opcode, argument, _ in pickletools.genops(file):
        name = opcode.name
        if name in GETS:
            stack.append(memo.get(_number(argument), 1))
        elif name in PUTS or name == "MEMOIZE":
            place = len(memo) if name == "MEMOIZE" else _number(argument)
            if place > MAX_MEMO:
                raise ValueError(f"it remembers a value as number {place:,}")
            memo[place] = _top(stack)
        elif name == "DUP":
            stack.append(_top(stack))
        else:
            parts = _popped(stack, opcode)
            size = 1 + sum(parts) if name in TUPLES else 1
            total += sum(parts)
            if size > MAX_TUPLE or total > MAX_PARTS:
                raise ValueError(f"its tuples have more parts than are read ({max(size, total):,})")
            stack += [None] if name == "MARK" else [size] * len(opcode.stack_after)


def _popped(stack: list[int | None], opcode: pickletools.OpcodeInfo) -> list[int]:
    """Take what an instruction uses off the stack, and return the sizes of it."""
    wanted = opcode.stack_before
    found: list[int] = []
    if pickletools.markobject in wanted:
        while stack and (size := stack.pop()) is not None:
            found.append(size)
        wanted = wanted[: wanted.index(pickletools.markobject)]
    elif opcode.name == "POP" and stack and stack[-1] is None:
        stack.pop()
        return found
    for _ in wanted:
        if not stack:
            raise ValueError("its instructions use values that it does not hold")
        found.append(stack.pop() or 1)
    return found


def _top(stack: list[int | None]) -> int:
    if not stack:
        raise ValueError("its instructions use values that it does not hold")
    return stack[-1] or 1


def _number(argument: Any) -> int:
    if not isinstance(argument, int):
        raise ValueError("its instructions are damaged")
    return argument
