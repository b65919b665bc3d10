"""The tables of docs/search.md are computed from the raw results."""

import json
from pathlib import Path

import numpy as np
import pytest

from aacp.bench import FAMILIES, compare, fig3

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = (ROOT / "docs" / "search.md").read_text()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_regrets_on_the_page_are_those_of_the_raw_results(family: str) -> None:
    comparison = compare.Comparison(**json.loads((RESULTS / f"search_{family}.json").read_text()))
    assert {len(rows) for rows in comparison.regrets.values()} == {50}
    assert {len(row) for row in comparison.regrets_at_own_length.values()} == {50}
    head, *rows = compare.table(comparison).splitlines()[2:]
    assert f"**{family}**\n\n" + "\n".join([head, *rows]) in PAGE
    assert "\n".join(rows) in (RESULTS / f"search_{family}.md").read_text()


def test_the_table_of_fig_3_on_the_page_is_that_of_the_raw_results() -> None:
    found = json.loads((RESULTS / "fig3.json").read_text())
    assert [row["reading"] for row in found] == [reading.name for reading in fig3.readings()]
    for row in found:
        assert len(row["solved_at"]) == len(row["final"]) == 50
        early, late = (np.mean([at is not None and at <= mark for at in row["solved_at"]]) for mark in (300, 1000))
        middle = sorted(1001 if at is None else at for at in row["solved_at"])[25]
        median = "-" if middle > 1000 else middle
        line = f"| {100 * early:.0f} % | {100 * late:.0f} % | {median} | {np.mean(row['final']):.2f} |"
        assert f"| {row['reading']} {line}" in PAGE
