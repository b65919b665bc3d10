"""Two small runs, which import everything that runs import late. Only the process of `faults.forker` imports this."""

from __future__ import annotations

import contextlib
import io
import tempfile

import faults.names  # noqa: F401
from aacp.cli import main
from faults.subjects import MIMIC, PRUNE

with (
    tempfile.TemporaryDirectory(prefix="aacp-warm-") as _folder,
    contextlib.redirect_stderr(io.StringIO()),
    contextlib.redirect_stdout(io.StringIO()),
):
    main([*PRUNE, "--run", f"{_folder}/run"], standalone_mode=False)
    main([*MIMIC, "--run", f"{_folder}/mimicked"], standalone_mode=False)
