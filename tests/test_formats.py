"""docs/formats.md lists the fields that the records have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from aacp.cost.budget import Limit
from aacp.runs.chosen import ChosenStructure, DeviceCheck, LimitResult
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency, Resources, RuntimeFiles
from aacp.runs.finalists import Finalist, Finalists
from aacp.runs.manifest import Entry, Manifest
from aacp.runs.requests import Request, TrainingRequest
from aacp.runs.scores import Epoch, NetworkMetrics, Recovery, RecoveryStep

TEXT = (Path(__file__).parent.parent / "docs" / "formats.md").read_text()


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("run.json", (Request,)),
        ("structure.json", (ChosenStructure, LimitResult)),
        ("finalists.json", (Finalists, Finalist)),
        ("trainings/NAME/training.json", (TrainingRequest,)),
        ("trainings/NAME/training/log.jsonl", (Epoch,)),
        ("trainings/NAME/evaluation.json", (NetworkMetrics,)),
        ("trainings/NAME/recovery.json", (Recovery, RecoveryStep)),
        ("trainings/NAME/export.json", (ExportRecord, BeforeAfter, Latency, RuntimeFiles, Resources)),
        ("trainings/NAME/device.json", (DeviceCheck,)),
        ("manifest.json", (Manifest, Entry)),
    ],
)
def test_the_document_lists_every_field(heading: str, kinds: tuple[type, ...]) -> None:
    section = re.split(r"^##", TEXT.partition(f"### `{heading}`")[2], flags=re.MULTILINE)[0]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", section))))
    words |= {"costs", "entries"}  # which are listed by the names of the costs, and as files
    for kind in kinds:
        assert {field.name for field in fields(kind)} <= words, kind.__name__


def test_the_document_lists_the_fields_of_a_limit() -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("| `limits` | list of `{cost, pruning_rate"))
    assert set(Limit("macs", pruning_rate=0.5).to_json()) <= set(re.findall(r"\w+", line))
