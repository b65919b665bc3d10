"""The page shows what each step of recovery gave, and what could not be repaired."""

from __future__ import annotations

import json
from pathlib import Path

from aacp.report.page import write_report
from report.pages import Page
from report.runs import ATTACK, Made, copy_of

STEPS = [
    {"name": "inherited", "holdout": 0.1, "test": 0.11},
    {"name": "recalibrated", "holdout": 0.5, "test": 0.51},
    {"name": "repaired", "holdout": 0.8, "test": 0.79},
    {"name": "mimicked", "holdout": 0.85, "test": None},
]


def test_every_step_has_a_row_with_both_scores(made: Made, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run").path
    record = {"steps": STEPS, "notes": [f"conv7 is left as inherited. {ATTACK}"]}
    (folder / "recovery.json").write_text(json.dumps(record))
    page = Page(write_report(folder, tmp_path / "page.html"))
    assert page.row("Inherited: the kept weights as they are") == ["10.00 %", "11.00 %"]
    assert page.row("Recalibrated: batch norms measured again") == ["50.00 %", "51.00 %"]
    assert page.row("Repaired: weights fitted to the original's outputs") == ["80.00 %", "79.00 %"]
    assert page.row("Mimicked: trained to reproduce the original")[0] == "85.00 %"
    text = (tmp_path / "page.html").read_text()
    assert "conv7 is left as inherited." in text
    assert ATTACK not in text


def test_a_trained_run_has_no_such_section(made: Made, tmp_path: Path) -> None:
    write_report(made.path, tmp_path / "page.html")
    assert "Recovery without training" not in (tmp_path / "page.html").read_text()


def test_a_damaged_record_is_named_and_leaves_the_rest(made: Made, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run").path
    (folder / "recovery.json").write_text('{"steps": 3}')
    write_report(folder, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "recovery.json is left out because it cannot be read: steps should be a list" in text
    assert "Before and after" in text
