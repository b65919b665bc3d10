"""What a notebook shows: short representations, and tables whose text is escaped. The demo's notebook runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import aacp
from aacp.user.notebook import html_table
from aacp.zoo import networks
from aacp.zoo.networks import ResNet
from pipeline.tiny_run import UNTRAINED, data, network, pruned
from test_code_blocks import with_few_epochs, with_small_plan

DEMO = Path(__file__).parents[2] / "examples" / "demo.ipynb"


class Cells(HTMLParser):
    """The text of the cells of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, text: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += text


def test_text_of_a_table_cannot_be_markup() -> None:
    text = html_table("<b>", ("<i>",), [("<script>alert(1)</script>",)])
    assert "<script>" not in text
    assert Cells(text).rows == [["<i>"], ["<script>alert(1)</script>"]]


def test_a_graph_is_a_line_and_a_table_of_its_groups() -> None:
    graph = aacp.trace(network(), torch.zeros(1, 1, 8, 8))
    assert repr(graph).startswith("<ChannelGraph Tiny: ")
    assert "\n" not in repr(graph)
    head, *groups = Cells(graph._repr_html_()).rows
    assert head == ["group", "channels", "layers", "state"]
    assert [row[0] for row in groups] == [group.name for group in graph.groups]


def test_a_history_is_a_line_and_a_table_of_the_best() -> None:
    history = aacp.History(aacp.Candidate(place, 0, aacp.Structure([place + 1]), place / 20) for place in range(20))
    assert repr(history) == "<History of 20 candidates, best 0.9500 (number 19)>"
    rows = Cells(history._repr_html_()).rows
    assert len(rows) == 11
    assert rows[1] == ["19", "0", "0.9500", "[20]"]
    assert repr(aacp.History()) == "<History of 0 candidates>"
    assert Cells(aacp.History()._repr_html_()).rows == [["number", "generation", "score", "kept"]]


@pytest.mark.slow
def test_a_result_is_a_line_and_the_table_of_its_summary(tmp_path: Path) -> None:
    found = pruned(tmp_path, plan=UNTRAINED)
    assert repr(found).startswith("<Pruned Tiny, macs: ")
    assert len(repr(found)) < 100 + len(str(tmp_path))
    rows = dict(row for row in Cells(found._repr_html_()).rows if len(row) == 2)
    for name in ("macs", "weight_bytes", "test score", "kept"):
        assert f"{name}: {rows[name]}" in str(found)


def test_what_was_found_is_a_line_and_the_table_of_its_summary() -> None:
    plan = aacp.Plan(evaluations=2, calibration_images=16)
    found = aacp.find(network(), torch.randn(16, 1, 8, 8), {"macs": 0.4}, plan=plan, device="cpu")
    assert repr(found).startswith("<Found Tiny, macs: ")
    assert "\n" not in repr(found)
    _, *rows = Cells(found._repr_html_()).rows
    assert [f"{name}: {value}" for name, value in rows] == str(found).splitlines()
    assert [name for name, _ in rows] == ["macs", "estimated score", "channels"]


@pytest.mark.slow
def test_a_sweep_is_a_line_and_a_row_for_each_budget(tmp_path: Path) -> None:
    budgets = [{"macs": 0.3}, {"macs": 0.5}]
    found = aacp.sweep(network(), data(), budgets, tmp_path, plan=aacp.Plan(evaluations=2, recipe=None))
    assert repr(found) == f"<Sweep of 2 budgets, in {tmp_path}>"
    assert [row[0] for row in Cells(found._repr_html_()).rows[1:]] == ["macs-0.3", "macs-0.5"]


class Narrow(ResNet):
    """The network of the demo with a third of its channels, which trains in less time."""

    def __init__(self, blocks: int, widths: Sequence[int], input_size: tuple[int, int, int]) -> None:
        super().__init__(blocks, [width // 3 for width in widths], input_size=input_size)


@pytest.mark.slow
def test_the_cells_of_the_demo_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # other tests of this process use them
    monkeypatch.setattr(networks, "ResNet", Narrow)
    monkeypatch.setattr(aacp, "prune", with_small_plan(aacp.prune), raising=False)
    monkeypatch.setattr(aacp, "fit", with_few_epochs(aacp.fit), raising=False)
    cells = [cell for cell in json.loads(DEMO.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    scope: dict[str, object] = {}
    for place, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {place} of {DEMO.name}", "exec"), scope)
    found = scope["pruned"]
    assert found.evaluation.after.macs <= 0.5 * found.evaluation.before.macs
    assert len(scope["best"]) == len((tmp_path / "runs" / "notebook" / "history.jsonl").read_text().splitlines())
