"""Asking: what a run is asked for, written down once; the same command must ask the same."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aacp.artefact.header import ARTEFACT
from aacp.errors import RunMismatch
from aacp.latency.deployment import Deployment
from aacp.modules import named_tensors
from aacp.pipeline.latency_stage import TABLE
from aacp.pipeline.plan import Plan
from aacp.pipeline.targets import in_words
from aacp.pipeline.task import PruningTask
from aacp.runs.files import GRAPH, RUN, Request, Target
from aacp.runs.folder import RunFolder
from aacp.runs.provenance import processor
from aacp.train.recipe import Recipe
from aacp.train.seeding import digest
from aacp.version import __version__

# A request, what was traced for it, and tables of latency, which know themselves what they are good for.
PRELIMINARY = (RUN, GRAPH, ".lock", TABLE, f"{TABLE}.log")
LONGEST = 60  # letters of a setting in a message
TRAINING = ("recipe", "from_scratch", "train_on_holdout", "loss")  # what a mere search may be asked afterwards
SOURCES = ("data_source", "metric_source", "loss_source")
# What may differ between calls.
CIRCUMSTANCES = ("command", "versions", "hardware", "started", "export", "weights_file", *SOURCES)
ESTIMATE = ("weights", "data", "metric", "importance", "calibration_images", "frozen", "scope")  # what scores depend on


def ask(
    folder: RunFolder, subject: PruningTask, limits: tuple[Target, ...], plan: Plan, known_from: tuple[str, ...] = ()
) -> Request:
    """Write down what is asked of a run, or make sure that it is what was asked of it before.

    A run that was only searched so far may be asked to train, and any run to export or not.
    """
    asked = request_of(subject, limits, plan, known_from)
    known = folder.read_json(RUN)
    if known is None or _is_fruitless(folder):
        (folder.path / GRAPH).unlink(missing_ok=True)  # perhaps of another question
        folder.write_json(RUN, asked.to_json())
        return asked
    before = replace(Request.from_json(known), export=asked.export)
    if before.recipe is None and not (folder.path / ARTEFACT).exists():
        before = replace(before, **{name: getattr(asked, name) for name in TRAINING})
    if before.recipe is not None:
        before = replace(before, recipe=Recipe.completed(before.recipe))
    names = [field.name for field in fields(Request) if field.name not in CIRCUMSTANCES]
    require_same(folder, before, asked, names, "Ask for the same again, or choose another folder.")
    folder.write_json(RUN, before.to_json())
    return before


def _is_fruitless(folder: RunFolder) -> bool:
    """Whether nothing has come of a run yet that another question would make wrong, as if it had been refused."""
    return all(path.name in PRELIMINARY for path in folder.path.iterdir())


def require_same(folder: RunFolder, before: Request, asked: Request, names: Sequence[str], advice: str) -> None:
    """Refuse, setting by setting, what differs from what a folder's run was asked."""
    differing = list(_differences("", *(_settings(request, names) for request in (before, asked))))
    if differing:
        raise RunMismatch(f"{folder.path} holds a run that was asked otherwise: {'; '.join(differing)}. {advice}")


def _settings(request: Request, names: Sequence[str]) -> dict[str, Any]:
    """What was asked, as it reads when it comes back from JSON; each limit by its cost, in words."""
    told = {name: _plain(getattr(request, name)) for name in names if name != "limits"}
    limits = {limit.cost: in_words(limit) for limit in request.limits} if "limits" in names else {}
    return limits | told


def _differences(name: str, then: Any, now: Any) -> Iterator[str]:
    """What was asked of a setting and what is asked now, where that differs; settings within it one by one."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in {**then, **now}:
            yield from _differences(f"{name} {key}".strip(), then.get(key), now.get(key))
    elif then != now:
        yield f"{name.replace('_', ' ')}: {_words(then)} then, {_words(now)} now"


def _words(value: Any) -> str:
    """A setting for people, in short."""
    if value is None or isinstance(value, bool):
        return {None: "none", False: "no", True: "yes"}[value]
    if isinstance(value, dict):
        value = [f"{key} {_words(item)}" for key, item in value.items()]
    text = ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def read_request(folder: RunFolder) -> Request:
    """What a folder's run was asked."""
    known = folder.read_json(RUN)
    if known is None:
        raise RunMismatch(f"{folder.path} holds no run. Give the folder of one, or begin one there with aacp search.")
    return Request.from_json(known)


def plan_of(request: Request, **otherwise: Any) -> Plan:
    """The plan that was asked for, but with its recipe and other fields as they are given."""
    asked = {field.name: getattr(request, field.name) for field in fields(Plan)}
    step, where = request.pruning_step, Deployment(**(request.deployment or {}))
    asked |= {"pruning_step": tuple(step) if isinstance(step, list) else step, "deployment": where}
    return Plan(**asked | otherwise)


def request_of(
    subject: PruningTask, limits: tuple[Target, ...], plan: Plan, known_from: tuple[str, ...] = ()
) -> Request:
    """What is asked, as it is written down: every field of the plan, and where and with what the run begins."""
    planned = {field.name: getattr(plan, field.name) for field in fields(Plan)} | {
        "pruning_step": _plain(plan.pruning_step),
        "recipe": None if plan.recipe is None else plan.recipe.to_json(),
        "importance": plan.importance if isinstance(plan.importance, str) else _name(plan.importance),
        "deployment": plan.deployment.to_json(),
    }
    return Request(
        command=_command(sys.argv),
        model=subject.name,
        weights=digest(value for _, value in named_tensors(subject.model)),
        weights_file=subject.weights_file,
        data=subject.data.name,
        limits=limits,
        known_from=known_from,
        versions={"aacp": __version__, "python": platform.python_version(), "torch": torch.__version__}
        | {"numpy": np.__version__},
        hardware=torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        started=datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        metric=_name(subject.score),
        data_source=subject.data_source,
        metric_source=subject.metric_source,
        loss="cross_entropy" if subject.loss is None else _name(subject.loss),
        loss_source=subject.loss_source,
        **planned,
    )


def _command(arguments: Sequence[str]) -> str:
    """What was typed: our command line is called aacp, wherever it is installed and however it was started."""
    program = Path(arguments[0])
    is_ours = program.name == "aacp" or program.parts[-2:] == ("aacp", "cli.py")
    return shlex.join(["aacp" if is_ours else arguments[0], *arguments[1:]])


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _plain(value: Any) -> Any:
    """A value as it reads when it comes back from JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
