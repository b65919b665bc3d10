"""A parsed page: its elements, its text and the data of its figures, without a browser."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Page(HTMLParser):
    """Words outside scripts and styles, headings, rows of tables, how often each element occurs, figures by name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements, self.rows, self.figures = Counter[str](), list[list[str]](), dict[str, Any]()
        self.headings = list[str]()
        self._words, self._open, self._script = list[str](), list[str](), ""
        self.feed(path.read_text())
        assert not [name for name in self._open if name not in ("meta", "!doctype")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        if tag != "meta":
            self._open.append(tag)
        self._script = dict(attrs).get("id") or "" if tag == "script" else ""
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script" and self._script:
            self.figures[self._script.removesuffix("-data")] = json.loads(data)
        elif inside not in ("script", "style"):
            self._words.append(data)
            if inside == "h2":
                self.headings.append(data)
            if self.rows and {"td", "th"} & set(self._open):
                self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._words).split())  # a no-break space is a space here

    def row(self, first: str) -> list[str]:
        """The cells of the row that begins so, without the first."""
        rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]
        return next(cells for head, *cells in rows if head.startswith(first))
