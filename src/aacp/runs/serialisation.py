"""Record: a value that goes into a file as JSON and comes back, field by field."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aacp.errors import RunMismatch

AnyRecord = TypeVar("AnyRecord", bound="Record")


class Record:
    """A value that goes into a file as JSON and comes back, or is refused by the name of what is wrong."""

    def to_json(self) -> dict[str, Any]:
        return asdict(cast(Any, self))

    @classmethod
    def from_json(cls: type[AnyRecord], data: Any) -> AnyRecord:
        record = _read(cls, data, "")
        assert isinstance(record, cls)
        return record


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _read(kind: Any, value: Any, place: str) -> Any:
    """A value of JSON as `kind`, the type of a field; `place` leads to it."""
    if kind is Any:
        return value
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record(kind, value, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(inner[0], value, place)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(inner[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {key: _read(inner[1], item, f"{place}.{key}") for key, item in value.items()}
    if kind in _WORDS and _is(kind, value):
        return float(value) if kind is float else value
    raise _refusal(place, _WORDS.get(kind, "a list" if origin is tuple else "an object"), value)


def _record(kind: type[Record], value: Any, place: str) -> Record:
    if not isinstance(value, Mapping):
        raise _refusal(place, "an object", value)
    hints, found = get_type_hints(kind), dict[str, Any]()
    for field in fields(cast(Any, kind)):
        name = f"{place}.{field.name}".lstrip(".")
        if field.name in value:
            found[field.name] = _read(hints[field.name], value[field.name], name)
        elif field.default is MISSING:
            raise RunMismatch(f"{name} is missing. Write the file again, with the version of aacp that reads it.")
    return kind(**found)


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, kind)


def _refusal(place: str, wanted: str, value: Any) -> RunMismatch:
    shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:37]}..."
    return RunMismatch(f"{place or 'the file'} should be {wanted}, but is {shown}. Write the file again.")
