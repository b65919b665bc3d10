"""MeasuringJob: from the name of a network to its latency table in a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from aacp.channels import ChannelGraph
from aacp.errors import RunMismatch
from aacp.graph.tracing import trace
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.measure import STRUCTURES, measure_latency
from aacp.latency.steps import discover_steps
from aacp.latency.table import LatencyTable
from aacp.runs.folder import RunFolder
from aacp.space import PruningStep, SearchSpace
from aacp.zoo.models import build_model, example_input


@dataclass(frozen=True)
class MeasuringJob:
    """A measurement that can be asked for again: what is in the log beside the file is not measured twice."""

    model: str
    file: str
    where: Deployment = HERE
    shape: tuple[int, ...] | None = None
    step: float | int | Literal["auto"] = 1 / 8
    frozen: tuple[str, ...] = ()
    scope: str = "all"
    structures: int = STRUCTURES
    seconds_per_structure: float = 1.0
    verbose: bool = False

    def run(self) -> LatencyTable:
        network = build_model(self.model).eval()
        setting = asdict(conditions_here(network, self.where))
        example = example_input(network, self.shape, self.where.batch)
        graph = trace(network, example, frozen=self.frozen, scope=self.scope)
        return measure_latency(
            network,
            graph,
            SearchSpace(graph, self._step(network, graph, example, setting)),
            self.where,
            example=example,
            file=self.file,
            structures=self.structures,
            seconds_per_structure=self.seconds_per_structure,
            verbose=self.verbose,
        )

    def _step(self, network: nn.Module, graph: ChannelGraph, example: Any, setting: dict[str, Any]) -> PruningStep:
        """The step that was asked for; found by timing once, if that was asked for."""
        if self.step != "auto":
            return self.step
        folder, name = RunFolder(Path(self.file).parent), f"{Path(self.file).name}.steps"
        known = folder.read_json(name)
        names = [group.name for group in graph.free]
        if known is not None and (known["setting"] != setting or list(known["steps"]) != names):
            raise RunMismatch(f"{name} holds steps of another network or setting. Remove it, or choose another file.")
        if known is None:
            steps = discover_steps(network, graph, self.where, example=example, verbose=self.verbose)
            known = {"setting": setting, "steps": steps}
            folder.write_json(name, known)
        found: dict[str, int] = known["steps"]
        return found
