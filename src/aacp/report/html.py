"""HTML for reports: every text is escaped unless it is Markup, and figures are plain data that page.js draws."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from aacp.errors import MissingPackage


class Markup(str):
    """Text that is HTML already; any other text is escaped before it enters a page."""


def escaped(value: object) -> Markup:
    """A value as HTML: Markup unchanged, anything else as escaped text."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def joined(parts: Iterable[object]) -> Markup:
    """Values one after another as HTML, each escaped unless it is Markup."""
    return Markup("".join(escaped(part) for part in parts))


def tag(name: str, *children: object, attributes: Mapping[str, str] | None = None) -> Markup:
    """An HTML element with its children, which are escaped unless they are Markup."""
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in (attributes or {}).items())
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


@dataclass(frozen=True)
class Figure:
    """A chart of plotly.js as plain data: no plotly object is needed to make one."""

    name: str  # distinguishes the figures of a section
    caption: str  # shown below the chart, and read out where the chart cannot be seen
    traces: Sequence[Mapping[str, Any]]  # plotly's `data`, such as [{"type": "bar", "x": [...], "y": [...]}]
    layout: Mapping[str, Any] = field(default_factory=dict)  # plotly's `layout`
    height: int = 340  # pixels

    def markup(self, prefix: str) -> Markup:
        """An empty element and the data beside it, from which page.js draws the chart."""
        data = json.dumps({"data": self.traces, "layout": self.layout}, ensure_ascii=False)
        # A script element ends at the first "</script", even inside a JSON string, so angle brackets are escaped.
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


@dataclass(frozen=True)
class Grid:
    """Figures beside each other where the page is wide enough."""

    figures: Sequence[Figure]

    def markup(self, prefix: str) -> Markup:
        drawn = [figure.markup(prefix) for figure in self.figures]
        return tag("div", *drawn, attributes={"class": "grid"}) if drawn else Markup()


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], numeric: int = 1) -> Markup:
    """A table with a caption and headings.

    Args:
        caption: the text above the table.
        heads: the headings of the columns.
        rows: the cells of each row; the first cell of a row is a heading as well.
        numeric: the first column that holds numbers, which are aligned to the right.
    """
    head = joined(
        tag("th", name, attributes={"scope": "col", "class": _kind(column, numeric)})
        for column, name in enumerate(heads)
    )
    body = joined(tag("tr", *(_cell(column, cell, numeric) for column, cell in enumerate(row))) for row in rows)
    title = tag("caption", tag("span", caption))
    inner = tag("table", title, tag("thead", tag("tr", head)), tag("tbody", body))
    # A wide table scrolls inside its box, and a box that scrolls must be reachable by keyboard.
    return tag("div", inner, attributes={"class": "box", "tabindex": "0", "role": "region", "aria-label": caption})


def _cell(column: int, cell: object, numeric: int) -> Markup:
    if column == 0:
        return tag("th", cell, attributes={"scope": "row"})
    return tag("td", cell, attributes={"class": _kind(column, numeric)})


def _kind(column: int, numeric: int) -> str:
    return "number" if column >= numeric else "words"


def listed(heading: str, items: Sequence[object]) -> Markup:
    """A heading and a list below it; empty if there are no items."""
    return joined([tag("p", heading), tag("ul", *(tag("li", item) for item in items))]) if items else Markup()


def verdict(outcome: str) -> Markup:
    """Whether a limit holds, marked as good or bad if that is known."""
    kinds = {"met": {"class": "good"}, "missed": {"class": "bad"}}
    return tag("span", outcome, attributes=kinds.get(outcome))


def capitalised(text: str) -> str:
    """Text whose first letter is a capital one; the others stay as they are."""
    return text[:1].upper() + text[1:]


def definitions(pairs: Iterable[tuple[object, object]]) -> Markup:
    """A list of names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def section(heading: str, *parts: object) -> Markup:
    """A heading with its parts; empty if all parts are empty."""
    filled = [part for part in parts if part]
    return tag("section", tag("h2", heading), *filled) if filled else Markup()


def details(summary: object, *parts: object) -> Markup:
    """Parts that are hidden until the reader opens the summary."""
    return tag("details", tag("summary", summary), *parts)


def packed_plotly() -> str:
    """plotly.js, which every page contains, packed for page.js; the only place that needs the plotly package."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackage("plotly is not installed. Install it with: pip install 'aacp[report]'.") from error
    return _packed(get_plotlyjs())


@cache
def _packed(source: str) -> str:
    """Text deflated and in base64: 2 MB of the 5 MB of plotly.js; a higher level takes twice as long and saves 4 %."""
    return base64.b64encode(zlib.compress(source.encode(), level=4)).decode()
