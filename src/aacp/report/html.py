"""Markup: text that is escaped unless it is markup already."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Markup(str):
    """Text that is HTML already; all other text is escaped on its way into a page."""


def escaped(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def joined(parts: Iterable[object]) -> Markup:
    return Markup("".join(escaped(part) for part in parts))


def tag(name: str, *children: object, attributes: Mapping[str, str] | None = None) -> Markup:
    """An element with what it contains."""
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in (attributes or {}).items())
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


@dataclass(frozen=True)
class Figure:
    """A chart as plotly's plain data, with the words that stand for it where it cannot be seen."""

    name: str
    caption: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 340  # pixels

    def markup(self, prefix: str) -> Markup:
        """Its place in the page, and its data beside it; page.js draws it."""
        data = json.dumps({"data": self.traces, "layout": self.layout})
        # JSON inside a script element ends where any "</script" does, so no angle bracket may stay.
        for character in "<>&\u2028\u2029":
            data = data.replace(character, f"\\u{ord(character):04x}")
        identity = f"{prefix}{self.name}"
        place = {"class": "plot", "id": identity, "style": f"height:{self.height}px", "role": "img"}
        script = {"type": "application/json", "id": f"{identity}-data"}
        return tag(
            "figure",
            tag("div", attributes={**place, "aria-label": self.caption}),
            tag("script", Markup(data), attributes=script),
            tag("figcaption", self.caption),
        )


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], numeric: int = 1) -> Markup:
    """Rows under headings, the first cell of each a heading too; from column `numeric` on, cells are numbers."""
    head = joined(
        tag("th", name, attributes={"scope": "col", "class": _kind(column, numeric)})
        for column, name in enumerate(heads)
    )
    body = joined(tag("tr", *(_cell(column, cell, numeric) for column, cell in enumerate(row))) for row in rows)
    words = tag("caption", tag("span", caption))
    inner = tag("table", words, tag("thead", tag("tr", head)), tag("tbody", body))
    # Wide tables scroll in their box; a box that scrolls must be reachable by keyboard.
    return tag("div", inner, attributes={"class": "box", "tabindex": "0", "role": "region", "aria-label": caption})


def _cell(column: int, cell: object, numeric: int) -> Markup:
    if column == 0:
        return tag("th", cell, attributes={"scope": "row"})
    return tag("td", cell, attributes={"class": _kind(column, numeric)})


def _kind(column: int, numeric: int) -> str:
    return "number" if column >= numeric else "words"


def definitions(pairs: Iterable[tuple[object, object]]) -> Markup:
    """Names and what they are."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def section(heading: str, *parts: object) -> Markup:
    """A part of the page; nothing at all if there is nothing in it."""
    filled = [part for part in parts if part]
    return tag("section", tag("h2", heading), *filled) if filled else Markup()


def details(summary: object, *parts: object) -> Markup:
    return tag("details", tag("summary", summary), *parts)
