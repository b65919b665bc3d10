"""Every number of the documents that was measured is computed from raw output, and is the one that is computed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from evidence.claims import CLAIMS, NOT_MEASURED, TABLES, Head, says
from evidence.pages import PAGES, measured_numbers, prose, tables, untraced

for file in sorted(Path(__file__).parent.glob("of_*.py")):  # they register claims and tables
    importlib.import_module(f"evidence.{file.stem}")


@pytest.mark.parametrize(("page", "name"), [(page, claims.__name__) for page, claims in CLAIMS])
def test_a_page_states_what_was_measured(page: str, name: str) -> None:
    for other, claims in CLAIMS:
        if (other, claims.__name__) == (page, name):
            found = list(claims())
            assert found != []
            assert [claim.text for claim in found if claim.text not in prose(page)] == []


@pytest.mark.parametrize(("page", "head"), list(TABLES), ids=" | ".join)
def test_a_table_has_the_numbers_of_its_raw_output(page: str, head: Head) -> None:
    assert tables(page)[head] == TABLES[page, head]()


@pytest.mark.parametrize("page", PAGES)
def test_every_measured_number_of_a_page_is_computed(page: str) -> None:
    claims = [claim for other, found in CLAIMS if other == page for claim in found()]
    assert untraced(prose(page), claims, NOT_MEASURED.get(page, ())) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_a_page_with_measured_numbers_is_computed(page: str) -> None:
    missing = {}
    for head, rows in tables(page).items():
        cells = " | ".join(cell for row in rows for cell in row)
        if (page, head) not in TABLES and (numbers := untraced(cells, [], NOT_MEASURED.get(page, ()))):
            missing[head] = numbers
    assert missing == {}


def test_no_page_has_an_exception_that_it_does_not_contain() -> None:
    for page, texts in NOT_MEASURED.items():
        cells = " ".join(cell for rows in tables(page).values() for row in rows for cell in row)
        assert [words for words in texts if words not in prose(page) and words not in cells] == []


def test_numbers_that_look_measured_are_found() -> None:
    text = (
        "It took 3.5 to 4 s with torch 2.13.0 at -50 % (see [it](a.md#5.5)), and 93.1 ± 0 % of 5,000 images. "
        "In 7 of 8 cases 12, 13 and 14 points were lost; `--lr 0.05` and 100 epochs, batches of 128."
    )
    found = [text[begin:end] for begin, end in measured_numbers(text)]
    assert found == ["3.5", "4", "93.1", "0", "7", "12", "13", "14"]


def test_a_number_is_traced_only_if_it_is_filled_in() -> None:
    text = "The search takes 4.1 s, the training 118 s."
    assert len(untraced(text, [])) == 2
    assert untraced(text, [says("takes {} s, the training {} s", "4.1", 118)]) == []
    assert len(untraced(text, [says("takes 4.1 s, the training {} s", 118)])) == 1
    assert len(untraced(text, [says("takes {} s, the training {} s", "4.2", 118)])) == 2
    assert len(untraced(text, [], ["training 118 s"])) == 1
