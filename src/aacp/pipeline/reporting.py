"""The report as the last stage of a run: results are complete without it, so its failure costs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aacp.errors import AACPError, first_line
from aacp.report.page import write_report
from aacp.user.progress import report_progress


def write_report_or_reason(folders: Sequence[Path], file: Path) -> str:
    """Write the page about some runs; reports and returns why there is none, or returns an empty text.

    An earlier page is kept if the new one cannot be written.
    """
    try:
        write_report(folders, file)
        return ""
    except AACPError as error:
        reason = str(error)
    except Exception as error:  # a mistake in the page must not cost the summary of hours of work
        reason = f"{first_line(error)}. Write it later with aacp report."
    report_progress(f"{file.parent}: no report. {reason}")
    return reason
