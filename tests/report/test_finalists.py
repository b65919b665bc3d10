"""The page shows the finalists with their scores in every rung, names the uniform one, and says who is delivered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from aacp.report.page import write_report
from aacp.report.run import read_run
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


def test_the_search_says_which_finalist_is_delivered_and_why(made: Made, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run").path
    (folder / "finalists.json").write_text(json.dumps(RECORD))
    shown = Page(write_report(folder, tmp_path / "page.html")).text
    number = read_run(made.path).history.find(made.choice.counts).number  # type: ignore[union-attr]
    assert f"The delivered structure is finalist 2 (number {number}): it won the comparison of finalists" in shown
    assert "its predicted score is better" not in shown
    choice = replace(made.choice, counts=tuple(1 for _ in made.choice.counts))  # which the search did not evaluate
    unknown = copy_of(made, tmp_path / "unknown", choice=choice).path
    (unknown / "finalists.json").write_text(json.dumps(RECORD))
    assert "The delivered structure is finalist 2: it won" in Page(write_report(unknown, tmp_path / "page.html")).text


def test_the_search_says_nothing_more_if_its_own_choice_won(made: Made, tmp_path: Path) -> None:
    folder = copy_of(made, tmp_path / "run").path
    first, second, third = RECORD["finalists"]  # type: ignore[misc]
    record = {**RECORD, "finalists": [{**first, "holdout": [0.6, 0.9]}, second, third]}
    (folder / "finalists.json").write_text(json.dumps(record))
    assert "The delivered structure is" not in Page(write_report(folder, tmp_path / "page.html")).text


def test_a_run_without_finalists_has_no_such_section(made: Made, tmp_path: Path) -> None:
    assert "Finalists" not in Page(write_report(made.path, tmp_path / "page.html")).headings
