"""The judgement of answers: every way in which an answer can be wrong is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aacp.latency.deployment import Deployment
from aacp.latency.timing import Timing
from aacp.pipeline import delivery
from aacp.runs.exports import ExportRecord
from faults import plants
from faults.cases import Case, judged
from faults.forker import Ending
from faults.trees import differences, leftovers, results, snapshot

CASE = Case("option", "aacp prune net --epochs 0", "InvalidOption", ("epochs", "0"))
RIGHT = "InvalidOption: epochs is 0, but training needs at least 1. Give a positive number.\n"


def ending(code: int | None = 1, err: str = RIGHT, timed_out: bool = False) -> Ending:
    return Ending(code, "", err, 0.1, timed_out)


def test_a_right_answer_is_accepted() -> None:
    assert judged(CASE, ending(), []).word == ""


@pytest.mark.parametrize(
    ("answer", "changes", "word"),
    [
        (ending(timed_out=True, code=None), [], "hang"),
        (ending(code=None), [], "crash"),
        (ending(err="Traceback (most recent call last):\n  ...\nKeyError: 'a'\n"), [], "traceback"),
        (ending(code=0), [], "silent"),
        (ending(err=RIGHT.replace("InvalidOption", "RunMismatch")), [], "unclear"),
        (ending(err="InvalidOption: epochs is 0.\n"), [], "unclear"),
        (ending(err="InvalidOption: The value is wrong. Give another.\n"), [], "unclear"),
        (ending(err=5 * "UserWarning: careful\n" + RIGHT), [], "unclear"),
        (ending(code=3), [], "internal error"),
        (ending(code=4), [], "unclear"),
        (ending(), ["done/run.json changed"], "files touched"),
        (ending(), ["new/run.json added"], "files touched"),
    ],
)
def test_a_wrong_answer_is_noticed(answer: Ending, changes: list[str], word: str) -> None:
    assert judged(CASE, answer, changes).word == word


def test_new_files_are_allowed_where_the_case_says_so_but_no_changed_ones() -> None:
    late = Case("option", CASE.call, CASE.error, CASE.words, adds=("new",))
    assert judged(late, ending(), ["new/run.json added"]).word == ""
    assert judged(late, ending(), ["new/run.json changed"]).word == "files touched"
    assert judged(late, ending(), ["newer added"]).word == "files touched"


def test_every_change_of_a_folder_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    before = snapshot(tmp_path)
    (tmp_path / "a").write_text("3")
    (tmp_path / "b").unlink()
    (tmp_path / "c").symlink_to("a")
    assert differences(before, snapshot(tmp_path)) == ["a changed", "b removed", "c added"]


def test_results_ignore_the_clock_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "log.jsonl"
    place.write_text(json.dumps({"epoch": 1, "loss": 0.5, "seconds": 1.0}) + "\n")
    before = results(tmp_path)
    place.write_text(json.dumps({"epoch": 1, "loss": 0.5, "seconds": 9.0}) + "\n")
    assert results(tmp_path) == before
    place.write_text(json.dumps({"epoch": 1, "loss": 0.6, "seconds": 1.0}) + "\n")
    assert results(tmp_path) != before


def test_results_ignore_every_number_of_a_timing(tmp_path: Path) -> None:
    def written(before: tuple[float, ...], after: tuple[float, ...], bytes_after: int = 100) -> dict[str, str]:
        timed = {"original": Timing("original", before), "pruned": Timing("pruned", after)}
        timing = delivery._compared(timed, Deployment("torch", threads=1))
        record = ExportRecord(18, 0.0, before_bytes=200, after_bytes=bytes_after, timings=(timing,))
        (tmp_path / "export.json").write_text(json.dumps(record.to_json()))
        return results(tmp_path)

    once = written((4.0, 5.0, 6.0), (1.0, 2.0, 3.0))
    assert written((8.0, 9.0, 7.0, 8.5), (5.0, 4.0, 3.0, 6.0)) == once
    assert written((4.0, 5.0, 6.0), (1.0, 2.0, 3.0), bytes_after=101) != once


def test_temporary_files_are_found(tmp_path: Path) -> None:
    for name in (".lock", "run.json", ".run.json.123", "deep/.run.json.0123456789abcdef.part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert leftovers(tmp_path) == [".run.json.123", "deep/.run.json.0123456789abcdef.part"]


def test_a_flipped_bit_changes_one_byte(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(bytes(100))
    plants.flipped(0.5)(place)
    assert [number for number, byte in enumerate(place.read_bytes()) if byte] == [50]
