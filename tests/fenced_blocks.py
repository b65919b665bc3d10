"""The blocks of code in a Markdown page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

# A block may be indented, in a list, and have a title after its language.
FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


def fenced_blocks(page: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """The blocks of a page in one of these languages: the number of lines before the code, and the code."""
    text = page.read_text()
    for found in FENCED.finditer(text):
        if found[2] in languages:
            yield text[: found.start(3)].count("\n"), textwrap.dedent(found[3])
