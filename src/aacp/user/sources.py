"""Sources: where a user's function or class is defined, in the form that run files record.

`package.module:name` can be imported again, so that another process can finish the run. Lambdas, local functions,
callable objects and whatever a script defines cannot: their source ends with `#` and a fingerprint of their code, by
which a resumed run notices a different function.
"""

from __future__ import annotations

import hashlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

FINGERPRINT_LENGTH = 8  # hexadecimal digits
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the text of an object, such as <function accuracy at 0x7f3a20>


def source_of(function: Callable[..., Any]) -> str:
    """Where a function or class is defined: `package.module:name`, with a fingerprint if it cannot be imported."""
    named = function if hasattr(function, "__qualname__") else type(function)
    module = str(named.__module__)
    name = str(named.__qualname__)
    found = getattr(sys.modules.get(module), name, None)
    if module != "__main__" and found is function:
        return f"{module}:{name}"
    return f"{module}:{name}#{_fingerprint(function)}"


def is_importable(source: str) -> bool:
    """Whether the function of a recorded source can be imported."""
    return "#" not in source


def short_name(source: str) -> str:
    """The bare name of a recorded function: `my.module:taylor` is `taylor`."""
    return source.partition("#")[0].rpartition(":")[2].rpartition(".")[2]


def _fingerprint(function: Callable[..., Any]) -> str:
    holder = function if hasattr(function, "__code__") or isinstance(function, type) else type(function)
    parts = vars(holder).values() if isinstance(holder, type) else (holder,)
    codes = [part.__code__ for part in parts if hasattr(part, "__code__")]
    defaults = [_text(getattr(part, "__defaults__", None)) for part in parts if hasattr(part, "__code__")]
    text = "\n".join([*(line for code in codes for line in _instructions(code)), *defaults])
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def _instructions(code: types.CodeType) -> Iterator[str]:
    """The code of a function as text that is the same in every process of one Python version."""
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)
        else:
            yield _text(constant)


def _text(value: object) -> str:
    """The text of a constant or a default, without what differs between processes: addresses, and the order of sets."""
    if type(value) is tuple:
        inner = ", ".join(map(_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({sorted(map(_text, value))})"
    return ADDRESS.sub("", repr(value))
