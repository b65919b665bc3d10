"""Progress: printed where it is shown, logged where it is not, and silent inside of larger steps."""

from __future__ import annotations

import logging

import pytest

from aacp.user.progress import progress_bar, report_progress, report_warning, show_progress, without_progress


def test_a_line_is_printed_only_where_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report_progress("before")
    with show_progress():
        report_progress("inside")
        with without_progress():
            report_progress("a part")
        report_progress("inside again")
    report_progress("after")
    assert capsys.readouterr() == ("", "inside\ninside again\n")


def test_the_logger_gets_every_line_that_is_not_part_of_a_larger_step(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="aacp"):
        report_progress("50 % done")
        with without_progress():
            report_progress("a part")
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("aacp", "INFO", "50 % done")
    ]


def test_a_warning_is_printed_where_progress_is_shown_and_logged_as_a_warning_elsewhere(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    report_warning("100 % wrong")
    assert capsys.readouterr().err == ""
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", "100 % wrong")]
    with show_progress():
        report_warning("shown")
    assert capsys.readouterr().err == "shown\n"
    assert len(caplog.records) == 1


def test_progress_is_shown_until_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="wrong"), show_progress():
        raise ValueError("wrong")
    report_progress("after")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_bar_needs_a_terminal_and_progress_that_is_shown(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR" if is_terminal else "NO_COLOR", "1")
    with progress_bar(3, "text") as update:
        assert update is None
    with show_progress(), progress_bar(3, "text") as update:
        assert (update is not None) == is_terminal
