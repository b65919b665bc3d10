"""JSON from bytes that anybody may have written: limits are checked before anything large or deep is built."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 64  # levels of lists and objects inside each other
MAX_DIGITS = 60  # digits in a row; states of random generators have 39
MAX_VALUES = 20_000_000  # commas, which bound the number of values and so the memory
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
ONE_KIND = bytes.maketrans(b"{}", b"[]")
ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")
TOO_MANY_DIGITS = b"0" * (MAX_DIGITS + 1)


def parse_json(content: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises ValueError, with a reason that fits into a sentence, for everything else: other encodings, text that is not
    JSON, values nested too deeply, numbers that are too long, NaN and infinity, characters that no text can hold.
    """
    if not _is_evidently_within_limits(content):
        _require_limits(_without_strings(content))
    try:
        value = DECODER.decode(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    _require_printable(content, value)
    return value


def _is_evidently_within_limits(content: bytes) -> bool:
    """Whether even the text with its strings keeps the limits: a quick look that is enough for the lines of a log."""
    levels = content.count(b"[") + content.count(b"{")
    return levels <= MAX_DEPTH and len(content) <= MAX_VALUES and not _has_long_number(content)


def _has_long_number(content: bytes) -> bool:
    """Whether there are too many digits in a row. Searching for one constant is ten times faster than an expression."""
    return TOO_MANY_DIGITS in content.translate(ONE_DIGIT)


def _require_limits(bare: bytes) -> None:
    """Reject what is too deep, too long or too much, in the text outside of strings."""
    _require_shallow(bare)
    if _has_long_number(bare):
        raise ValueError(f"it holds a number of more than {MAX_DIGITS} digits")
    if bare.count(b",") > MAX_VALUES:
        raise ValueError(f"it holds more than {MAX_VALUES:,} values")


def _without_strings(content: bytes) -> bytes:
    """The text outside of strings. Backslashes occur only in strings, in pairs or before what they escape."""
    if b"\\" in content:
        content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(content.split(b'"')[::2])


def _require_shallow(bare: bytes) -> None:
    """Reject nesting beyond MAX_DEPTH, by removing the innermost pairs of brackets level by level."""
    brackets = bare.translate(ONE_KIND, NOT_BRACKETS)
    if len(brackets) > 2 * MAX_VALUES:
        raise ValueError(f"it holds more than {MAX_VALUES:,} lists and objects")
    if brackets.count(b"[") <= MAX_DEPTH:
        return
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise ValueError(f"its values are nested more than {MAX_DEPTH} levels deep, or its brackets do not match")


def _finite(text: str) -> float:
    """A number with a point or an exponent."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds {text[:20]}, which is too large for a number")
    return number


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"it holds {text}, which is not a number")


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_reject_constant)  # made once: a log has many lines


def _require_printable(content: bytes, value: Any) -> None:
    """Reject NUL characters and halves of surrogate pairs, which are valid in JSON but not in paths and messages."""
    if b"\\u" not in content:
        return
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is not a character") from None
    if "\\u0000" in text.replace("\\\\", ""):
        raise ValueError("it holds a NUL character")
