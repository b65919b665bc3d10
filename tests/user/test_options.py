"""An unknown option is answered with the one that was probably meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import aacp

CASES: list[tuple[Callable[..., Any], str, str]] = [
    (aacp.Plan, "evals", "Plan has no option evals. Give evaluations."),
    (aacp.Plan, "epochs", "Plan has no option epochs. Give recipe=aacp.Recipe(epochs=...)."),
    (
        aacp.Plan,
        "runtime",
        "Plan has no option runtime. Give deployment=aacp.Deployment(runtime=...).",
    ),
    (aacp.Recipe, "learning_rate", "Recipe has no option learning_rate. Choose from epochs, batch_size, lr, "),
    (aacp.Deployment, "thread", "Deployment has no option thread. Give threads."),
    (aacp.prune, "evaluations", "prune has no option evaluations. Give plan=aacp.Plan(evaluations=...)."),
    (aacp.prune, "epochs", "prune has no option epochs. Give plan=aacp.Plan(recipe=aacp.Recipe(epochs=...))."),
    (aacp.prune, "process", "prune has no option process. Give processes."),
    (aacp.find, "max_drop", "find has no option max_drop. Give plan=aacp.Plan(max_drop=...)."),
    (aacp.sweep, "known", "sweep has no option known. "),
    (aacp.fit, "epochs", "fit has no option epochs. Give recipe=aacp.Recipe(epochs=...)."),
    (aacp.finetune, "teachers", "finetune has no option teachers. Give teacher."),
    (aacp.train_from_scratch, "hold_out", "train_from_scratch has no option hold_out. Give holdout."),
    (aacp.Data.of, "hold_out", "Data.of has no option hold_out. Give holdout."),
    (aacp.Data.of, "batch", "Data.of has no option batch. Choose from train, test, holdout, seed, name."),
    (aacp.trace, "freeze", "trace has no option freeze. Give frozen."),
]


@pytest.mark.parametrize(("target", "option", "message"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_an_unknown_option_is_answered_with_a_known_one(target: Callable[..., Any], option: str, message: str) -> None:
    with pytest.raises(aacp.InvalidOption) as caught:
        target(**{option: 1})
    assert str(caught.value).startswith(message)


def test_a_changed_plan_rejects_unknown_options_too() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"Plan has no option evals\. Give evaluations"):
        replace(aacp.Plan(), evals=3)  # type: ignore[call-arg]


def test_known_options_are_those_of_the_signature() -> None:
    assert aacp.Plan(evaluations=3).evaluations == 3
    assert list(inspect.signature(aacp.Plan).parameters)[:2] == ["pruning_step", "method"]
