"""Claims: sentences and tables of the documents whose numbers are computed from raw output.

A function with the decorator `states` yields the sentences that its pages must contain. A function with the decorator
`table` returns the rows of a table. Numbers that are typed into a sentence here are not computed: only those that are
filled in count as traced. `not_measured` names the numbers of a page that look measured and are not.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

Row = tuple[str, ...]
Head = tuple[str, str]  # the first two cells of the heading of a table
Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class Claim:
    """A part of a sentence.

    Args:
        template: the words, with {} for each value.
        values: what was computed, as the page shows it.
    """

    template: str
    values: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words as the page has them."""
        return self.template.format(*self.values)

    def computed(self) -> list[tuple[int, int]]:
        """The begin and the end of each value within the text."""
        spans = []
        end = 0
        values = iter(self.values)
        for words, field, *_ in string.Formatter().parse(self.template):
            end += len(words)
            if field is not None:
                begin, end = end, end + len(next(values))
                spans.append((begin, end))
        return spans


def says(template: str, *values: object) -> Claim:
    """A claim.

    Args:
        template: the words, with {} or a form such as {:.2f} for each value.
        *values: what was computed.
    """
    parts = list(string.Formatter().parse(template))
    forms = [form or "" for _, field, form, _ in parts if field is not None]
    shown = tuple(format(value, form) for value, form in zip(values, forms, strict=True))
    plain = "".join(words + "{}" * (field is not None) for words, field, *_ in parts)
    return Claim(plain, shown)


CLAIMS: list[tuple[str, Callable[[], Iterator[Claim]]]] = []  # the page, and what yields its claims
TABLES: dict[tuple[str, Head], Callable[[], list[Row]]] = {}  # by page and heading


def states(*pages: str) -> Callable[[Function], Function]:
    """Register a function that yields claims, each of which all of the pages contain."""

    def register(claims: Function) -> Function:
        CLAIMS.extend((page, claims) for page in pages)
        return claims

    return register


def table(page: str, *head: str) -> Callable[[Function], Function]:
    """Register a function that returns the rows of the table of a page with this heading."""

    def register(rows: Function) -> Function:
        first, second = head
        TABLES[page, (first, second)] = rows
        return rows

    return register


class Origin(Enum):
    """Where a number comes from that was not measured here."""

    SETTING = "a value that is set: an option, a default, a limit, a size, a condition of a measurement"
    PUBLISHED = "published by others"
    EXACT = "follows from a definition or from other numbers of the same sentence"
    EXAMPLE = "part of an example, with made up numbers"


NOT_MEASURED: dict[str, list[str]] = {}  # texts by page


def not_measured(page: str, origin: Origin, *texts: str) -> None:
    """Name texts of a page whose numbers were not measured here, and where they come from."""
    assert isinstance(origin, Origin)
    NOT_MEASURED.setdefault(page, []).extend(texts)
