"""Evaluation: the scores and costs of a network, pruned or not."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from aacp.artefact.header import Artefact
from aacp.artefact.storage import load
from aacp.data.devices import device_of
from aacp.data.likeness import LIKENESS, Likeness
from aacp.data.scores import accuracy
from aacp.data.splits import Holdout
from aacp.errors import InvalidData, InvalidOption, UnknownModel
from aacp.graph.tracing import trace
from aacp.pipeline.functions import importable
from aacp.pipeline.job import score_of
from aacp.pipeline.request import read_request
from aacp.pipeline.task import PruningTask, chosen_score
from aacp.runs.folder import RunFolder
from aacp.runs.requests import Request
from aacp.runs.scores import NetworkMetrics
from aacp.runs.trainings import delivered_in, read_training, run_of
from aacp.train.job import network_of
from aacp.zoo.data import load_data
from aacp.zoo.networks import NETWORKS
from aacp.zoo.trust import DATA, MODEL, require_trust


def evaluate(
    network: str,
    *,
    data: str | None = None,
    weights: str | None = None,
    model: str | None = None,
    metric: str | None = None,
    device: str | None = None,
    seed: int | None = None,
    holdout: Holdout = None,
    cache: str | None = None,
    trust: bool = False,
) -> NetworkMetrics:
    """The scores and costs of a network.

    Args:
        network: a run folder with one training, the folder of a training (RUN/trainings/NAME), a file of a pruned
            network, or a name that `build_model` knows.
        data: the name of the data; a run folder records its own.
        weights: the file of the weights of a network given by name.
        model: the name of the network that a file was cut from, if the file does not record it.
        metric: package.module:function of the score; a run folder records its own, if a module defines it.
        device: where to compute; None is the GPU, if there is one.
        seed: the seed of the hold-out; a run folder records its own.
        holdout: the part of the training data that is held out, see `load_data`; a run folder records its own.
        cache: the folder of decoded images, see `load_data`.
        trust: whether code that a run folder or file names may be imported, see `aacp.load`.
    """
    path = Path(network)
    trained_on_holdout = False
    request: Request | None = None
    if path.exists() and weights is not None:
        raise InvalidOption(f"{network} has its own weights, and those of {weights} would be ignored. Leave them out.")
    if not path.exists() and model is not None:
        raise InvalidOption(
            f"{network} is neither a run folder nor a file, so {model} would be ignored. Name one network, or give the "
            "path of a network that was cut from it."
        )
    if not path.exists() and network not in NETWORKS and ":" not in network:
        raise UnknownModel(
            f"There is no file or folder {network}, and no network of this name. Name a run folder, the file of a "
            "pruned network, or a MODEL that aacp --help explains."
        )
    if path.is_dir():
        request = read_request(RunFolder(run_of(path)))
        training = read_training(delivered_in(path).parent)
        trained_on_holdout = training is not None and training.train_on_holdout and training.recipe is not None
        if request.holdout_seed is not None and seed not in (None, request.holdout_seed):
            raise InvalidOption(
                f"The hold-out of {network} was drawn with seed {request.holdout_seed}, not {seed}. Leave the seed out."
            )
        if holdout not in (None, request.holdout):
            raise InvalidOption(
                f"The hold-out of {network} is {request.holdout or 'the default'}, not {holdout}. Leave it out."
            )
        recorded = [(DATA, None if data else request.data_source or request.data)]
        recorded += [("score", None if metric else importable(request.metric_source))]
        recorded += [(MODEL, None if model else name) for name in (request.model, Artefact.read(path).model)]
        require_trust(path, recorded, trust)
        data = data or request.data_source or request.data
        metric = metric or importable(request.metric_source)
        if metric is None and (request.metric_source or request.metric not in (accuracy.__name__, LIKENESS)):
            raise InvalidOption(
                f"{network} was scored by {request.metric}, which cannot be imported, since no module defines it. Name "
                "a score (--metric)."
            )
        seed = seed if request.holdout_seed is None else request.holdout_seed
        holdout = request.holdout
    if data is None:
        raise InvalidOption(f"{network} does not record what data to evaluate it on. Name the data (--data).")
    seed = seed or 0
    evaluated = load(path, into=model, trust=trust) if path.exists() else network_of(network, weights, seed)
    loaded = load_data(data, holdout=holdout, seed=seed, cache=cache)
    score = chosen_score(score_of(metric), evaluated, loaded)
    if isinstance(score, Likeness):
        score = Likeness(_original(network, request, model))
    task = PruningTask(evaluated, loaded, network, device_of(device), score)
    graph = trace(evaluated, task.example())
    return task.measure(evaluated, graph, graph.full, trained_on_holdout=trained_on_holdout)


def _original(network: str, request: Request | None, model: str | None) -> nn.Module:
    """The unpruned network of a run, which its pruned network is compared with if there are no labels."""
    if request is None:
        raise InvalidData(
            f"The data have no labels, so {network} can only be compared with its original, which is not known. Give "
            "labelled data, a score (--metric), or the folder of a run."
        )
    return network_of(model or request.model, request.weights_file or None, request.seed)
