"""The JSON files of a run are read as they were written, and errors name the wrong field."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Limit, cost_of
from aacp.errors import RunMismatch
from aacp.pipeline.plan import Plan
from aacp.runs.files import (
    BeforeAfter,
    ChosenStructure,
    Epoch,
    Evaluation,
    ExportRecord,
    Latency,
    LimitResult,
    NetworkMetrics,
    Record,
    Request,
    TrainingRequest,
)

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


@pytest.mark.parametrize("bound", [{"pruning_rate": 0.5}, {"at_most": 7.0}])
def test_what_was_reached_says_the_same_as_the_limit_itself(bound: dict[str, float]) -> None:
    space = SearchSpace.from_widths([8, 8], 1)
    limit = Limit(cost_of(lambda structure: float(sum(structure)), space, "channels", "channels"), **bound)
    for counts in ((1, 2), (4, 4), (3, 4), (5, 6)):
        structure = Structure(counts)
        reached = LimitResult.of(limit, structure)
        assert reached.reached == sum(counts)
        assert reached.holds == bool(limit.holds(limit.cost(structure)))
        assert reached.slack == pytest.approx(float(limit.slack(structure)))


def test_every_part_of_a_plan_is_written_down_in_one_of_the_two_requests_and_so_compared() -> None:
    # The name of the folder of the training, and where structures are estimated, do not change any result.
    plan = {field.name for field in fields(Plan)} - {"training", "workers"}
    search = {field.name for field in fields(Request)}
    training = {field.name for field in fields(TrainingRequest)}
    assert plan <= search | training
    assert plan & search & training == set()


def test_a_cost_that_the_unpruned_network_does_not_have_is_shown_without_a_share() -> None:
    choice = ChosenStructure((1,), 0.5, (LimitResult("joules", "J", None, 2.0, 0.0, 2.0, 0.0),))
    assert str(choice).splitlines()[0] == "joules: 0 -> 0 J, at most 2 J"


def timed(before: float, after: float, *speedups: float) -> BeforeAfter:
    """Both networks with quartiles far apart, as on a busy machine."""
    return BeforeAfter("ORT", "CPU", 1, 20, Latency(before, 0.0, 9.0), Latency(after, 0.0, 9.0), *speedups)


@pytest.mark.parametrize(
    ("timing", "words", "is_decided"),
    [
        (timed(0.0073, 0.001, 0.8, 12.0, 7.3), "7.3 -> 1 ms (x7.30, too noisy to tell)", False),
        (timed(0.0073, 0.001), "7.3 -> 1 ms (x7.30, too noisy to tell)", False),  # of an older version
        (timed(0.0073, 0.001, 5.0, 12.0, 7.3), "7.3 -> 1 ms (x7.30, faster)", True),
        (timed(0.002, 0.002, 0.96, 1.04, 1.0), "2 -> 2 ms (x1.00, NOT FASTER)", True),
        (timed(0.002, 0.002, 0.96, 1.2, 1.0), "2 -> 2 ms (x1.00, too noisy to tell)", False),
        (timed(0.002, 0.002, 0.8, 1.04, 1.0), "2 -> 2 ms (x1.00, too noisy to tell)", False),
        (timed(0.002, 0.003, 0.6, 0.7, 0.65), "2 -> 3 ms (x0.65, SLOWER)", True),
    ],
)
def test_a_wide_interval_is_too_noisy_to_tell_and_a_narrow_one_decides(
    timing: BeforeAfter, words: str, is_decided: bool
) -> None:
    assert str(timing) == f"ORT, batch 1: {words}"
    assert timing.is_decided == is_decided


@pytest.mark.parametrize(
    ("measured", "words"),
    [(True, ", measured end to end"), (False, ", predicted, to be checked on the device"), (None, "")],
)
def test_a_latency_says_whether_it_was_measured(measured: bool | None, words: str) -> None:
    result = LimitResult("latency", "s", 0.4, None, 4.39e-3, 2.634e-3, 2.5e-3, measured)
    assert str(result) == f"latency: 4.39 -> 2.5 ms (-43.1%), at most 2.63 ms{words}"
