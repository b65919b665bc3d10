"""Every trial of the authors' methods is scored on the whole hold-out, so that Eq. 12 compares like with like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

import aacp
from glue.subjects import SIZES, data, watermarks

pytestmark = pytest.mark.slow

EVALUATIONS = 24  # with ten individuals, two generations


@pytest.mark.parametrize("method", ["paper", "released"])
def test_every_score_of_a_search_is_of_all_held_out_images(method: str, model: nn.Module, tmp_path: Path) -> None:
    """Seen from outside: torch calls a hook at every pass, and each image shows its part and position."""
    passes: list[set[tuple[str, int]]] = []

    def note(module: nn.Module, arguments: Any) -> None:
        inputs = arguments[0] if arguments else None
        is_network = any(True for _ in module.children())
        if is_network and type(inputs) is Tensor and inputs.shape[1:] == (1, 8, 8):
            passes.append(watermarks(inputs))

    plan = aacp.Plan(
        method=method, evaluations=EVALUATIONS, recipe=None, reconstruction=None, calibration_images=16, export=False
    )
    hook = register_module_forward_pre_hook(note)
    try:
        aacp.prune(model, data(), {"macs": 0.3}, tmp_path, plan=plan, device="cpu")
    finally:
        hook.remove()
    scored = held_out_between_recalibrations(passes)
    assert len(scored) >= EVALUATIONS
    assert [len(positions) for positions in scored] == [SIZES["holdout"]] * len(scored)


def held_out_between_recalibrations(passes: list[set[tuple[str, int]]]) -> list[set[int]]:
    """The held-out images after each recalibration, which reads training images; single examples do not count."""
    groups: list[set[int]] = [set()]
    for seen in passes:
        if any(part == "train" for part, _ in seen):
            groups.append(set())
        groups[-1] |= {position for part, position in seen if part == "holdout"}
    return [group for group in groups if len(group) > 2]
