"""Evaluation: what a network scores and costs, whether pruned or not."""

from __future__ import annotations

from pathlib import Path

from aacp.artefact.storage import load
from aacp.data.devices import device_of
from aacp.errors import InvalidOption
from aacp.graph.tracing import trace
from aacp.pipeline.job import network_of, score_of
from aacp.pipeline.request import read_request
from aacp.pipeline.task import PruningTask
from aacp.runs.files import NetworkMetrics
from aacp.runs.folder import RunFolder
from aacp.zoo.data import load_data


def evaluate(
    network: str,
    *,
    data: str | None = None,
    weights: str | None = None,
    model: str | None = None,
    metric: str | None = None,
    device: str | None = None,
    seed: int | None = None,
) -> NetworkMetrics:
    """What the pruned network of a run folder or file scores and costs, or a network by its name.

    A run folder knows its data, score and seed; `model` is what a file was cut from, where it does not say so.
    """
    path, knows_holdout = Path(network), False
    if path.exists() and weights is not None:
        raise InvalidOption(f"{network} has its own weights, and those of {weights} would be ignored. Leave them out.")
    if not path.exists() and model is not None:
        raise InvalidOption(
            f"{network} is no run folder and no file, so that {model} would be ignored. Name one network, or give the "
            "path of what was cut from it."
        )
    if path.is_dir():
        asked = read_request(RunFolder(path))
        knows_holdout = asked.train_on_holdout and asked.recipe is not None
        if seed not in (None, asked.seed):
            raise InvalidOption(
                f"The hold-out of {network} was drawn with seed {asked.seed}, not {seed}. Leave it out."
            )
        data, metric, seed = data or asked.data_source or asked.data, metric or asked.metric_source or None, asked.seed
    if data is None:
        raise InvalidOption(f"{network} does not say what data to evaluate it on. Name the data (--data).")
    seed = seed or 0
    judged = load(path, into=model) if path.exists() else network_of(network, weights, seed)
    subject = PruningTask(judged, load_data(data, seed=seed), network, device_of(device), score_of(metric))
    graph = trace(judged, subject.example())
    return subject.measured(judged, graph, graph.full, knows_holdout=knows_holdout)
