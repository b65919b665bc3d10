"""The report as the last stage of a run: results are complete without it, so its failure costs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aacp.errors import AACPError, first_line
from aacp.report.page import FILE, write_report
from aacp.runs.folder import RunFolder
from aacp.user.progress import report_progress


def write_report_or_reason(folder: RunFolder, runs: Sequence[RunFolder] = ()) -> str:
    """Write the page about a folder, or about some runs in it; returns why there is none, or an empty text.

    The reason is reported too. An earlier page is kept if the new one cannot be written.
    """
    try:
        write_report(runs or folder, folder.path / FILE)
        return ""
    except AACPError as error:
        reason = str(error)
    except Exception as error:  # a mistake in the page must not cost the summary of hours of work
        reason = f"{first_line(error)}. Write it later with aacp report."
    report_progress(f"{folder.path}: no report. {reason}")
    return reason


def report_line(folder: Path, unreported: str) -> str:
    """The last line of a summary: where the page is, or why there is none."""
    return f"no report: {unreported}" if unreported else f"report: {folder / FILE}"
