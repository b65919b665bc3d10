"""Record: a dataclass that is written to a file as JSON and read back, field by field."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aacp.errors import RunMismatch
from aacp.user.values import shown

AnyRecord = TypeVar("AnyRecord", bound="Record")


class Record:
    """A dataclass that is written as JSON and read back; a value of the wrong type is rejected by its field's name."""

    def to_json(self) -> dict[str, Any]:
        return {field.name: plain(getattr(self, field.name)) for field in fields(cast(Any, self))}

    @classmethod
    def from_json(cls: type[AnyRecord], data: Any) -> AnyRecord:
        record = _read(cls, data, "")
        assert isinstance(record, cls)
        return record

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any], place: str) -> Record:
        """The record of a JSON object; `place` is where the object lies in its file.

        Fields that are not known are skipped, so that files of newer versions can be read.
        """
        hints = get_type_hints(cls)
        found: dict[str, Any] = {}
        for field in fields(cast(Any, cls)):
            name = field_place(place, field.name)
            if field.name in data:
                found[field.name] = _read(hints[field.name], data[field.name], name)
            elif field.default is MISSING and field.default_factory is MISSING:
                raise RunMismatch(f"{name} is missing. Write the file again, with the version of aacp that reads it.")
        return cls(**found)


MAX_INTEGER = 1 << 64  # whole numbers of files are below this: seeds reach it
TYPE_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def field_place(place: str, name: str) -> str:
    """Where a field lies in its file: `before.macs`."""
    return f"{place}.{name}".lstrip(".")


def read_number(value: Any, place: str) -> float:
    """A finite number of a JSON file; a whole one stays whole."""
    if not _is(float, value):
        raise wrong_type(place, TYPE_WORDS[float], value)
    number: float = value
    return number


def wrong_type(place: str, wanted: str, value: Any) -> RunMismatch:
    """The error for a value of the wrong type."""
    return RunMismatch(f"{place or 'the file'} should be {wanted}, but is {shown(value)}. Write the file again.")


def plain(value: Any) -> Any:
    """A value as json.dumps takes it."""
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _read(kind: Any, value: Any, place: str) -> Any:
    """A value of JSON as `kind`, the type of a field; `place` is where it lies in its file."""
    if kind is Any:
        return value
    if isinstance(kind, type) and issubclass(kind, Record):
        if not isinstance(value, Mapping):
            raise wrong_type(place, "an object", value)
        return kind._from_fields(value, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(inner[0], value, place)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(inner[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {key: _read(inner[1], item, field_place(place, key)) for key, item in value.items()}
    if kind in TYPE_WORDS and _is(kind, value):
        return float(value) if kind is float else value
    raise wrong_type(place, TYPE_WORDS.get(kind, "a list" if origin is tuple else "an object"), value)


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
    if kind is int:
        return isinstance(value, int) and abs(value) < MAX_INTEGER
    return isinstance(value, kind)
