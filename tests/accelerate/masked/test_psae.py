"""PSAE with masked execution: the exported form, too little memory, and the choice of an execution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import aacp
from aacp.accelerate.masked.execution import Masked
from aacp.estimate.psae import PSAE
from estimate.small_network import CALIBRATION, IMAGES, LABELS, STRUCTURE, negative_loss, network


@pytest.fixture(scope="module")
def inheritance() -> aacp.Inheritance:
    model = network()
    return aacp.Inheritance(model, aacp.trace(model, IMAGES[:2]), CALIBRATION)


def estimated(inheritance: aacp.Inheritance, **options: Any) -> aacp.PSAE:
    return aacp.PSAE(inheritance, (IMAGES, LABELS), score=negative_loss, **options)


@pytest.mark.slow
def test_a_network_in_the_exported_form_runs_masked_and_never_sliced(inheritance) -> None:
    exported = aacp.trace(inheritance.model, IMAGES[:2], form="exported")
    of_exported = aacp.Inheritance(inheritance.model, exported, CALIBRATION)
    estimate = estimated(of_exported)
    assert estimate.execution == "masked"
    assert any("exported form" in note for note in estimate.notes)
    assert estimate(STRUCTURE) == pytest.approx(estimated(inheritance)(STRUCTURE), rel=1e-4)
    with pytest.raises(aacp.InvalidOption, match='execution="masked"'):
        estimated(of_exported, execution="sliced")


def test_sliced_execution_replaces_masked_execution_that_needs_too_much_memory(inheritance, monkeypatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    expected = estimated(inheritance)(STRUCTURE)
    estimate = estimated(inheritance, execution="masked")
    monkeypatch.setattr(Masked, "_run", run)
    assert estimate(STRUCTURE) == pytest.approx(expected, rel=1e-5)
    assert estimate.execution == "sliced"
    assert any("sliced execution from here on" in note for note in estimate.notes)


@pytest.mark.parametrize("execution", ["auto", "masked"])
def test_sliced_execution_replaces_masked_execution_that_fails_unless_it_was_requested(
    inheritance, monkeypatch, execution: str
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Unsupported dtype BFloat16")

    expected = estimated(inheritance)(STRUCTURE)
    monkeypatch.setattr("aacp.estimate.psae.accelerated", lambda name, inheritance, _: Masked(inheritance))
    estimate = estimated(inheritance, execution=execution)
    assert estimate.execution == "masked"
    monkeypatch.setattr(Masked, "_run", run)
    if execution == "masked":
        with pytest.raises(RuntimeError, match="Unsupported dtype"):
            estimate(STRUCTURE)
        return
    assert estimate(STRUCTURE) == pytest.approx(expected, rel=1e-5)
    assert estimate.execution == "sliced"
    assert (
        "Masked execution failed (RuntimeError: Unsupported dtype BFloat16): sliced execution from here on."
        in estimate.notes
    )


def test_structures_are_estimated_while_the_gpu_of_the_network_is_current(inheritance, monkeypatch) -> None:
    within: list[str] = []

    @contextmanager
    def current(device: torch.device) -> Iterator[None]:
        within.append(str(device))
        yield
        within.append("left")

    estimate = estimated(inheritance)
    monkeypatch.setattr("aacp.estimate.psae.current_gpu", current)
    monkeypatch.setattr(PSAE, "_estimate", lambda *_: within.append("estimated") or 0.5)
    monkeypatch.setattr(inheritance, "device", torch.device("cuda:1"))
    estimate(STRUCTURE)
    assert within == ["cuda:1", "estimated", "left"]


def test_auto_is_sliced_on_a_cpu_and_masked_only_on_request(inheritance) -> None:
    assert estimated(inheritance).execution == "sliced"
    assert estimated(inheritance, execution="masked").execution == "masked"


def test_masked_execution_needs_images_of_one_shape_and_says_so(inheritance) -> None:
    several = [torch.randn(2, 3, 8, 8), torch.randn(2, 3, 6, 6)]
    mixed = aacp.Inheritance(inheritance.model, inheritance.graph, several)
    with pytest.raises(aacp.InvalidData, match=r'several shapes.*execution="sliced"'):
        estimated(mixed, execution="masked")
