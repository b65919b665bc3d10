"""MeasurementJob: from the name of a network to its latency table in a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import PRUNING_STEP, PruningStep, SearchSpace
from aacp.errors import InvalidOption
from aacp.graph.tracing import trace
from aacp.latency.defaults import SECONDS_PER_STRUCTURE, STRUCTURES
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.devices.exporting import export_networks, require_exportable
from aacp.latency.measure import measure_latency
from aacp.latency.remote import one_worker
from aacp.latency.steps import discover_steps, kept_steps
from aacp.latency.table import LatencyTable
from aacp.runs.folder import RunFolder
from aacp.user.progress import report_progress
from aacp.zoo.models import build_model, example_inputs


@dataclass(frozen=True)
class MeasurementJob:
    """A measurement that can be requested again: what the log beside the file holds is not measured twice.

    Args:
        model: the name of a network, as `build_model` takes it.
        file: where to save the table.
        where: runtime, device, batch and threads.
        shapes: the shape of each input; by default one, which the network states, or 1x3x224x224.
        step: the pruning step of the search space; "auto" finds one by timing.
        frozen: name patterns of layers that are not pruned.
        scope: "all", "inner" to leave residual streams alone, or "paper" for the groups that its authors pruned.
        structures: how many structures the table is fitted to.
        seconds_per_structure: how long to measure each structure, about.
        accept_noise: make a table even if it cannot decide anything, and do not measure longer.
        workers: None to measure here, or the Ray cluster one of whose workers measures, as `measure_latency` takes it.
    """

    model: str
    file: str
    where: Deployment = HERE
    shapes: tuple[tuple[int, ...], ...] = ()
    step: float | int | Literal["auto"] = PRUNING_STEP
    frozen: tuple[str, ...] = ()
    scope: str = "all"
    structures: int = STRUCTURES
    seconds_per_structure: float = SECONDS_PER_STRUCTURE
    accept_noise: bool = False
    workers: int | str | None = None

    def export(self, folder: str) -> Path:
        """Build and trace the network, and write its structures to a folder, to be timed on another device.

        The same request again continues an export that has stopped.
        """
        step = self._step_without_timing()
        network = build_model(self.model).eval()
        require_exportable(self.where.resolved_runtime)
        example = example_inputs(network, self.shapes, self.where.batch)
        graph = self._traced(network, example)
        return export_networks(
            network,
            graph,
            SearchSpace(graph, step),
            self.where,
            example=example,
            folder=folder,
            structures=self.structures,
        )

    def run(self) -> LatencyTable:
        """Build and trace the network, measure its structures, and save the table."""
        if self.workers is not None:
            self._step_without_timing()
            one_worker(self.workers)  # rejects a bad request before the network is built
        network = build_model(self.model).eval()
        if self.workers is None:
            conditions_here(network, self.where)  # rejects a bad deployment before the network runs
        example = example_inputs(network, self.shapes, self.where.batch)
        graph = self._traced(network, example)
        return measure_latency(
            network,
            graph,
            SearchSpace(graph, self._step(network, graph, example)),
            self.where,
            example=example,
            file=self.file,
            structures=self.structures,
            seconds_per_structure=self.seconds_per_structure,
            accept_noise=self.accept_noise,
            workers=self.workers,
        )

    def _step_without_timing(self) -> float | int:
        """The step of networks that are timed on another device; rejects "auto"."""
        if self.step == "auto":
            raise InvalidOption("The step auto is found by timing here, not on another device. Give a number as step.")
        return self.step

    def _traced(self, network: nn.Module, example: Any) -> ChannelGraph:
        """Trace the network without the ties of a scope: a table holds for every structure of the groups."""
        return replace(trace(network, example, frozen=self.frozen, scope=self.scope), ties=())

    def _step(self, network: nn.Module, graph: ChannelGraph, example: Any) -> PruningStep:
        """Return the requested step; "auto" is found by timing once and kept in a file beside the table."""
        if self.step != "auto":
            return self.step
        found = kept_steps(
            RunFolder(Path(self.file).parent),
            f"{Path(self.file).name}.steps",
            graph,
            lambda: discover_steps(network, graph, self.where, example=example),
            asdict(conditions_here(network, self.where)),
        )
        if found.note:
            report_progress(f"{self.file}.steps: {found.note}")
        return found
