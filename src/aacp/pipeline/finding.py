"""find: a search without training, whose result can be trained by any loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from aacp.artefact.header import Artefact
from aacp.artefact.storage import save
from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.cost.analytic import macs
from aacp.cost.budget import Budget
from aacp.cost.quantities import cost_change
from aacp.data.devices import device_of
from aacp.data.scores import NetworkScore, Score
from aacp.data.splits import Data, Source
from aacp.errors import InvalidOption
from aacp.estimate.inheritance import Inheritance
from aacp.pipeline.plan import DEFAULT, Plan, require_plan
from aacp.pipeline.preflight import known_runs
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.ranks import Ranks
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.pytorch.modules import device_of_model, with_gradients
from aacp.runs.chosen import ChosenStructure
from aacp.runs.folder import RunFolder
from aacp.search.history import Candidate, History
from aacp.search.saving import recorded
from aacp.user.code import without_exit
from aacp.user.notebook import html_table
from aacp.user.options import known_options
from aacp.user.values import function, path_text, score_text

if TYPE_CHECKING:
    from lightning_fabric import Fabric

CALIBRATION = "calibration"  # the name of data that are calibration inputs alone


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """What a search found: the structure, and how the unpruned network becomes the network of that structure.

    Args:
        graph: the channel graph of the unpruned network.
        choice: the structure, its estimated score and its costs beside the limits.
        inheritance: makes networks of structures, from the weights of the unpruned network.
        history: every structure that was evaluated, with its score.
        example: one input of the network.
        name: the name that `aacp.build_model` builds the unpruned network by, or None.
        device: the device of the unpruned network.
    """

    graph: ChannelGraph
    choice: ChosenStructure
    inheritance: Inheritance
    history: History
    example: Any
    name: str | None
    device: torch.device

    @property
    def structure(self) -> Structure:
        """The number of units that each free group of the graph keeps; `graph.channels_of` gives channels."""
        return self.choice.structure

    def cut(self) -> nn.Module:
        """A new network of the structure that was found, in evaluation mode, on the device of the unpruned network.

        It is a module of the class of the unpruned network with inherited weights, and shares nothing with it.
        """
        return self.inheritance.network(self.structure).to(self.device)

    def save(
        self, network: nn.Module, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
    ) -> Artefact:
        """Write a network that `cut` made, trained or not, to a file for `aacp.load`.

        Args:
            network: the network, also inside of DistributedDataParallel, torch.compile or AveragedModel.
            path: the file to write.
            metadata: anything that can be written as JSON, for your own use.
        """
        kept = self.inheritance.kept(self.structure)
        return save(network, self.graph, path, kept=kept, model=self.name, example=self.example, metadata=metadata)

    def __str__(self) -> str:
        kept, full = map(self.graph.channels_of, (self.choice.counts, self.graph.full.counts))
        free = zip(self.graph.free, kept, full, strict=True)
        lines = [str(self.choice), f"channels: {', '.join(f'{group.name} {left}/{of}' for group, left, of in free)}"]
        if self.graph.parts:
            share = f"{self.graph.free_share:.0%} of the channels of convolutions are free"
            lines.append(f"parts: {', '.join(self.graph.parts)}; {share}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        cost = macs(self.graph)
        change = cost_change(cost.name, cost.full, float(cost(self.structure)), cost.unit)
        return f"<Found {self.graph.model}, {change}, score {score_text(self.choice.score)}>"

    def _repr_html_(self) -> str:
        """The lines of the summary as a table, for notebooks."""
        rows = [line.partition(": ")[::2] for line in str(self).splitlines()]
        return html_table(f"{self.graph.model}, found", ("", "before and after"), rows)


@known_options
@without_exit
@with_gradients
def find(
    model: nn.Module,
    data: Data | Source,
    budget: Budget | Mapping[str, float | str],
    folder: str | os.PathLike[str] | None = None,
    *,
    plan: Plan = DEFAULT,
    score: Score | Callable[[nn.Module], float] | None = None,
    known_from: Sequence[str | os.PathLike[str]] = (),
    name: str | None = None,
    fabric: Fabric | None = None,
    device: torch.device | str | None = None,
) -> Found:
    """Search for the best structure within a budget, without training: the loop that trains it is yours.

    Args:
        model: the trained network; it is not changed.
        data: an `aacp.Data`; or only inputs to calibrate on, such as a loader, a list of batches or a tensor, if your
            own code reads the data for the score.
        budget: limits that must all hold, such as {"macs": 0.5, "weight_bytes": "2MB"}; see `aacp.prune`.
        folder: the run folder. The same call resumes from it, and `aacp.prune` with the same folder trains what was
            found. None keeps nothing on the disk.
        plan: how to search. Nothing is trained. With a recipe, as in the default plan, `cut` leaves the weights to the
            training that follows; with recipe=None it repairs them.
        score: judges a network; a higher score is better. With an `aacp.Data` it is called with (network, batches).
            With inputs alone it is called with a network, a copy that it may change. None is accuracy or, without
            labels, the likeness of the outputs to those of the unpruned network (1 is equal).
        known_from: folders of earlier runs of the same network, whose evaluations the search reuses.
        name: the name that `aacp.build_model` builds the unpruned network by, if it has one.
        fabric: a launched Lightning fabric, if the program runs in several processes. All of them call this with the
            same arguments: rank 0 searches while the others wait, and all get the result.
        device: where to compute; None is the GPU, if there is one.
    """
    require_plan(plan)
    _require_process(fabric, device)
    budget = Budget.of(budget)
    plan = _without_training(plan)
    plan.check_budgets([budget])
    kept = [] if folder is None else [RunFolder(path_text("folder", folder))]
    if isinstance(data, Data):
        judge: Any = score
    else:
        judge = None if score is None else NetworkScore(function("score", score, "(network)"))
        data = Data(data, data, data, CALIBRATION)
    where = device_of(device) if fabric is None else fabric.device
    task = PruningTask.of(model, data, name, where, judge)
    shared = SharedEstimate(task, plan)

    def search() -> dict[str, Any]:
        earlier = known_runs(known_from, kept)  # here, because other ranks may not see these folders
        with TemporaryDirectory(prefix="aacp-") if folder is None else nullcontext(folder) as place:
            files = RunFolder(Path(place))
            label = "" if folder is not None else type(model).__name__  # a temporary folder means nothing to users
            run = PruningRun(task, budget, plan, files, known_from=earlier, shared=shared, label=label)
            try:
                graph, choice = run.find()
            finally:
                shared.release()
            history = [candidate.to_json() for candidate in recorded(place)]
            return {"graph": graph.to_json(), "choice": choice.to_json(), "history": history}

    result = search() if fabric is None else Ranks(fabric).of_rank_0(search)
    graph = ChannelGraph.from_json(result["graph"])
    choice = ChosenStructure.from_json(result["choice"])
    history = History(Candidate.from_json(line) for line in result["history"])
    return Found(graph, choice, shared.inheritance(graph), history, task.example(), name, device_of_model(model))


def _require_process(fabric: Fabric | None, device: torch.device | str | None) -> None:
    """Reject a second search for the same network in another process, and a device beside that of a fabric."""
    if fabric is not None and device is not None:
        raise InvalidOption("A fabric has its own device for each process. Leave device out.")
    if fabric is None and dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
        raise InvalidOption(
            f"Process {dist.get_rank()} of {dist.get_world_size()} called aacp.find, which searches in one process. "
            "Call it in process 0 alone, save the network there and load it in all processes; or give a fabric."
        )


def _without_training(plan: Plan) -> Plan:
    """The plan of the search alone; a plan with something that only a training uses is rejected."""
    unused = {name: getattr(plan, name) for name in ("probe_epochs", "mimic", "finalists") if getattr(plan, name)}
    if unused:
        what = ", ".join(f"{name}={value}" for name, value in unused.items())
        raise InvalidOption(f"aacp.find trains nothing, but the plan has {what}. Leave that out, or use aacp.prune.")
    return replace(plan.without_training(), export=False, resources=False)
