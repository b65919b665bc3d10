"""Records: dataclasses that are written to files as JSON, and read back by the types of their fields.

A field may say more than a type: `Annotated[int, between(1, 10)]`. Every value is checked, since a file may come from
anybody. The first one that is wrong is named by its place in the file.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aacp.errors import RunMismatch
from aacp.user.values import MAX_COUNT, shortened, shown

AnyRecord = TypeVar("AnyRecord", bound="Record")

MAX_INTEGER = 1 << 64  # whole numbers of files are below this: seeds reach it
TYPE_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class WrongValue(ValueError):
    """A value is not what a file should hold in its place; the message is a reason, without a full stop."""


class Record:
    """A dataclass that is written as JSON and read back; a value of the wrong type is rejected by its field's name.

    Fields that are not known are skipped, so that files of newer versions can be read.
    """

    def to_json(self) -> dict[str, Any]:
        return {field.name: plain(getattr(self, field.name)) for field in fields(cast(Any, self))}

    @classmethod
    def from_json(cls: type[AnyRecord], data: Any) -> AnyRecord:
        try:
            record = read_value(cls, data)
        except WrongValue as error:
            raise RunMismatch(f"{error}. Write the file again, with the version of aacp that reads it.") from None
        assert isinstance(record, cls)
        return record

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any], place: str) -> Record:
        """The record of a JSON object; `place` is where the object lies in its file."""
        return cls(**read_fields(cls, data, place))


def plain(value: Any) -> Any:
    """A value as json.dumps takes it."""
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


# -- types of fields that say more than int, float and str ------------------------------------------------------------


@dataclass(frozen=True)
class Requirement:
    """What a value must be besides its type."""

    words: str  # what it should be, with an article
    holds: Callable[[Any], bool]


def between(low: float, high: float, what: str = "a number") -> Requirement:
    """Numbers of a range, with both ends."""
    return Requirement(f"{what} from {low:,} to {high:,}", lambda number: low <= number <= high)


def of_length(low: int, high: int = MAX_COUNT) -> Requirement:
    """Lists whose length lies in a range, with both ends."""
    return Requirement(f"a list of {low:,} to {high:,} values", lambda values: low <= len(values) <= high)


def matching(pattern: str, what: str) -> Requirement:
    """Texts that a regular expression describes."""
    return Requirement(what, lambda text: re.fullmatch(pattern, text, re.DOTALL) is not None)


Integer = Annotated[int, between(-MAX_COUNT, MAX_COUNT, TYPE_WORDS[int])]
Whole = Annotated[int, between(0, MAX_COUNT, TYPE_WORDS[int])]
Count = Annotated[int, between(1, MAX_COUNT, TYPE_WORDS[int])]
Amount = Annotated[float, between(0, MAX_COUNT)]
Seconds = Annotated[float, between(1e-12, 1e12)]


# -- reading ----------------------------------------------------------------------------------------------------------


def read_fields(kind: type, data: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """The fields of a dataclass that an object of JSON has; one without a default must be there.

    The metadata of a field may have its name in the file, if that is another one.

    Args:
        kind: the dataclass.
        data: the object; what is not a field is skipped.
        place: where the object lies in its file.
    """
    found = {}
    for field in fields(kind):
        name = field.metadata.get("name", field.name)
        if name in data:
            found[field.name] = read_value(_hints(kind)[field.name], data[name], field_place(place, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise WrongValue(f"{field_place(place, name)} is missing")
    return found


def read_value(kind: Any, value: Any, place: str = "") -> Any:
    """A value of JSON as `kind`, the type of a field; everything else raises WrongValue.

    Objects are read as dataclasses; one that is not a `Record` may have no other fields. A class with a method `parse`,
    which raises WrongValue, is read from text.

    Args:
        kind: the type.
        value: the value; lists may be tuples, in data that were not written to a file yet.
        place: where the value lies in its file.
    """
    if kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _read_annotated(inner, value, place)
    if origin in (Union, types.UnionType):
        return _read_one_of(inner, value, place)
    if origin is tuple and isinstance(value, (list, tuple)):
        return _read_tuple(inner, value, place)
    if origin is dict and isinstance(value, Mapping):
        return {
            read_value(inner[0], key, place): read_value(inner[1], item, field_place(place, shortened(key)))
            for key, item in value.items()
        }
    if hasattr(kind, "parse") and isinstance(value, str):
        return kind.parse(value)
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _read_dataclass(cast(type, kind), value, place)
    if kind in TYPE_WORDS and _is(kind, value):
        return float(value) if kind is float else value
    raise wrong_value(place, TYPE_WORDS.get(kind, "a list" if origin is tuple else "an object"), value)


def _read_annotated(inner: tuple[Any, ...], value: Any, place: str) -> Any:
    """A value of `Annotated[kind, requirement]`."""
    kind, requirement = inner
    found = read_value(kind, value, place)
    if not requirement.holds(found):
        raise wrong_value(place, requirement.words, value)
    return found


def _read_one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    """A value of one of several types: the first one that it has."""
    if value is None and type(None) in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not type(None))
    for kind in others:
        with suppress(WrongValue):
            return read_value(kind, value, place)
    return read_value(last, value, place)


def _read_tuple(kinds: tuple[Any, ...], values: Sequence[Any], place: str) -> tuple[Any, ...]:
    """A list as a tuple: of any length if its type is `tuple[kind, ...]`."""
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        raise wrong_value(place, f"a list of length {len(kinds)}", values)
    pairs = zip(kinds, values, strict=True)
    return tuple(read_value(kind, value, f"{place}[{index}]") for index, (kind, value) in enumerate(pairs))


def _read_dataclass(kind: type, data: Mapping[str, Any], place: str) -> Any:
    if issubclass(kind, Record):
        return kind._from_fields(data, place)
    unknown = data.keys() - {field.name for field in fields(cast(Any, kind))}
    if unknown:
        raise WrongValue(f"{place or 'the file'} has an unknown field {shown(min(unknown))}")
    return kind(**read_fields(kind, data, place))


def field_place(place: str, name: str) -> str:
    """Where a field lies in its file: `before.macs`."""
    return f"{place}.{name}".lstrip(".")


def wrong_value(place: str, wanted: str, value: Any) -> WrongValue:
    """The error for a value that should be something else."""
    return WrongValue(f"{place or 'the file'} should be {wanted}, but is {shown(value)}")


def require(condition: bool, reason: str) -> None:
    """Raise a WrongValue with a reason unless a condition holds."""
    if not condition:
        raise WrongValue(reason)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
    if kind is int:
        return isinstance(value, int) and abs(value) < MAX_INTEGER
    return isinstance(value, kind)
