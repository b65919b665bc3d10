"""Run: the content of a run folder, as far as it can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.kinds import computed_costs
from aacp.errors import NothingToReport, RunMismatch
from aacp.report.cloud import Cloud
from aacp.report.thinning import POINTS_PER_PAGE
from aacp.runs.chosen import ChosenStructure, DeviceCheck, LimitResult
from aacp.runs.exports import ExportRecord
from aacp.runs.files import (
    CONFIRMED,
    DEVICE_CHECK,
    EVALUATION,
    EXPORT,
    FINALISTS,
    GRAPH,
    HISTORY,
    LOG,
    RECOVERY,
    RUN,
    STRUCTURE,
    TRAINING,
    TRAINING_REQUEST,
    TRAININGS,
)
from aacp.runs.finalists import Finalists
from aacp.runs.folder import RunFolder
from aacp.runs.requests import Request, TrainingRequest
from aacp.runs.scores import Epoch, Evaluation, NetworkMetrics, Recovery
from aacp.runs.trainings import read_training, trainings_in
from aacp.runs.unfinished import Unfinished, unfinished_steps
from aacp.search.history import History
from aacp.search.saving import read_candidates, recorded
from aacp.search.screening_error import ScreeningError

Anything = TypeVar("Anything")


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingFiles:
    """What a training has written. Missing files give None or an empty value."""

    epochs: tuple[Epoch, ...] = ()
    evaluation: Evaluation | None = None
    exported: ExportRecord | None = None
    recovery: Recovery | None = None
    device_check: DeviceCheck | None = None


@dataclass(frozen=True, eq=False)
class RecordedTraining(TrainingFiles):
    """The content of the folder of one training."""

    path: Path
    request: TrainingRequest | None = None

    @property
    def name(self) -> str:
        """The name of the training; a training of an older version has that of the run folder."""
        return self.path.resolve().name


@dataclass(frozen=True, eq=False)
class Run(TrainingFiles):
    """The content of one run folder. Missing files give None or an empty value; `troubles` names unreadable files.

    The field `training` and those of TrainingFiles are about one training: the first that was evaluated, or else the
    first. `trainings` has all of them.
    """

    name: str
    request: Request | None = None
    graph: ChannelGraph | None = None
    history: History = field(default_factory=History)
    screening: ScreeningError | None = None  # if the search scored structures on few images
    choice: ChosenStructure | None = None
    finalists: Finalists | None = None
    training: TrainingRequest | None = None
    troubles: tuple[str, ...] = ()
    trainings: tuple[RecordedTraining, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()  # the steps that are not finished
    most_points: int = POINTS_PER_PAGE  # of a figure, unless they are the best

    def about(self, place: Path) -> Run:
        """The same run with the training of a folder in the fields of one training."""
        found = next((training for training in self.trainings if training.path == place), None)
        if found is None:  # its files cannot be found any more
            return self
        files = {each.name: getattr(found, each.name) for each in fields(TrainingFiles)}
        return replace(self, training=found.request, **files)

    @property
    def is_empty(self) -> bool:
        parts = (self.request, self.graph, self.choice, self.evaluation, self.exported)
        return not len(self.history) and not self.epochs and all(part is None for part in parts)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The costs that can be computed for every structure of the history."""
        return () if self.graph is None else computed_costs(self.graph)

    @cached_property
    def cloud(self) -> Cloud:
        """The candidates as points of figures."""
        return Cloud(self.history, self.costs, self.metric, self.most_points)

    @property
    def before(self) -> NetworkMetrics | None:
        """The metrics of the unpruned network: as evaluated, or else computed from its graph."""
        if self.evaluation is not None:
            return self.evaluation.before
        return None if self.graph is None else self._priced(self.graph.full)

    @property
    def after(self) -> NetworkMetrics | None:
        """The metrics of the pruned network: as evaluated, or else the costs of the chosen structure."""
        if self.evaluation is not None:
            return self.evaluation.after
        return None if self.graph is None or self.choice is None else self._priced(self.choice.structure)

    def _priced(self, structure: Structure) -> NetworkMetrics:
        return NetworkMetrics(None, None, {cost.name: int(cost(np.asarray(structure))) for cost in self.costs})

    @property
    def limits(self) -> tuple[LimitResult, ...]:
        """The limits and the costs of the chosen structure; a latency as the device measured it, if it did."""
        if self.choice is None:
            return ()
        found = self.device_check
        if found is None or found.counts != self.choice.counts:
            return self.choice.limits
        return tuple(found.limit if limit.cost == found.limit.cost else limit for limit in self.choice.limits)

    @property
    def metric(self) -> str:
        return "accuracy" if self.request is None else self.request.metric


def read_run(path: str | Path, name: str | None = None) -> Run:
    """Read a run folder; the run is called by the name of the folder, unless another is given.

    If a file cannot be read, `troubles` names it, and the other files are read all the same.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NothingToReport(f"There is no folder {folder}. Give the folder of a run.")
    return _Reader(folder, name or folder.resolve().name).run()


def read_outline(path: Path, training: Path) -> Run:
    """Read what a short summary needs of a run and one training: their requests and the finalists, no long files."""
    return _Reader(path, path.resolve().name).outline(training)


class _Reader:
    """Reads the files of one folder and records the problems."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.troubles: list[str] = []

    def run(self) -> Run:
        graph = self._attempt(GRAPH, self._graph)
        run = Run(
            self.name,
            self._request(),
            graph,
            self._attempt(HISTORY, lambda: self._history(graph)) or History(),
            self._attempt(CONFIRMED, self._screening),
            self._attempt(STRUCTURE, lambda: self._choice(graph)),
            self._finalists(),
            trainings=tuple(map(self._training, self._places())),
            unfinished=tuple(unfinished_steps(self.path, self.path)),
        )
        run = replace(run, troubles=tuple(self.troubles))
        evaluated = [training for training in run.trainings if training.evaluation is not None]
        shown = next(iter([*evaluated, *run.trainings]), None)
        return run if shown is None else run.about(shown.path)

    def outline(self, place: Path) -> Run:
        training = self._attempt(str(place / TRAINING_REQUEST), lambda: read_training(place))
        return Run(self.name, self._request(), finalists=self._finalists(), training=training)

    def _request(self) -> Request | None:
        return self._attempt(RUN, lambda: self._json(RUN, Request.from_json))

    def _finalists(self) -> Finalists | None:
        return self._attempt(FINALISTS, lambda: self._json(FINALISTS, Finalists.from_json))

    def _places(self) -> list[Path]:
        """The folders of all trainings; older versions kept one in the run folder itself."""
        is_old = any((self.path / name).exists() for name in (TRAINING, EVALUATION, EXPORT))
        found = self._attempt(TRAININGS, lambda: list(trainings_in(self.path).values())) or []
        return [self.path, *found] if is_old and self.path not in found else found

    def _training(self, place: Path) -> RecordedTraining:
        """What the folder of a training holds; in messages, files are named by their path in the run folder."""
        inside = place.relative_to(self.path)

        def read(name: str, parse: Callable[[Any], Anything]) -> Anything | None:
            return self._attempt(str(inside / name), lambda: self._json(str(inside / name), parse))

        return RecordedTraining(
            place,
            self._attempt(str(inside / TRAINING_REQUEST), lambda: read_training(place)),
            epochs=self._attempt(str(inside / TRAINING / LOG), lambda: self._epochs(place)) or (),
            evaluation=read(EVALUATION, Evaluation.from_json),
            exported=read(EXPORT, ExportRecord.from_json),
            recovery=read(RECOVERY, Recovery.from_json),
            device_check=read(DEVICE_CHECK, DeviceCheck.from_json),
        )

    def _attempt(self, name: str, read: Callable[[], Anything]) -> Anything | None:
        try:
            return read()
        except Exception as error:  # a damaged file can raise anything, and the other files can still be shown
            words = str(error) or type(error).__name__
            self.troubles.append(f"{name} is left out because it cannot be read: {words}")
            return None

    def _json(self, name: str, parse: Callable[[Any], Anything]) -> Anything | None:
        data = RunFolder(self.path).read_json(name)
        return None if data is None else parse(data)

    def _graph(self) -> ChannelGraph | None:
        graph = self._json(GRAPH, ChannelGraph.from_json)
        if graph is not None:
            _check(graph, graph.full)
            computed_costs(graph)  # raises an error if the parts of the graph do not fit each other
        return graph

    def _history(self, graph: ChannelGraph | None) -> History:
        whole = recorded(self.path)
        for counts in whole.counts_in_parts():
            _check(graph, counts)
        return whole

    def _screening(self) -> ScreeningError | None:
        searched, confirmed = (read_candidates(RunFolder(place)) for place in (self.path, self.path / CONFIRMED))
        return ScreeningError.of(History(searched.values()), History(confirmed.values())) if confirmed else None

    def _choice(self, graph: ChannelGraph | None) -> ChosenStructure | None:
        choice = self._json(STRUCTURE, ChosenStructure.from_json)
        if choice is not None:
            _check(graph, choice.structure)
        return choice

    def _epochs(self, place: Path) -> tuple[Epoch, ...]:
        if not (place / TRAINING).is_dir():
            return ()
        return tuple(Epoch.from_json(record) for record in RunFolder(place / TRAINING).read_log(LOG))


def _check(graph: ChannelGraph | None, structures: ArrayLike) -> None:
    """Reject structures of another graph, one or many as the rows of a matrix."""
    if graph is not None:
        graph.valid_counts(structures)
    elif not np.asarray(structures).shape[-1]:
        raise RunMismatch("it has a structure without counts. Search again.")
