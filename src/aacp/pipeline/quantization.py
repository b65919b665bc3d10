"""Quantization: the calibration inputs of networks in int8, their scores, and a trial before the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.data.batches import Batches
from aacp.data.examples import moved
from aacp.data.splits import sampled
from aacp.errors import AACPError
from aacp.graph.examples import batch_of, with_batch
from aacp.latency.layers import describe_pieces, timed_layers
from aacp.latency.runtimes.runtime import QuantizedFile, Runtime, RuntimeFile
from aacp.latency.runtimes.torch import timed_copy
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.runs.exports import QuantizedScores

# The most training images that ranges of activations are found on, to limit the time and memory of calibration. The
# number is a choice: its effect on the accuracy has not been measured.
MAX_IMAGES = 512
BATCH = 32  # images that are calibrated at once
TRIED_IMAGES = 2  # calibration images of the trial before the search


def calibration_inputs(task: PruningTask, plan: Plan, most: int = MAX_IMAGES) -> list[Any]:
    """Return batches of training inputs on the CPU, drawn like those that batch norms are recalibrated on.

    Args:
        task: the network and its data; nothing but its training data are read.
        plan: its number of calibration images and its seed.
        most: the largest number of images.
    """
    count = min(most, plan.calibration_images)
    sample = sampled(task.data.train, count, plan.seed)
    return list(Batches.of(sample, batch_size=min(BATCH, count), images=count, keep=False).inputs())


def check_quantization(task: PruningTask, plan: Plan, graph: ChannelGraph) -> None:
    """Quantise the unpruned network and run it once, since errors would show during the search or after it."""
    where = plan.deployment
    if not where.is_quantized:
        return
    runtime = where.runtime_calibrated_on(calibration_inputs(task, plan, TRIED_IMAGES))
    example = with_batch(moved(task.example(), "cpu"), where.batch)
    layers, _ = describe_pieces(task.model, example, graph)
    timed = timed_layers(graph, layers, graph.full)
    network = timed_copy(task.model)
    runtime.prepare_pieces(network, example, timed, device=where.device, threads=where.threads).run()


@dataclass(frozen=True, eq=False)
class Quantization:
    """How the networks of a task are calibrated and scored in int8."""

    task: PruningTask
    plan: Plan

    @cached_property
    def images(self) -> list[Any]:
        """Batches of training inputs on the CPU that ranges of activations are found on, read when they are needed."""
        return calibration_inputs(self.task, self.plan)

    def scores_of(
        self, networks: Mapping[str, nn.Module], files: Mapping[str, RuntimeFile], runtime: Runtime, example: Any
    ) -> QuantizedScores:
        """Score both files on test data: the only use of test data here, after everything is decided."""
        tests: dict[str, float | None] = {"original": None, "pruned": None}
        note = ""
        try:
            for name, network in networks.items():
                quantized = runtime.module_of(files[name].path, timed_copy(network), example)
                tests[name] = self.task.score_network(quantized, self.task.data.test)
        except AACPError as error:  # the files are complete without their scores
            note = f"not scored: {error}"
        return QuantizedScores(
            calibration_images=sum(map(batch_of, self.images)),
            before_test=tests["original"],
            after_test=tests["pruned"],
            before_likeness=_likeness(files["original"]),
            after_likeness=_likeness(files["pruned"]),
            note=note,
        )


def _likeness(file: RuntimeFile) -> float | None:
    return file.likeness if isinstance(file, QuantizedFile) else None
