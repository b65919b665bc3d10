"""The page shows the finalists with their scores in every rung, names the uniform one, and says who is delivered."""

from __future__ import annotations

import json
from pathlib import Path

from aacp.report.page import write_report
from report.pages import Page
from report.runs import ATTACK, Made, copy_of

LIMITS: list[object] = []
RECORD = {
    "rungs": [1, 30],
    "finalists": [
        {"choice": {"counts": [1], "score": 0.5, "limits": LIMITS}, "holdout": [0.6, 0.7]},
        {"choice": {"counts": [2], "score": 0.4, "limits": LIMITS}, "holdout": [0.65, 0.8]},
        {"choice": {"counts": [3], "score": 0.3, "limits": LIMITS}, "holdout": [0.55], "is_uniform": True},
    ],
    "notes": [f"Fewer structures than requested. {ATTACK}"],
}


def test_every_finalist_has_a_row_with_its_scores(made: Made, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run").path
    (folder / "finalists.json").write_text(json.dumps(RECORD))
    page = Page(write_report(folder, tmp_path / "page.html"))
    assert "Finalists" in page.headings
    assert page.row("The choice of the search") == ["50.00 %", "60.00 %", "70.00 %", ""]
    assert page.row("Finalist 2") == ["40.00 %", "65.00 %", "80.00 %", "delivered"]
    assert page.row("The uniform structure") == ["30.00 %", "55.00 %", "\N{EN DASH}", ""]
    text = (tmp_path / "page.html").read_text()
    assert "after 1 epoch<" in text
    assert "after 30 epochs<" in text
    assert "Fewer structures than requested." in text
    assert ATTACK not in text


def test_a_run_without_finalists_has_no_such_section(made: Made, tmp_path: Path) -> None:
    assert "Finalists" not in Page(write_report(made.path, tmp_path / "page.html")).headings
