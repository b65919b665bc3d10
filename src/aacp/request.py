"""Asking: what a run is asked for, written down once; the same command must ask the same."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp import __version__
from aacp.bench.provenance import processor
from aacp.data.splits import Data
from aacp.errors import RunMismatch
from aacp.folder import RunFolder
from aacp.graph.program import named_tensors
from aacp.plan import Plan
from aacp.records import RUN, Request
from aacp.train.seeding import digest

CIRCUMSTANCES = ("command", "versions", "hardware", "started")  # may differ from call to call


def ask(folder: RunFolder, model: nn.Module, name: str, data: Data, plan: Plan, score: Callable[..., Any]) -> Request:
    """Write down what is asked of a run, or make sure that it is what was asked of it before."""
    asked = _request(model, name, data, plan, score)
    known = folder.read_json(RUN)
    if known is None:
        folder.write_json(RUN, asked.to_json())
        return asked
    before = Request.from_json(known)
    for field in fields(Request):
        one, other = (_plain(getattr(request, field.name)) for request in (before, asked))
        if field.name not in CIRCUMSTANCES and one != other:
            raise RunMismatch(
                f"{folder.path} holds a run with {field.name} {one!r}, but {other!r} was asked for. "
                "Ask for the same again, or choose another folder."
            )
    return before


def _request(model: nn.Module, name: str, data: Data, plan: Plan, score: Callable[..., Any]) -> Request:
    return Request(
        command=shlex.join(sys.argv),
        model=name,
        weights=digest(value for _, value in named_tensors(model)),
        data=data.name,
        limits=plan.limits,
        pruning_step=_plain(plan.pruning_step),
        method=plan.method,
        evaluations=plan.evaluations,
        recipe=None if plan.recipe is None else plan.recipe.to_json(),
        from_scratch=plan.from_scratch,
        importance=plan.importance if isinstance(plan.importance, str) else _name(plan.importance),
        calibration_images=plan.calibration_images,
        frozen=plan.frozen,
        scope=plan.scope,
        seed=plan.seed,
        versions={"aacp": __version__, "python": platform.python_version(), "torch": torch.__version__}
        | {"numpy": np.__version__},
        hardware=torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        started=datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        metric=_name(score),
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _plain(value: Any) -> Any:
    """A value as it reads when it comes back from JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
