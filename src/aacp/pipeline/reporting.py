"""The report as the last stage of a run: results are complete without it, so its failure costs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aacp.errors import AACPError, first_line
from aacp.report.page import write_report


def write_report_or_reason(folders: Sequence[Path], file: Path) -> str:
    """Write the page about some runs; returns why there is none, or an empty text.

    An earlier page is kept if the new one cannot be written.

    Args:
        folders: the run folders, or a folder that holds them.
        file: where to write the page.
    """
    try:
        write_report(folders, file)
    except AACPError as error:
        return str(error)
    except Exception as error:  # a mistake in the page must not cost the summary of hours of work
        return f"{first_line(error)}. Write it later with aacp report."
    return ""
