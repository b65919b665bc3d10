"""Registered sections: their order, their content, and errors in one of them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aacp
from aacp.errors import InvalidOption, MissingPackage
from aacp.report import registry
from aacp.report.html import Figure, Grid, table
from aacp.report.page import write_report
from aacp.report.run import Run
from report.pages import Page
from report.runs import Made

JOULES = Figure("joules", "Energy of each group.", [{"type": "bar", "x": ["conv1"], "y": [0.5]}])


@pytest.fixture(autouse=True)
def _only_built_in_sections_afterwards() -> Iterator[None]:
    before = list(registry.SECTIONS)
    yield
    registry.SECTIONS[:] = before


def page_of(made: Made, tmp_path: Path) -> Page:
    return Page(write_report(made.path, tmp_path / "report.html"))


def energy(run: Run) -> list[Any]:
    assert run.graph is not None
    words = f"{run.name} has {len(run.graph.groups)} groups."
    return [words, table("Energy per image.", ("group", "joules"), [("conv1", 0.5)]), JOULES]


def test_a_users_section_shows_text_a_table_and_a_figure_of_the_run(made: Made, tmp_path: Path) -> None:
    aacp.register_section("Energy use", energy, after="limits")
    page = page_of(made, tmp_path)
    assert page.headings[page.headings.index("Limits") + 1] == "Energy use"
    assert f"r20 has {len(made.graph.groups)} groups." in page.text
    assert page.row("conv1") == ["0.5"]
    assert page.figures["run0-Energy-use-joules"]["data"] == JOULES.traces


def test_by_default_a_section_is_the_last_one(made: Made, tmp_path: Path) -> None:
    aacp.register_section("Remarks", lambda run: "checked by hand")
    assert page_of(made, tmp_path).headings[-1] == "Remarks"


def test_a_section_can_follow_a_registered_one_and_replaces_one_of_its_name(made: Made, tmp_path: Path) -> None:
    aacp.register_section("First", lambda run: "old words")
    aacp.register_section("Second", lambda run: "second", after="First")
    aacp.register_section("First", lambda run: "new words")
    page = page_of(made, tmp_path)
    assert sorted(page.headings[-2:]) == ["First", "Second"]
    assert page.headings.count("First") == 1
    assert "new words" in page.text
    assert "old words" not in page.text


def test_a_built_in_section_can_be_replaced(made: Made, tmp_path: Path) -> None:
    aacp.register_section("search", lambda run: Grid([JOULES]), after="limits")
    page = page_of(made, tmp_path)
    assert "Search" not in page.headings
    assert "run0-search-joules" in page.figures


@pytest.mark.parametrize("nothing", [None, [], [None, None], Grid([])])
def test_a_section_without_content_is_left_out(made: Made, tmp_path: Path, nothing: Any) -> None:
    aacp.register_section("Empty", lambda run: nothing)
    assert "Empty" not in page_of(made, tmp_path).headings


def test_hostile_text_of_a_section_is_escaped(made: Made, tmp_path: Path) -> None:
    hostile = "</p><script>alert(1)</script>"
    shown = Figure("x", hostile, [{"type": "bar", "name": hostile}])
    before = page_of(made, tmp_path).elements
    aacp.register_section(hostile, lambda run: [hostile, table(hostile, (hostile,), [(hostile,)]), shown])
    page = page_of(made, tmp_path)
    assert hostile in page.text
    assert page.elements["script"] == before["script"] + 1  # the data of the figure


def test_a_section_that_fails_is_named_and_the_rest_is_shown(made: Made, tmp_path: Path) -> None:
    def fails(run: Run) -> str:
        raise ValueError("no <meter> attached")

    aacp.register_section("Energy", fails, after="costs")
    page = page_of(made, tmp_path)
    assert "This section could not be drawn. Its function raised ValueError: no <meter> attached." in page.text
    assert page.headings[-1] == "How to reproduce"


def test_a_place_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(
        InvalidOption, match=r"no section to follow called 'latency'\. Choose from costs, limits, channels"
    ):
        aacp.register_section("Energy", energy, after="latency")
    assert "Energy" not in [section.name for section in registry.SECTIONS]


def test_without_plotly_the_error_says_what_to_install(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingPackage, match=r"pip install 'aacp\[report\]'"):
        write_report(made.path, tmp_path / "report.html")
