"""What the README shows, runs; what it names, is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import aacp
from aacp.cli import main
from aacp.pipeline import pruning
from graph.oracles import counted_macs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """So small a network gains nothing from more, and loses much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_runs_as_it_stands(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pruning, "export_both", lambda *_: None)  # most of the time, and tested elsewhere
    scope: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), scope)
    model, smaller, x = scope["model"], scope["smaller"], (torch.randn(1, 1, 8, 8),)
    assert 2 * counted_macs(smaller, x) <= counted_macs(model, x)  # type: ignore[arg-type]
    sizes = [sum(p.numel() for p in network.parameters()) for network in (smaller, model)]  # type: ignore[attr-defined]
    assert sizes[0] <= 0.7 * sizes[1]
    pruned = scope["pruned"]
    assert isinstance(pruned, aacp.Pruned)
    assert pruned.evaluation.after.test > pruned.evaluation.before.test - 0.05


def test_the_table_of_commands_has_them_all() -> None:
    assert set(re.findall(r"^\| `aacp (\w+)", README, flags=re.MULTILINE)) == set(main.commands)


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
