"""Links in the documents lead to files and headings that exist, and the site shows every page and public name."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
from click import Option

import aacp
from aacp.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def prose(text: str) -> str:
    """Return Markdown without its code, in which brackets are not links and # is not a heading."""
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*\]\([^`\n]*`", "", without_blocks)


def links(text: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)) if "://" not in target]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, formed as repository hosts form them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(text), flags=re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return names


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in links(page.read_text()):
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_and_their_anchors_exist(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code = "```\n# Not a heading\n[code](nowhere.py)\n```\n"
    good = "# The `first` part, twice\n# Twice\n## Twice\n[a](#the-first-part-twice) [b](page.md#twice-1) [c](http://x.y)\n"
    page.write_text(code + good)
    assert broken_links(page) == []
    page.write_text(code + good + "[d](nowhere.md) ![e](page.md#thrice) [f](#not-a-heading)\n")
    assert broken_links(page) == ["nowhere.md", "page.md#thrice", "#not-a-heading"]


def test_the_site_shows_every_page_once() -> None:
    shown = re.findall(r": ((?:docs/)?\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert sorted(shown) == sorted(["docs/api.md", *(str(page.relative_to(ROOT)) for page in PAGES)])


def test_the_api_reference_has_every_public_name_once() -> None:
    spec = importlib.util.spec_from_file_location("generate_api", ROOT / "docs" / "generate_api.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    shown = re.findall(r"^::: aacp\.(\w+)$", script.page(), flags=re.MULTILINE)
    assert sorted(shown) == sorted(aacp.__all__)


def test_the_page_about_the_command_line_has_every_command_and_option_and_no_other() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert set(re.findall(r"^\| `aacp (\w+)", page, flags=re.MULTILINE)) == set(main.commands)
    options = [option for command in main.commands.values() for option in command.params if isinstance(option, Option)]
    assert set(re.findall(r"--[a-z][a-z-]*", page)) == {option.opts[-1] for option in options} | {"--help"}


def test_the_guide_lists_every_field_of_a_plan_and_no_other() -> None:
    table = (
        (ROOT / "docs" / "your_own.md").read_text().partition("| field | default | meaning |")[2].partition("\n\n")[0]
    )
    first_cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    listed = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(field.name for field in fields(aacp.Plan))


@pytest.mark.parametrize("kind", [aacp.Plan, aacp.Recipe])
def test_the_docstring_explains_every_field(kind: type) -> None:
    explained = re.findall(r"^ {8}(\w+): \S+ \S+", kind.__doc__ or "", flags=re.MULTILINE)
    assert explained == [field.name for field in fields(kind)]
