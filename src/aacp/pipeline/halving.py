"""Successive halving: finalists are compared by short trainings, in rungs, and the best on the hold-out is delivered.

Every training of a rung starts anew, as the last training does, with the whole recipe scaled to the epochs of the rung:
a schedule that is cut off would compare networks in the middle of a high learning rate. Scores of one rung are
therefore comparable. Finalists are trained on the training data alone, also if the last training takes the hold-out
too, and are scored on the hold-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.errors import RunMismatch
from aacp.estimate.inheritance import Inheritance
from aacp.pipeline.finalists import chosen_finalists
from aacp.pipeline.new_weights import first_network
from aacp.pipeline.plan import Plan
from aacp.pipeline.reuse import usable_finalists
from aacp.pipeline.searching import Search
from aacp.pipeline.shared_estimate import shared_on_worker, worker_pool
from aacp.pipeline.task import PruningTask
from aacp.runs.chosen import ChosenStructure
from aacp.runs.files import FINALISTS, RUN, STATE, WEIGHTS
from aacp.runs.finalists import Finalists
from aacp.runs.folder import RunFolder
from aacp.runs.requests import Request
from aacp.search.history import History
from aacp.train.loop import fit_made_again
from aacp.user.events import Event, emit
from aacp.user.progress import report_progress, without_progress
from aacp.user.values import counted, score_text

FOLDER = "finalists"  # the folder inside the run folder that holds the trainings of each finalist
STAGE = "finalists"


def require_finalists(folder: RunFolder, request: Request, plan: Plan) -> None:
    """Reject a call that would deliver the choice of a search instead of the winner of its finalists."""
    if request.finalists is not None and plan.finalists is None:
        raise RunMismatch(
            f"The structure in {folder.path} is lost, and its finalists have to be compared again. Repeat the command "
            "of the search first."
        )


@dataclass(frozen=True, eq=False)
class RungTraining:
    """One training of a rung: the score on the hold-out of a structure after some epochs.

    Args:
        task: the network and its data.
        plan: how to train.
        inheritance: makes networks of structures.
        epochs: those of the rung.
        places: the folder of each training by the counts of its structure; without one, a training is not resumed.
    """

    task: PruningTask
    plan: Plan
    inheritance: Inheritance
    epochs: int
    places: Mapping[tuple[int, ...], Path]

    def __call__(self, structure: Structure) -> float:
        """Train the structure, or resume its training, and score it."""
        task = self.task
        recipe = self.plan.recipe
        assert recipe is not None
        scaled = recipe.scaled(self.epochs, finetuning=not self.plan.from_scratch)
        network = first_network(task, self.plan, self.inheritance, structure)
        with without_progress():
            fit_made_again(
                network, task.data.train, scaled, loss=task.loss, score=task.score,
                teacher=task.teacher_for(self.plan), folder=self.places.get(structure.counts),
                device=task.device,
            )  # fmt: skip
        return task.score_network(network, task.data.holdout)


@dataclass(frozen=True, eq=False)
class RemoteTraining:
    """What a worker needs for the trainings of a rung; a call makes them, in the process of the worker.

    Args:
        task, plan, epochs, places: as in RungTraining.
        graph: the channel graph of the network.
        run: the run folder. A worker that can read it, on this machine or on a disk that is shared, keeps the states of
            its trainings there.
        request: what run.json holds there, by which the worker recognises the folder.
    """

    task: PruningTask
    plan: Plan
    graph: ChannelGraph
    epochs: int
    places: Mapping[tuple[int, ...], Path]
    run: Path
    request: Any

    def __call__(self) -> Callable[[Structure], float]:
        shared = shared_on_worker(self.task, self.plan)
        places = self.places if self._sees_run() else {}
        return RungTraining(shared.task, self.plan, shared.inheritance(self.graph), self.epochs, places)

    def _sees_run(self) -> bool:
        try:
            return bool(RunFolder(self.run).read_json(RUN) == self.request)
        except RunMismatch:
            return False


@dataclass(frozen=True, eq=False)
class Halving:
    """The comparison of the finalists of a finished search."""

    search: Search
    label: str

    def run(self, chosen: ChosenStructure, history: History) -> ChosenStructure:
        """The structure to deliver: the best of the last rung. What an earlier call has finished is not repeated."""
        emit(Event("stage", STAGE, folder=str(self._folder.path)))
        search = self.search
        found = usable_finalists(self._folder, search.graph, search.budget, search.plan.chosen_rungs)
        if found is None:
            found = chosen_finalists(search, chosen, history)
            self._folder.write_json(FINALISTS, found.to_json())
        for note in found.notes:
            self._report(note)
        search.shared.release()  # the trainings take the place of the estimate and of its workers
        for rung in range(len(found.sizes)):
            found = self._finish_rung(found, rung)
        winner = found.winner
        assert winner is not None
        self._report(f"finalists: {found}")
        return winner.choice

    def _finish_rung(self, found: Finalists, rung: int) -> Finalists:
        """The finalists after all trainings of a rung; each score is written as soon as it is known."""
        members = found.members(rung)
        left = found.untrained(rung)
        work = f"{counted(len(members), 'structure')}, {counted(found.rungs[rung], 'epoch')}"
        title = f"rung {rung + 1} of {len(found.rungs)}: {work}"
        self._report(f"{title}; {len(members) - len(left)} of {len(members)}")
        places = {found.finalists[position].choice.counts: self._place(position, rung) for position in left}
        structures = [found.finalists[position].choice.structure for position in left]
        scores = self._scores(structures, found.rungs[rung], places)
        for number, position in enumerate(left, start=len(members) - len(left) + 1):
            score = next(scores)
            found = found.with_score(position, score)
            self._folder.write_json(FINALISTS, found.to_json())
            self._remove_state(places[found.finalists[position].choice.counts])
            self._report(
                f"{title}; {number} of {len(members)}: {found.name(position)}, {score_text(score)} on the hold-out"
            )
            values = {"score": score, "rung": rung + 1, "epochs": found.rungs[rung]}
            emit(Event("evaluation", STAGE, number, values, str(self._folder.path)))
        return found

    def _scores(
        self, structures: list[Structure], epochs: int, places: Mapping[tuple[int, ...], Path]
    ) -> Iterator[float]:
        """The scores of trained structures, in order: trained here one after the other, or side by side on workers."""
        task = self.search.task
        plan = self.search.plan
        if plan.workers is None:
            inheritance = self.search.shared.inheritance(self.search.graph)
            yield from map(RungTraining(task, plan, inheritance, epochs, places), structures)
            return
        run = self._folder.path.resolve()
        places = {counts: place.resolve() for counts, place in places.items()}
        request = self._folder.read_json(RUN)
        work = RemoteTraining(task, plan, self.search.graph, epochs, places, run, request)
        pool = worker_pool(task, plan, work)
        try:
            yield from pool.map(structures)
        finally:
            pool.close()

    @property
    def _folder(self) -> RunFolder:
        return self.search.folder

    def _place(self, position: int, rung: int) -> Path:
        """The folder of one training."""
        return self._folder.path / FOLDER / str(position + 1) / f"rung-{rung + 1}"

    def _remove_state(self, place: Path) -> None:
        """Remove the weights of a training whose score is written: all finalists together would fill disks."""
        if place.is_dir():
            RunFolder(place).remove(STATE, WEIGHTS)

    def _report(self, message: str) -> None:
        report_progress(f"{self.label}: {message}")
