"""The requests of a run hold every part of its plan."""

from __future__ import annotations

from dataclasses import fields

from aacp.pipeline.plan import Plan
from aacp.runs.requests import Request, TrainingRequest


def test_every_part_of_a_plan_is_written_down_in_one_of_the_two_requests_and_so_compared() -> None:
    # The name of the folder of the training, and where structures are estimated, do not change any result.
    plan = {field.name for field in fields(Plan)} - {"training", "workers"}
    search = {field.name for field in fields(Request)}
    training = {field.name for field in fields(TrainingRequest)}
    assert plan <= search | training
    assert plan & search & training == set()
