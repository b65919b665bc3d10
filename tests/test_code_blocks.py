"""Every Python block of README.md and docs/ runs as it stands, in the order of its page.

A page may assume names that a reader has: a trained model, loaders, her own functions. `tests/preludes/PAGE.py` defines
them. It also has stand-ins for packages that are not dependencies: loggers, and ultralytics for docs/yolo.md. Whole
runs get a small plan, training takes few epochs of few images, latencies are measured briefly, and functions for
several processes run in this one. No page writes ONNX files unless it calls `export_onnx` itself.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aacp
from aacp.graph.masking import MASKED_OPERATORS
from aacp.graph.rules import RULES
from aacp.latency.runtimes.registry import _runtimes as registered_runtimes
from aacp.report.registry import SECTIONS
from fenced_blocks import fenced_blocks
from graph.oracles import counted_macs

ROOT = Path(__file__).parent.parent
PRELUDES = Path(__file__).parent / "preludes"
README = ROOT / "README.md"
LANGUAGES = ("python", "py")
WITH_CODE = [page for page in sorted((ROOT / "docs").glob("*.md")) if any(fenced_blocks(page, *LANGUAGES))]
original_check, original_measurement, original_data = aacp.check_latency, aacp.measure_latency, aacp.load_data
SMALL = aacp.Plan(
    evaluations=3,
    recipe=aacp.Recipe(epochs=1, batch_size=32, lr=0.02, distillation=0.5),
    calibration_images=64,
    export=False,
)


def blocks(page: Path) -> Iterator[types.CodeType]:
    """The code blocks of a page, compiled so that a traceback names the page and the line."""
    for lines_before, code in fenced_blocks(page, *LANGUAGES):
        yield compile("\n" * lines_before + code, str(page), "exec")


def small(plan: aacp.Plan) -> aacp.Plan:
    """The plan with a short search, a short training and without ONNX files."""
    evaluations = min(plan.search_length, SMALL.search_length)
    images = min(plan.calibration_images, SMALL.calibration_images)
    probe_epochs = min(plan.probe_epochs, 1)
    recipe = plan.recipe and SMALL.recipe
    short = replace(plan, evaluations=evaluations, calibration_images=images, probe_epochs=probe_epochs)
    return replace(short, recipe=recipe, export=False)


def with_small_plan(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a small form of the given plan, or of the default plan."""

    def call(*arguments: Any, plan: aacp.Plan = SMALL, **options: Any) -> Any:
        return function(*arguments, plan=small(plan), **options)

    return call


def with_options(function: Callable[..., Any], **forced: Any) -> Callable[..., Any]:
    """The function with some options that replace those of the page."""

    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **{**options, **forced})

    return call


def with_few_epochs(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with one epoch of its recipe."""

    def call(*arguments: Any, **options: Any) -> Any:
        given = inspect.signature(function).bind(*arguments, **options)
        given.apply_defaults()
        recipe = given.arguments["recipe"]
        given.arguments["recipe"] = recipe.scaled(1)
        return function(*given.args, **given.kwargs)

    return call


def with_few_images(name: str, **options: Any) -> aacp.Data:
    """`load_data` with the first images of a training set alone."""
    whole = original_data(name, **options)
    return replace(whole, train=whole.train.subset(range(320)))


def in_torch(where: aacp.Deployment) -> aacp.Deployment:
    """The deployment in torch in place of ONNX Runtime, whose exports take most of the time."""
    return replace(where, runtime="torch") if where.runtime == "onnxruntime" else where


def brief_check(model: Any, graph: Any, structures: Any, where: Any, *, example: Any) -> list[aacp.LatencyCheck]:
    """`check_latency` in few turns."""
    return original_check(model, graph, structures, in_torch(where), example=example, turns=3)


def brief_measurement(model: Any, graph: Any, space: Any, where: Any, **options: Any) -> aacp.LatencyTable:
    """`measure_latency` of few structures."""
    effort = {"structures": 6, "held_out": 2, "seconds_per_structure": 0.01}
    return original_measurement(model, graph, space, in_torch(where), **{**options, **effort})


@pytest.fixture(autouse=True)
def _restored_registries() -> Iterator[None]:
    """Forget what a page registers: other tests of the process expect the built-in parts alone."""
    registries = (RULES, MASKED_OPERATORS, registered_runtimes)
    before = [dict(registry) for registry in registries]
    sections = list(SECTIONS)
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)
    SECTIONS[:] = sections


@pytest.fixture
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks as small as these are slower with two
    replaced = {
        "find": with_small_plan(aacp.find),
        "prune": with_small_plan(aacp.prune),
        "sweep": with_small_plan(aacp.sweep),
        "measure_latency": brief_measurement,
        "run_search": with_options(aacp.run_search, evaluations=3),
        "fit": with_few_epochs(aacp.fit),
        "finetune": with_few_epochs(aacp.finetune),
        "train_from_scratch": with_few_epochs(aacp.train_from_scratch),
        "check_latency": brief_check,
        "load_data": with_few_images,
        "run_in_processes": with_options(aacp.run_in_processes, processes=1),
    }
    for name, function in replaced.items():
        monkeypatch.setattr(aacp, name, function, raising=False)
    yield
    torch.set_num_threads(threads)


def run(page: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that are defined after the prelude and the blocks of a page were run."""
    scope: dict[str, Any] = {"__name__": "page"}
    prelude = PRELUDES / f"{page.stem}.py"
    if prelude.exists():
        exec(compile(prelude.read_text(), str(prelude), "exec"), scope)
    for name, module in scope.get("stand_ins", {}).items():
        monkeypatch.setitem(sys.modules, name, module)
    for block in blocks(page):
        exec(block, scope)
    return scope


@pytest.mark.slow
@pytest.mark.usefixtures("_small_runs")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope = run(page, monkeypatch)
    assert scope
    for logger, found in scope.get("logged", {}).items():
        assert {"search/best", "train/loss", "done/after/test"} <= {name for name, _, _ in found}, logger
        assert [step for name, _, step in found if name == "search/score"] == [1, 2, 3], logger


@pytest.mark.slow
@pytest.mark.usefixtures("_small_runs")
def test_the_five_lines_of_the_readme_halve_the_macs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope = run(README, monkeypatch)
    example = (torch.randn(1, 1, 8, 8),)
    model, smaller = scope["model"], scope["smaller"]
    assert 2 * counted_macs(smaller, example) <= counted_macs(model, example)
    sizes = [sum(parameter.numel() for parameter in network.parameters()) for network in (smaller, model)]
    assert sizes[0] <= 0.7 * sizes[1]


PAGE = """# A page

```py
first = 1
```

- item

  ```python title="second.py"
  second = first / 0
  ```

```
no Python
```
"""


def test_every_python_block_is_taken_and_its_line_is_that_of_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    scope: dict[str, Any] = {}
    first, second = blocks(page)
    exec(first, scope)
    with pytest.raises(ZeroDivisionError) as caught:
        exec(second, scope)
    assert caught.traceback[-1].lineno + 1 == 10
