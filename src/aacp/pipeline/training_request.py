"""The request of a training, recorded in trainings/NAME/training.json.

It is separate from the request of the search: a training that failed, or that was given wrong settings, leaves the
search and the other trainings of the folder as they are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aacp.errors import RunMismatch
from aacp.pipeline.new_weights import first_weights
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import circumstances, differences, recorded_loss, recorded_teacher
from aacp.pipeline.task import PruningTask
from aacp.runs.files import EVALUATION, TRAINING_REQUEST
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend
from aacp.runs.requests import TrainingRequest
from aacp.runs.trainings import is_begun, read_training, remove_training, run_of, training_folder
from aacp.train.recipe import Recipe

# Fields that change the result of a training.
DECIDING_FIELDS = ("recipe", "from_scratch", "init", "train_on_holdout", "mimic", "loss", "loss_source", "teacher")


def register_training(run: RunFolder, task: PruningTask, plan: Plan, again: bool) -> RunFolder:
    """Record the request of a training and return its folder.

    A training with the same request is resumed. One with another request is replaced if it holds nothing that could be
    lost: if it has no finished epoch, or failed. Otherwise it is rejected.

    Args:
        run: the run folder.
        task: the network and its data.
        plan: its fields of the training are recorded.
        again: start a finished training, a failed one, or one with another request again.
    """
    place = training_folder(run.path, plan.training_name)
    if place != run.path:
        mend(RunFolder(place))
    request = training_request_of(task, plan)
    known = _completed(read_training(place), request)
    if _is_replaced(place, known, request, again):
        remove_training(place)
        place = training_folder(run.path, plan.training_name)
        known = None
    folder = RunFolder(place)
    if place != run.path:  # a training of an older version is resumed where it is, with the request in run.json
        kept = request
        if known is not None:
            threads = known.threads if is_begun(place) else request.threads
            kept = replace(known, export=request.export, resources=request.resources, failure="", threads=threads)
        folder.write_json(TRAINING_REQUEST, kept.to_json())
    return folder


def _is_replaced(place: Path, known: TrainingRequest | None, request: TrainingRequest, again: bool) -> bool:
    """Whether what a folder holds is removed for a request; RunMismatch if it is another training that could be lost.

    Args:
        place: the folder of the training.
        known: the request that is recorded there, if any.
        request: the request of this call.
        again: whether this call may replace a training.
    """
    remedy = "another name (--as, or Plan.training), or replace the other (--again, or again=True)."
    if known is None:
        if is_begun(place) and not again:
            raise RunMismatch(
                f"{place} holds a training, but {TRAINING_REQUEST} is missing, so it is not known which request it "
                f"belongs to. Give this training {remedy}"
            )
        return is_begun(place)
    differing = differences(known, request, DECIDING_FIELDS)
    is_disposable = bool(known.failure) or not is_begun(place)
    if differing and not (again or is_disposable):
        raise RunMismatch(f"{place} holds a training with other settings: {differing}. Give this one {remedy}")
    return bool(differing or (again and (known.failure or is_finished(place))))


def training_request_of(task: PruningTask, plan: Plan) -> TrainingRequest:
    """The request of a training as it is recorded."""
    return TrainingRequest(
        recipe=None if plan.recipe is None else plan.recipe.to_json(),
        from_scratch=plan.from_scratch,
        init=first_weights(task, plan),
        train_on_holdout=plan.train_on_holdout,
        mimic=plan.mimic,
        teacher=recorded_teacher(task),
        export=plan.export,
        resources=plan.resources,
        **recorded_loss(task),
        **circumstances(),
    )


def record_failure(folder: RunFolder, error: Exception) -> None:
    """Record the error that ended a training, so that a training with other settings may replace it."""
    request = read_training(folder.path)
    if request is not None and run_of(folder.path) != folder.path:
        failed = replace(request, failure=f"{type(error).__name__}: {error}")
        folder.write_json(TRAINING_REQUEST, failed.to_json())


def is_finished(place: Path) -> bool:
    """Whether the network of a training was saved and evaluated."""
    return (place / EVALUATION).exists()


def _completed(known: TrainingRequest | None, request: TrainingRequest) -> TrainingRequest | None:
    """A recorded request with the fields that an older version did not write."""
    if known is None:
        return None
    recipe = None if known.recipe is None else Recipe.completed(known.recipe)
    return replace(known, recipe=recipe, init=known.init or request.init)
