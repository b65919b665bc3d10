"""The JSON files of a run are read as they were written, and errors name the wrong field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from aacp.cost.budget import Limit
from aacp.disk.records import Count, Record, Requirement, Seconds, WrongValue, matching, of_length, read_value
from aacp.errors import RunMismatch
from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency
from aacp.runs.requests import Request, TrainingRequest
from aacp.runs.scores import Epoch, Evaluation, NetworkMetrics

BEFORE = NetworkMetrics(0.9339, 0.94, {"macs": 126_000_000, "params": 853_018, "energy": 0.25}, 3_420_000)
AFTER = NetworkMetrics(None, 0.941, {"macs": 63_000_000, "params": 440_000, "energy": 0.125}, None)
RECORDS: list[Record] = [
    Request(
        "aacp prune resnet56", "resnet56", "cifar10:data", (Limit("macs", 0.5), Limit("latency", at_most=1.8e-3)),
        [0.125, 8], "default", 500, 3, {"aacp": "0.1.0"}, "one H200",
        "2025-01-01T12:00:00+00:00", "iou",
    ),
    TrainingRequest("aacp scratch run", {"epochs": 3, "milestones": [1]}, {"aacp": "0.1.0"}, "one H200", "2025", True),
    ChosenStructure((3, 5), 0.91, (LimitResult("macs", "MACs", 0.5, None, 100.0, 50.0, 49.0),)),
    Epoch(1, 0.1, 2.3, None, 0.5, 1.5, 100.0),
    Evaluation(BEFORE, AFTER),
    ExportRecord(
        18, 1e-6, 4000, 2000, (BeforeAfter("ORT", "CPU", 1, 100, Latency(2.0, 1.0, 3.0), Latency(1.0, 0.5, 1.5)),),
    ),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_written_is_what_is_read(record: Record) -> None:
    assert type(record).from_json(json.loads(json.dumps(record.to_json()))) == record


def test_what_a_newer_version_adds_is_passed_over_and_what_has_a_default_may_be_left_out() -> None:
    data = {**AFTER.to_json(), "colour": "blue"}
    del data["file_bytes"]
    assert NetworkMetrics.from_json(data) == AFTER


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"before": BEFORE.to_json()}, "after is missing. "),
        (
            {"before": {**BEFORE.to_json(), "macs": "many"}, "after": {}},
            "before.macs should be a number, but is ",
        ),
        ({"before": {**BEFORE.to_json(), "macs": True}, "after": {}}, "before.macs should be a number, but "),
        (
            {"before": {**BEFORE.to_json(), "test": float("nan")}, "after": {}},
            "before.test should be a number, but is ",
        ),
        ({"before": 3, "after": {}}, "before should be an object, but is 3. "),
        ([], r"the file should be an object, but is \[\]. "),
    ],
)
def test_what_is_wrong_is_named(data: Any, message: str) -> None:
    with pytest.raises(RunMismatch, match=message):
        Evaluation.from_json(data)


@pytest.mark.parametrize("count", [10**400, 1 << 64, -(1 << 64)])
def test_a_whole_number_that_no_machine_holds_is_named(count: int) -> None:
    with pytest.raises(RunMismatch, match=r"counts\[0\] should be a whole number"):
        ChosenStructure.from_json({"counts": [count], "score": 0.5, "limits": []})


def test_a_number_beyond_all_numbers_is_named() -> None:
    with pytest.raises(RunMismatch, match=r"score should be a number"):
        ChosenStructure.from_json({"counts": [1], "score": 10**400, "limits": []})


def test_a_place_inside_a_list_is_named_by_its_index() -> None:
    with pytest.raises(RunMismatch, match=r"counts\[1\] should be a whole number, but is 2.5"):
        ChosenStructure.from_json({"counts": [1, 2.5], "score": 0.5, "limits": []})
    with pytest.raises(RunMismatch, match=r"counts should be a list, but is 4"):
        ChosenStructure.from_json({"counts": 4, "score": 0.5, "limits": []})


@dataclass(frozen=True)
class Point:
    """A class that is written as text."""

    x: int

    @classmethod
    def parse(cls, text: str) -> Point:
        return cls(int(text))


Colour = Annotated[str, Requirement("a colour", lambda text: text in ("red", "blue"))]


@dataclass(frozen=True)
class Drawing:
    """Every kind of type that a field may have besides those of the records above."""

    name: Annotated[str, matching("[a-z]+", "a word")]
    points: tuple[Point, ...] = ()
    size: tuple[Count, Seconds] = (1, 1.0)
    steps: Annotated[tuple[str | int, ...], of_length(0, 2)] = ()
    colours: dict[Colour, int | float] | None = None


def test_fields_that_say_more_than_a_type_are_read() -> None:
    data = {"name": "a", "points": ["3", "4"], "size": [2, 1], "steps": ["x", 1], "colours": {"red": 1, "blue": 0.5}}
    drawing = Drawing("a", (Point(3), Point(4)), (2, 1.0), ("x", 1), {"red": 1, "blue": 0.5})
    assert read_value(Drawing, data) == drawing
    assert read_value(Drawing, {"name": "a", "colours": None}) == Drawing("a")
    assert type(read_value(Drawing, data).size[1]) is float
    assert type(read_value(Drawing, data).colours["red"]) is int


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("name", "A", "name should be a word, but is 'A'"),
        ("name", "a\n", r"name should be a word, but is 'a\\n'"),
        ("size", [1], r"size should be a list of length 2, but is \[1\]"),
        ("size", [0, 1.0], r"size\[0\] should be a whole number from 1 to 9,007,199,254,740,992, but is 0"),
        (
            "size",
            [1 << 53, 1e13],
            r"size\[1\] should be a number from 1e-12 to 1,000,000,000,000.0, but is 10000000000000.0",
        ),
        ("size", [(1 << 53) + 1, 1.0], r"size\[0\] should be a whole number from 1 to"),
        ("steps", [1, 2, 3], r"steps should be a list of 0 to 2 values, but is \[1, 2, 3\]"),
        ("steps", [1, 2.5], r"steps\[1\] should be a whole number, but is 2.5"),
        ("colours", {"green": 1}, "colours should be a colour, but is 'green'"),
        ("colours", {"red": "x"}, "colours.red should be a number, but is 'x'"),
        ("points", [3], r"points\[0\] should be an object, but is 3"),
        ("shape", 1, "the file has an unknown field 'shape'"),
    ],
)
def test_a_value_that_is_not_such_is_named(field: str, value: Any, reason: str) -> None:
    with pytest.raises(WrongValue, match=f"{reason}"):
        read_value(Drawing, {"name": "a", field: value})
