"""What aacp.pipeline.advice says before a search was measured."""

from __future__ import annotations

import aacp
from aacp.pipeline.advice import LONG_TRAINING, SHORT_TRAINING, UNIFORM_RATE, advice_on_repair
from evidence.of_advice import an_estimate_with_repair_takes, points_of_the_repaired_search
from evidence.of_resnet56 import search_is_worth
from evidence.raw import raw


def test_the_advice_to_repair_is_what_was_measured() -> None:
    worth = list(points_of_the_repaired_search())
    assert min(worth) > -0.05  # which is rounded to 0.0
    plan = aacp.Plan(recipe=aacp.Recipe(epochs=SHORT_TRAINING, batch_size=1, lr=1), reconstruction=None)
    advice = advice_on_repair(plan)
    assert f"ended {abs(min(worth)):.1f} to {max(worth):.1f} points higher" in advice
    assert f"an estimate takes {an_estimate_with_repair_takes():.1f} times as long" in advice


def test_the_advice_to_leave_out_a_search_is_what_was_measured() -> None:
    commands = [row["command"] for row in raw("prune_cifar10_finetune_mixed.json")["rows"]]
    assert {int(command[command.index("--epochs") + 1]) for command in commands} == {LONG_TRAINING}
    assert {float(command[command.index("--prune-macs") + 1]) for command in commands} == {UNIFORM_RATE}
    assert abs(search_is_worth("-50 %", "")) < 0.1
