"""The requests of a run: run.json for its search, training.json for each training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aacp.cost.budget import Limit
from aacp.disk.records import Record
from aacp.errors import RunMismatch
from aacp.runs.files import RUN
from aacp.user.values import counted

# Fields of run.json that estimated scores depend on; the seed draws the calibration images.
ESTIMATE_FIELDS = (
    "weights", "data", "metric", "importance", "reconstruction", "calibration_images", "frozen", "scope", "parts",
    "holdout", "seed", "holdout_seed", "holdout_size", "input_shapes",
)  # fmt: skip
# Those that older versions did not write. A history is sealed without them if its run.json does not have them.
ADDED_FIELDS = ("holdout_seed", "holdout_size", "input_shapes")


def reject_training(data: Any) -> None:
    """Reject the content of a run.json that a training of an unpruned network has written."""
    if isinstance(data, dict) and "recipe" in data and "limits" not in data:
        raise RunMismatch(
            f"The {RUN} of this folder describes a training (aacp train, aacp.fit), not a run that prunes. Name the "
            "folder of such a run, or a new one (--run)."
        )


@dataclass(frozen=True)
class Request(Record):
    """run.json: the request of a search, and the circumstances in which it began.

    A field of the plan that is None was not in the file: the plan's default applies. `reconstruction`, `max_drop`,
    `latency_table`, `screening` and `finalists` may also be None in a plan, where None means that there is none.
    """

    command: str
    model: str
    data: str
    limits: tuple[Limit, ...]
    pruning_step: Any  # the argument of SearchSpace: a number, a list, or numbers by name
    method: str  # a name, or package.module:Class
    evaluations: int
    seed: int
    versions: dict[str, str]
    hardware: str
    started: str  # ISO 8601, with the offset from UTC
    metric: str = "accuracy"
    weights: str = ""  # fingerprint of the unpruned network's weights
    importance: str | None = None  # a name, or package.module:function
    reconstruction: str | None = None  # "repair", package.module:function, or None for inherited weights
    calibration_images: int | None = None
    frozen: tuple[str, ...] = ()
    scope: str | None = None
    tie: tuple[tuple[str, ...], ...] = ()  # the names of the groups of each tie
    parts: tuple[str, ...] = ()  # the submodules that are pruned, if they were named
    max_drop: float | None = None  # the largest allowed drop of the score; within it, the cost `shrink` is minimised
    shrink: str | None = None
    probe_epochs: int | None = None
    probe_recipe: dict[str, Any] | None = None  # the recipe that probes are trained with, if they are trained
    deployment: dict[str, Any] | None = None  # runtime, device, batch, threads, precision of measured latencies
    latency_table: str | None = None
    known_from: tuple[str, ...] = ()  # folders of runs whose evaluations are reused
    weights_file: str = ""
    holdout: Any = None  # a share or a number of examples, held out for the search; None is the default of load_data
    holdout_seed: int | None = None  # chose these examples; None if the user did
    holdout_size: int | None = None  # the number of these examples; None if it was not known
    test_size: int | None = None  # the number of test examples; None if it was not known
    # The shape of each tensor of one held-out input, such as "1x3x32x32"; costs are those of this input.
    input_shapes: tuple[str, ...] | None = None
    data_source: str = ""  # the data as named on the command line, with its path
    metric_source: str = ""  # where the user's score is defined: package.module:function, or with a fingerprint
    loss: str = "cross_entropy"  # the loss of probes, and of later trainings unless they are given another
    loss_source: str = ""  # where the user's loss is defined, likewise
    threads: int = 0  # how many threads torch used; 0 in files of older versions
    proposals: int | None = None  # structures without a score that the search keeps proposed; None: the method's
    screening: float | None = None  # the share of the images that the search scored structures on, if it is not all
    finalists: int | None = None  # how many structures of the search are compared by short trainings, if any are
    rungs: tuple[int, ...] = ()  # the epochs of these trainings in each rung
    # How finalists are trained: "recipe", of which a rung takes its number of epochs, "init" and "teacher" as in
    # training.json; None if there are no finalists.
    finalist_training: dict[str, Any] | None = None

    @classmethod
    def from_json(cls, data: Any) -> Request:
        reject_training(data)
        return super().from_json(data)


@dataclass(frozen=True)
class TrainingRequest(Record):
    """training.json: the request of one training of the chosen structure, and the circumstances in which it began."""

    command: str
    recipe: dict[str, Any] | None  # the result of Recipe.to_json, or None if the inherited weights are kept
    versions: dict[str, str]
    hardware: str
    started: str  # ISO 8601, with the offset from UTC
    from_scratch: bool = False  # trained from new weights instead of fine-tuned
    init: str = ""  # the first weights: "inherited", "network" or "he"; empty in files of older versions
    train_on_holdout: bool = False
    loss: str = "cross_entropy"
    loss_source: str = ""  # where the user's loss is defined, likewise
    teacher: str = ""  # fingerprint of the teacher's weights; empty if it is the unpruned network or there is none
    mimic: int = 0  # the steps of learning from the original without labels, if there is no recipe
    export: bool = True  # whether the latest call requested ONNX files
    resources: bool = False  # whether the latest call requested memory and energy
    failure: str = ""  # the error that ended the training, if one did
    threads: int = 0  # how many threads torch used; 0 in files of older versions

    @property
    def kind(self) -> str:
        """What was done with the structure, for people."""
        if self.recipe is None:
            return f"not trained, mimicked in {counted(self.mimic, 'step')}" if self.mimic else "not trained"
        drawn = {"he": ", He-normal weights", "network": ", weights as the network draws them"}.get(self.init, "")
        return f"from scratch{drawn}" if self.from_scratch else "fine-tuned"
