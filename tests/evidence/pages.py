"""The numbers and the tables of a page.

The form of a number decides whether it looks measured: it has a decimal point, a deviation or the unit of a measure,
or it counts a part of a whole ("210 of 210"). Code, headings, link targets and negative whole percentages, such as the
limits "-50 %", do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from evidence.claims import Claim, Head, Row
from evidence.raw import ROOT

PAGES = ("README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md")))
CODE_BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
# Inline code, targets of links, names of files and versions: digits in them are part of a name.
NAME = re.compile(
    r"`[^`]*`|\]\([^)]*\)|https?://\S+"
    r"|\b(?:Python|torch|torchvision|ModelOpt|Torch-Pruning|Sec\.|Fig\.|Table|Alg\.|Eq\.|version|Apache|opset)"
    r"[ -]?v?\d[\d.+]*\w*"
    r"|\b\d+\.\d+\.\d+\b"
)
UNIT = (
    r"(?:%|points?|s|ms|µs|seconds?|milliseconds?|microseconds?|minutes?|hours?|times|kJ|J|W|kB|KB|MB|GB|KiB|MiB|GiB"
    r"|of(?= (?:the )?\d))"
)
NUMBER = re.compile(rf"(?<![\w.,])[-+]?(?P<digits>\d[\d,]*(?:\.\d+)?(?<!,))(?=(?P<unit> ?{UNIT}(?![\w/]))?)")
LISTED = re.compile(r"(?:,| to| and| or|, and) (?:at )?")


@cache
def text_of(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text()


@cache
def prose(page: str) -> str:
    """The sentences of a page on one line, without blocks of code, tables and headings."""
    text = TABLE.sub("", CODE_BLOCK.sub("", text_of(page)))
    return " ".join(re.sub(r"^#+ .*$", "", text, flags=re.MULTILINE).split())


def tables(page: str) -> dict[Head, list[Row]]:
    """The rows of the tables of a page, by the first two cells of their heading; equal headings have all their rows."""
    found: dict[Head, list[Row]] = {}
    for block in TABLE.findall(CODE_BLOCK.sub("", text_of(page))):
        head, _, *rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in block.splitlines()]
        found.setdefault((head[0], head[1]), []).extend(rows)
    return found


def measured_numbers(text: str) -> list[tuple[int, int]]:
    """Where the numbers of a text are that have the form of a measurement.

    A number without a unit shares that of a list: "10, 12 and 15 s" and "2 to 3 s" are measured.
    """
    named = NAME.sub(lambda name: " " * len(name[0]), text)
    found = list(NUMBER.finditer(named))
    spans: list[tuple[int, int]] = []
    shared = False  # whether the next number has a unit and is in one list with this one
    for number, following in zip(reversed(found), [None, *reversed(found)], strict=False):
        between = named[number.end() : following.start()] if following is not None else ""
        shared = shared and LISTED.fullmatch(between) is not None
        has_deviation = named[number.end() :].startswith(" ±") or named[: number.start()].endswith("± ")
        is_measured = "." in number["digits"] or number["unit"] is not None or has_deviation or shared
        shared = is_measured
        is_limit = number[0].startswith("-") and "." not in number["digits"] and (number["unit"] or " %") == " %"
        if is_measured and not is_limit:
            spans.append(number.span("digits"))
    return spans[::-1]


def covered(text: str, claims: Iterable[Claim]) -> list[tuple[int, int]]:
    """Where the computed values of claims are, wherever a text contains the claim."""
    return [
        (place.start() + begin, place.start() + end)
        for claim in claims
        for place in re.finditer(re.escape(claim.text), text)
        for begin, end in claim.computed()
    ]


def untraced(text: str, claims: Iterable[Claim], exceptions: Iterable[str] = ()) -> list[str]:
    """The numbers of a text that look measured, and are neither computed by a claim nor part of an exception.

    Args:
        text: the text.
        claims: the claims about it.
        exceptions: parts of it whose numbers were not measured.
    """
    whole = [Claim("{}", (words,)) for words in exceptions]
    known = covered(text, [*claims, *whole])
    return [
        f"{text[max(0, begin - 60) : begin]}>>{text[begin:end]}<<{text[end : end + 30]}"
        for begin, end in measured_numbers(text)
        if not any(first <= begin and end <= last for first, last in known)
    ]
