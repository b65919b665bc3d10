"""The request of a search, recorded in run.json: a search is resumed only by the same request."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aacp.cost.budget import Budget, Limit
from aacp.data.examples import tensors_in
from aacp.data.likeness import Likeness
from aacp.data.scores import NetworkScore, Score, accuracy
from aacp.data.splits import number_of_examples
from aacp.disk.folders import names_in
from aacp.disk.records import plain
from aacp.errors import RunMismatch, UnreadableFile
from aacp.graph.assigned import assigned_attributes
from aacp.graph.unverified import arguments_for
from aacp.latency.deployment import Deployment
from aacp.pipeline.defaults import PROPOSALS_FOR_WORKERS
from aacp.pipeline.functions import FUNCTIONS, name_of, recorded_name, restored_field
from aacp.pipeline.new_weights import first_weights
from aacp.pipeline.plan import DEFAULT, Plan
from aacp.pipeline.task import PruningTask
from aacp.pytorch.modules import named_tensors
from aacp.runs.files import CHECKPOINT, GRAPH, HISTORY, RUN, STRUCTURE, TABLE, TRAININGS
from aacp.runs.folder import RunFolder
from aacp.runs.manifest import MANIFEST
from aacp.runs.provenance import processor
from aacp.runs.requests import ESTIMATE_FIELDS, Request, TrainingRequest, reject_training
from aacp.runs.trainings import is_begun
from aacp.train.recipe import Recipe
from aacp.train.seeding import digest
from aacp.user.sources import are_comparable, short_name, source_of
from aacp.user.values import shortened
from aacp.version import __version__

AnyRequest = Request | TrainingRequest
# Files that a search with another request may find: the request itself, the graph (traced again), and latency tables,
# which record what they are valid for. Trainings have their own requests, and none begins before the search ends.
REUSABLE_FILES = (RUN, GRAPH, TABLE, f"{TABLE}.log", TRAININGS, MANIFEST)
# Fields of a plan that belong to the request of a training, not to that of the search.
TRAINING_FIELDS = ("recipe", "from_scratch", "init", "train_on_holdout", "mimic", "export", "resources", "training")
UNRECORDED = (*TRAINING_FIELDS, "workers")  # fields of a plan that the request of a search does not hold
# Fields of run.json about trainings of the search. A later training of its result does not depend on them.
TRAININGS_OF_SEARCH = ("finalists", "rungs", "finalist_training", "probe_recipe")
# Fields that do not change the result of a search.
CIRCUMSTANCES = (
    "command", "versions", "hardware", "started", "threads", "weights_file", "data_source",
)  # fmt: skip
# Fields that say where functions are defined, with a fingerprint if they cannot be imported.
SOURCES = ("metric_source", "loss_source")
# Fields about the parts of the data. A field that one of two requests does not know is not compared.
PARTS_OF_DATA = ("holdout_seed", "holdout_size", "test_size", "input_shapes")
CROSS_ENTROPY = "cross_entropy"  # the name of the loss if none is given
# Names in messages for settings that another option sets too.
EXPLAINED = {"proposals": f"proposals ({PROPOSALS_FOR_WORKERS} with --workers)"}


def register_request(
    folder: RunFolder,
    task: PruningTask,
    budget: Budget,
    plan: Plan,
    known_from: tuple[str, ...] = (),
    is_searched: bool = False,
) -> Request:
    """Record the request of a search, or check that it is the same as the recorded one.

    Args:
        folder: the run folder.
        task: the network and its data.
        budget: the limits.
        plan: the plan, whose fields about the search are recorded.
        known_from: folders of earlier runs whose evaluations are reused.
        is_searched: whether the search is finished and its result is only trained. The settings by which the search
            trained its finalists are not compared then.
    """
    request = request_of(task, budget, plan, known_from)
    if _holds_only_reusable_files(folder):
        folder.remove(GRAPH)  # it may have been traced with other options
        folder.write_json(RUN, request.to_json())
        return request
    before = _completed(read_request(folder), request)
    if _are_the_same(before.known_from, request.known_from):
        before = replace(before, known_from=request.known_from)  # where the folders are now
    skipped = {*CIRCUMSTANCES}
    if (folder.path / STRUCTURE).exists():
        skipped.add("known_from")  # nothing is searched any more
    if is_searched:
        skipped |= {*TRAININGS_OF_SEARCH, *SOURCES}  # modules may have moved, and are named again
    if before.weights == request.weights:
        skipped.add("model")  # networks with the same weights are the same, even if their names differ
    if not (request.probe_epochs or request.finalists):
        skipped |= {"loss", "loss_source"}  # nothing is trained in the search
    names = [each.name for each in fields(Request) if each.name not in skipped]
    of_scores = [name for name in (*ESTIMATE_FIELDS, "metric_source") if name not in skipped]
    reuse = (
        ""
        if differences(before, request, of_scores)
        else ", which may reuse the scores of this one (--from, known_from)"
    )
    require_same(folder.path, before, request, names, f"Repeat the earlier request, or choose another folder{reuse}.")
    return before


def _are_the_same(before: Sequence[str], now: Sequence[str]) -> bool:
    """Whether paths name the same runs: folders may have moved or been copied, or are named from another folder."""
    pairs = [(Path(old), Path(new).resolve()) for old, new in zip(before, now, strict=False)]
    return len(before) == len(now) and all(
        old.resolve() == new or (old.name == new.name and (not old.exists() or _has_same_request(old, new)))
        for old, new in pairs
    )


def _has_same_request(one: Path, other: Path) -> bool:
    return RunFolder(one).read_json(RUN) == RunFolder(other).read_json(RUN) is not None


def _completed(before: Request, request: Request) -> Request:
    """A recorded request with the fields that an older version did not write, or wrote differently."""
    default = _recorded_plan(DEFAULT)
    changed = {name: value for name, value in default.items() if getattr(before, name) is None}
    if before.deployment is not None:
        changed["deployment"] = {**default["deployment"], **before.deployment}
    if before.probe_recipe is not None:
        changed["probe_recipe"] = Recipe.completed(before.probe_recipe)
    if before.finalist_training is not None:
        recipe = Recipe.completed(before.finalist_training["recipe"])
        changed["finalist_training"] = {**before.finalist_training, "recipe": recipe}
    for name in FUNCTIONS:
        old, new = getattr(before, name), getattr(request, name)
        if old and new and ":" not in old and old == short_name(new):
            changed[name] = new  # older versions recorded the bare name of a function
    return replace(before, **changed)


def _holds_only_reusable_files(folder: RunFolder) -> bool:
    """Whether the folder holds only files that a search with another request may find."""
    if any(is_begun(place) for place in (folder.path / TRAININGS).glob("*")):
        return False
    return not _other_files(folder)


def _other_files(folder: RunFolder) -> list[str]:
    """The names of the files that only a search with the same request may find.

    Hidden files are left out: they are the lock, what a writer left that was killed, or those of other programs.
    """
    return [name for name in names_in(folder) if name not in REUSABLE_FILES and not name.startswith(".")]


def require_same(folder: Path, before: Request, request: Request, names: Sequence[str], advice: str) -> None:
    """Reject a request that differs from the recorded one in any of the named fields."""
    unknown = {name for name in PARTS_OF_DATA if None in (getattr(before, name), getattr(request, name))}
    differing = differences(before, request, [name for name in names if name not in unknown])
    if differing:
        raise RunMismatch(f"{folder} holds a run with other settings: {differing}. {advice}")


def differences(before: AnyRequest, request: AnyRequest, names: Sequence[str]) -> str:
    """The named fields in which two requests differ, with both values, for messages; empty if there are none."""
    vague = [each for each in SOURCES if each in names and not are_comparable(*_both(before, request, each))]
    names = [name for name in names if name not in vague]
    return "; ".join(_differences("", _settings(before, names), _settings(request, names)))


def _both(before: AnyRequest, request: AnyRequest, name: str) -> tuple[Any, Any]:
    return getattr(before, name), getattr(request, name)


def _settings(request: AnyRequest, names: Sequence[str]) -> dict[str, Any]:
    """The named fields as plain data, as they are read from JSON; each limit has the name of its cost."""
    settings = {EXPLAINED.get(name, name): plain(getattr(request, name)) for name in names if name != "limits"}
    limits = request.limits if isinstance(request, Request) and "limits" in names else ()
    return {f"limit on {limit.cost.name}": _ComparedLimit.of(limit) for limit in limits} | settings


@dataclass(frozen=True)
class _ComparedLimit:
    """The values by which two limits on one cost are compared, and a text for messages.

    The text is not compared: it depends on the suffixes of the cost, which run.json does not hold.
    """

    pruning_rate: float | None
    at_most: float | None
    source: str
    text: str = field(compare=False)

    @classmethod
    def of(cls, limit: Limit) -> _ComparedLimit:
        text = f"{limit.phrase}, computed by {limit.source}" if limit.source else limit.phrase
        return cls(limit.pruning_rate, limit.at_most, limit.source, text)

    def __str__(self) -> str:
        return self.text


def _differences(name: str, then: Any, now: Any) -> Iterator[str]:
    """Yield a text with the recorded and the present value of each setting that differs; dicts are compared by key."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in {**then, **now}:
            yield from _differences(f"{name} {key}".strip(), then.get(key), now.get(key))
    elif then != now:
        yield f"{name.replace('_', ' ')}: {_written(then)} then, {_written(now)} now"


def _written(value: Any) -> str:
    """A setting as text for messages, of limited length."""
    if value is None or isinstance(value, bool):
        return {None: "none", False: "no", True: "yes"}[value]
    if isinstance(value, dict):
        value = [f"{key} {_written(item)}" for key, item in value.items()]
    return shortened(", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value) or "none")


def read_request(folder: RunFolder) -> Request:
    """The recorded request of a run."""
    known = folder.read_json(RUN)
    if known is None:
        raise _missing_request(folder)
    if isinstance(known, dict) and known.get("probe_epochs") and "recipe" in known:
        known = {"probe_recipe": known["recipe"], **known}  # older versions had one recipe for probes and training
    found = Request.from_json(known)
    if found.data_source and found.holdout_seed is None:  # older versions drew the hold-out with the seed of the run
        return replace(found, holdout_seed=found.seed)
    return found


def require_room(folder: RunFolder) -> None:
    """Reject a folder that holds a training, or other files and no run, before it is locked and data are loaded.

    A run.json that was lost may be restored from its copy in the manifest.
    """
    if not os.path.isdir(folder):
        return
    with suppress(UnreadableFile):  # a damaged file may be restored
        reject_training(folder.read_json(RUN))
    if os.path.exists(folder.path / RUN) or folder.read_json(RUN) or _results_in(folder):
        return
    others = _other_files(folder)
    if others:
        _reject_several_runs(folder)
        raise RunMismatch(
            f"{folder.path} holds other files ({_written(others)}) and no run. Give a new or an empty folder."
        )


def _missing_request(folder: RunFolder) -> RunMismatch:
    """The error for a folder without run.json, because results without a request could belong to any request."""
    found = _results_in(folder)
    if not found:
        _reject_several_runs(folder)
        return RunMismatch(f"{folder.path} does not hold a run. Give the folder of a run that aacp has begun.")
    return RunMismatch(
        f"{folder.path} holds {', '.join(found)}, but {RUN} is missing, so it is not known which request they belong "
        f"to. Put {RUN} back from a copy, or choose another folder."
    )


def _results_in(folder: RunFolder) -> list[str]:
    return [name for name in (STRUCTURE, CHECKPOINT, HISTORY, TRAININGS) if (folder.path / name).exists()]


def _reject_several_runs(folder: RunFolder) -> None:
    """Reject the folder of a sweep or of a repetition, which holds a folder for each run."""
    runs = sorted(place.parent.name for place in folder.path.glob(f"*/{RUN}"))
    if runs:
        raise RunMismatch(
            f"{folder.path} is the folder of a sweep or a repetition, with the runs {', '.join(runs)}. Give the folder "
            f"of one run, such as {folder.path / runs[0]}."
        )


def plan_of(request: Request, **changes: Any) -> Plan:
    """The plan of a recorded request, with some fields changed; functions are imported again by their names.

    The plan trains the structure that the search found, so it has no finalists.
    """
    left_out = (*UNRECORDED, *TRAININGS_OF_SEARCH)
    recorded = {each.name: getattr(request, each.name) for each in fields(Plan) if each.name not in left_out}
    found = {name: value for name, value in recorded.items() if value is not None or name == "reconstruction"}
    for name in FUNCTIONS:
        if found.get(name) is not None:
            found[name] = restored_field(name, found[name])
    if isinstance(request.pruning_step, list):
        found["pruning_step"] = tuple(request.pruning_step)
    if request.deployment is not None:
        found["deployment"] = Deployment(**request.deployment)
    return Plan(**{**found, "recipe": None, **changes})


def _weights(task: PruningTask) -> str:
    """The digest of what a network holds, without the results of its last run, which do not change what it computes."""
    results = assigned_attributes(task.model, lambda: arguments_for(task.model, task.example()))
    return digest(value for name, value in named_tensors(task.model) if name not in results)


def request_of(task: PruningTask, budget: Budget, plan: Plan, known_from: tuple[str, ...] = ()) -> Request:
    """The request as it is recorded: every field of the plan, and where and with what the run begins."""
    return Request(
        model=task.label,
        weights=_weights(task),
        weights_file=task.weights_file,
        data=task.data.name,
        holdout=task.holdout,
        holdout_seed=task.data.holdout_seed if task.holdout_seed is None else task.holdout_seed,
        holdout_size=number_of_examples(task.data.holdout),
        test_size=number_of_examples(task.data.test),
        input_shapes=tuple("x".join(map(str, tensor.shape)) for tensor in tensors_in(task.example())),
        limits=budget.limits,
        known_from=known_from,
        metric=name_of(task.score),
        data_source=task.data_source,
        metric_source=_score_source(task.score),
        probe_recipe=plan.recipe.to_json() if plan.recipe is not None and plan.probe_epochs else None,
        finalist_training=_finalist_training(task, plan),
        **recorded_loss(task),
        **circumstances(),
        **_recorded_plan(plan),
    )


def _finalist_training(task: PruningTask, plan: Plan) -> dict[str, Any] | None:
    """The training of finalists as it is recorded; None without finalists."""
    if plan.finalists is None or plan.recipe is None:
        return None
    return {
        "recipe": plan.recipe.to_json(),
        "init": first_weights(task, plan),
        "teacher": recorded_teacher(task),
    }


def recorded_teacher(task: PruningTask) -> str:
    """The teacher of a task as it is recorded: the fingerprint of its weights; empty if none was given."""
    return "" if task.teacher is None else digest(task.teacher.state_dict().values())


def circumstances() -> dict[str, Any]:
    """How, when and where a search or a training begins."""
    return {
        "command": _command(sys.argv),
        "versions": {
            "aacp": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        "threads": torch.get_num_threads(),
        "started": datetime.now(timezone.utc).astimezone().isoformat(timespec="milliseconds"),
    }


def _score_source(score: Score) -> str:
    """Where the user's score is defined; empty for scores of ours."""
    if score is accuracy or isinstance(score, Likeness):
        return ""
    if isinstance(score, NetworkScore):  # nothing can import it as a score, since it is called with a network alone
        return f"{source_of(score.function)}#network"
    return source_of(score)


def recorded_loss(task: PruningTask) -> dict[str, Any]:
    """The loss of a task as it is recorded: its name, and where it is defined."""
    if task.loss is None:
        return {"loss": CROSS_ENTROPY, "loss_source": ""}
    return {"loss": name_of(task.loss), "loss_source": source_of(task.loss)}


def _recorded_plan(plan: Plan) -> dict[str, Any]:
    """The fields of a plan as run.json holds them: those of the search."""
    planned = {each.name: getattr(plan, each.name) for each in fields(Plan) if each.name not in UNRECORDED}
    planned["reconstruction"] = plan.chosen_reconstruction
    return planned | {
        "pruning_step": plain(plan.pruning_step),
        "evaluations": plan.search_length,
        "proposals": plan.proposed_at_once,
        "scope": plan.traced_scope,
        "rungs": plan.chosen_rungs,
        "deployment": plan.deployment.to_json(),
        **{name: recorded_name(planned[name]) for name in FUNCTIONS},
    }


def _command(arguments: Sequence[str]) -> str:
    """The command as it can be typed again; our own program is named aacp, without the path of its installation."""
    program = Path(arguments[0])
    is_ours = program.name == "aacp" or program.parts[-2:] in (("aacp", "cli.py"), ("aacp", "__main__.py"))
    return shlex.join(["aacp" if is_ours else arguments[0], *arguments[1:]])
