"""What the README shows, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from graph.oracles import counted_macs

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_runs_as_it_stands(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), scope)
    assert "network output" in capsys.readouterr().out
    model, smaller, x = scope["model"], scope["smaller"], (torch.randn(1, 3, 32, 32),)
    assert 2 * counted_macs(smaller, x) <= counted_macs(model, x)  # type: ignore[arg-type]
    sizes = [sum(p.numel() for p in network.parameters()) for network in (smaller, model)]  # type: ignore[attr-defined]
    assert sizes[0] <= 0.7 * sizes[1]


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
