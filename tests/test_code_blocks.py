"""Every Python block of README.md and docs/ runs as it stands, in the order of its page.

A page may assume names that a reader has: a trained model, loaders, her own functions. `tests/preludes/PAGE.py` defines
them. `aacp.prune` and `aacp.sweep` get a small plan where the page leaves the plan out, and no page writes ONNX files
unless it calls `export_onnx` itself.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import aacp

ROOT = Path(__file__).parent.parent
PRELUDES = Path(__file__).parent / "preludes"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
SMALL = aacp.Plan(
    evaluations=3,
    recipe=aacp.Recipe(epochs=1, batch_size=32, lr=0.02, distillation=0.5),
    calibration_images=64,
    export=False,
)


def blocks(page: Path) -> Iterator[types.CodeType]:
    """The code blocks of a page, compiled so that a traceback names the page and the line."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        lines_before = text[: found.start(1)].count("\n")
        yield compile("\n" * lines_before + found[1], str(page), "exec")


def with_small_plan(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a small plan where none is given."""

    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **{"plan": SMALL, **options})

    return call


@pytest.fixture
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks as small as these are slower with two
    for name in ("prune", "sweep"):
        monkeypatch.setattr(aacp, name, with_small_plan(getattr(aacp, name)), raising=False)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_runs")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "page"}
    prelude = PRELUDES / f"{page.stem}.py"
    if prelude.exists():
        exec(compile(prelude.read_text(), str(prelude), "exec"), scope)
    for block in blocks(page):
        exec(block, scope)


def test_the_line_of_a_block_is_that_of_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nfirst = 1\n```\n\ntext\n\n```python\nsecond = first / 0\n```\n")
    scope: dict[str, Any] = {}
    first, second = blocks(page)
    exec(first, scope)
    with pytest.raises(ZeroDivisionError) as caught:
        exec(second, scope)
    assert caught.traceback[-1].lineno + 1 == 10
