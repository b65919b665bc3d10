"""Progress is said in a few lines, and counts what an earlier call did."""

from __future__ import annotations

import pytest

from aacp.latency.progress import Progress


def test_a_line_for_each_tenth_and_what_was_there_before(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("structures", 100, 20, verbose=True)
    for _ in range(80):
        progress.step()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "20 of 100 structures were measured before"
    assert len(lines) == 1 + 1 + 8
    assert lines[-1].startswith("100/100")


def test_it_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("structures", 1).step()
    assert capsys.readouterr().err == ""
