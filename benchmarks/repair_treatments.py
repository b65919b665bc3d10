"""What the benchmarks of repair share: a cut network after each treatment, its scores with standard errors, the tables.

A treatment is what happens to a network between the cut and the delivery: "inherited" nothing, "recalibrated" the
statistics of its batch norms, "repaired" `aacp.repair`. All of them see the same images, without labels.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import aacp
from aacp.data.likeness import Likeness
from aacp.runs.provenance import machine

TREATMENTS = ("inherited", "recalibrated", "repaired")
ORDERS = ("l1", "activation", "obs")
Row = dict[str, Any]


@dataclass
class Subject:
    """A trained network, the images that its cut networks are fitted on, and those that score them.

    Args:
        model: the unpruned network, in evaluation mode.
        graph: its channel graph.
        calibration: images to recalibrate and repair on.
        test: images and targets that nothing is fitted or searched on.
        device: where to compute.
        score: what judges a network, given (network, batches).
    """

    model: nn.Module
    graph: aacp.ChannelGraph
    calibration: Any
    test: Any
    device: str
    score: Callable[[nn.Module, aacp.Batches], float] = aacp.accuracy
    inheritances: dict[str, aacp.Inheritance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = self.model.to(self.device).eval()
        self.calibration = aacp.Batches.of(self.calibration, batch_size=128, device=self.device)
        self.test = aacp.Batches.of(self.test, device=self.device)
        self.likeness = Likeness(self.model)

    def inheritance(self, importance: str) -> aacp.Inheritance:
        """The plain inheritance by an order of importance, made once."""
        if importance not in self.inheritances:
            self.inheritances[importance] = aacp.Inheritance(
                self.model, self.graph, self.calibration, importance=importance, device=self.device
            )
        return self.inheritances[importance]

    def estimate(self, holdout: Any, importance: str, *, repaired: bool, score: Any = None) -> aacp.PSAE:
        """An estimate on held-out images: of networks that are only recalibrated, or of repaired ones."""
        chosen = self.inheritance(importance)
        if repaired:
            chosen = aacp.Inheritance(
                self.model,
                self.graph,
                self.calibration,
                importance=importance,
                reconstruction="repair",
                device=self.device,
            )
        return aacp.PSAE(chosen, holdout, score=score or self.score)

    def network(self, structure: Iterable[int], importance: str, treatment: str) -> tuple[nn.Module, tuple[str, ...]]:
        """A cut network after its treatment, in evaluation mode, and the notes of the repair."""
        kept = self.inheritance(importance).kept(structure)
        network = aacp.shrink(self.model, self.graph, kept).to(self.device).eval()
        notes: tuple[str, ...] = ()
        if treatment == "recalibrated":
            aacp.recalibrate(network, self.calibration)
        elif treatment == "repaired":
            notes = tuple(aacp.repair(network, self.model, self.graph, kept, self.calibration))
        return network.eval(), notes

    def row(self, structure: Iterable[int], importance: str, treatment: str) -> Row:
        """The scores of a structure after a treatment, and the seconds that cutting and treating took."""
        counts = [int(count) for count in structure]
        self.inheritance(importance)  # its time is not that of the treatment
        wait_for(self.device)
        begun = time.perf_counter()
        network, notes = self.network(counts, importance, treatment)
        wait_for(self.device)
        seconds = time.perf_counter() - begun
        cost = aacp.macs(self.graph)
        row = {"importance": importance, "treatment": treatment, "seconds": round(seconds, 3), "structure": counts}
        row |= {"removed": 1 - float(cost(aacp.Structure(counts))) / cost.full, "notes": list(notes)}
        return row | self.judged(network)

    def judged(self, network: nn.Module) -> Row:
        """The score on the test images, its standard error if it is an accuracy, and the likeness of the outputs."""
        score = self.score(network, self.test)
        row = {"score": score, "n": self.test.images, "likeness": self.likeness(network, self.test)}
        if self.score is aacp.accuracy:
            row["standard_error"] = standard_error(score, self.test.images)
        return row


def standard_error(share: float, count: int) -> float:
    """The standard error of a share that was counted over `count` images."""
    return math.sqrt(max(0.0, share * (1 - share)) / count)


def wait_for(device: str | torch.device) -> None:
    """Wait until the device has finished its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


# -- structures -------------------------------------------------------------------------------------------------------


def budget_of(graph: aacp.ChannelGraph, rate: float) -> aacp.Budget:
    """A budget that removes a share of the MACs."""
    return aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=rate))


def uniform(graph: aacp.ChannelGraph, inner: aacp.ChannelGraph, budget: aacp.Budget) -> aacp.Structure:
    """Uniform widths of the free groups of `inner`, in which residual streams are frozen, as a structure of `graph`.

    Args:
        graph: the channel graph.
        inner: the graph of the same network in which the residual streams are frozen.
        budget: what the structure has to meet, by the costs of `inner`.
    """
    (found,) = aacp.searcher("uniform", aacp.SearchSpace(inner), budget).ask()
    kept = {group.name: count for group, count in zip(inner.free, found, strict=True)}
    return aacp.Structure(kept.get(group.name, group.width) for group in graph.free)


def ranked_globally(graph: aacp.ChannelGraph, scores: np.ndarray, rate: float, *, relative: bool) -> aacp.Structure:
    """The structure that is left if all channels of the network are ranked together by a score and the last ones go.

    Args:
        graph: the channel graph.
        scores: one number per unit of the graph.
        rate: the share of the MACs to remove.
        relative: compare scores relative to the mean of their group, since norms of different layers differ in size.
    """
    cost = aacp.macs(graph)
    parts = [scores[graph.unit_groups == i] for i, group in enumerate(graph.groups) if group.frozen is None]
    parts = [part / part.mean() for part in parts] if relative else parts
    low, high = 0, len(np.concatenate(parts))
    thresholds = np.sort(np.concatenate(parts))
    while low < high:  # the lowest threshold that removes enough
        middle = (low + high) // 2
        counts = [max(1, int((part > thresholds[middle]).sum())) for part in parts]
        if float(cost(np.array(counts))) <= (1 - rate) * cost.full:
            high = middle
        else:
            low = middle + 1
    last = thresholds[min(low, len(thresholds) - 1)]
    return aacp.Structure(max(1, int((part > last).sum())) for part in parts)


def by_curves(subject: Subject, rate: float) -> Row:
    """The structure of the method `curves`, which evaluates nothing, and the seconds for the curves and the choice."""
    begun = time.perf_counter()
    curves = subject.inheritance("obs").error_curves
    space = aacp.SearchSpace(subject.graph)
    (found,) = aacp.searcher("curves", space, budget_of(subject.graph, rate), curves=curves).ask()
    return {"structure": list(found), "seconds": round(time.perf_counter() - begun, 2)}


def searched(graph: aacp.ChannelGraph, rate: float, estimate: aacp.PSAE, evaluations: int, seed: int) -> Row:
    """The structure that the default search recommends, the seconds, and everything that was evaluated."""
    begun = time.perf_counter()
    method = aacp.searcher("default", aacp.SearchSpace(graph), budget_of(graph, rate), seed=seed)
    found = aacp.run_search(method, estimate, evaluations=evaluations)
    history = [[candidate.score, list(candidate.structure)] for candidate in found.history]
    row = {"structure": list(found.recommended.structure), "estimate": found.recommended.score, "seed": seed}
    return row | {"seconds": round(time.perf_counter() - begun, 2), "history": history}


# -- tables and files -------------------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_order(rows: Sequence[Row]) -> str:
    """A table of one structure: a line for each order of channels, a column for each treatment."""
    first = rows[0]
    orders = list(dict.fromkeys(row["importance"] for row in rows))
    treatments = list(dict.fromkeys(row["treatment"] for row in rows))
    heads = [f"{first['widths']}, {-100 * first['removed']:.1f} % MACs", *treatments, "likeness, last", "seconds, last"]
    lines = []
    for order in orders:
        cells = [row for row in rows if row["importance"] == order]
        last = cells[-1]
        lines.append([order, *map(per_cent, cells), f"{last['likeness']:.3f}", f"{last['seconds']:.1f}"])
    return table(heads, lines) + "\n"


def per_cent(row: Mapping[str, Any]) -> str:
    """A score in per cent, with its standard error if there is one."""
    error = f" ± {100 * row['standard_error']:.1f}" if "standard_error" in row else ""
    return f"{100 * row['score']:.2f}{error}"


def circumstances(device: str) -> Row:
    """The command, the versions and the hardware of a result; of the paths of this machine only the last parts."""
    words = [without_folders(word) for word in sys.argv]
    versions = f"python {platform.python_version()}, torch {torch.__version__}, aacp {aacp.__version__}"
    gpu = torch.cuda.get_device_name() if torch.device(device).type == "cuda" else None
    hardware = {"machine": machine(), "gpu": gpu, "threads": torch.get_num_threads()}
    return {"command": " ".join(["python", *words]), "versions": versions, "hardware": hardware}


def commit() -> str:
    """The commit of the code of aacp that this process runs."""
    words = ["git", "-C", str(Path(aacp.__file__).parent), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def without_folders(word: str) -> str:
    """An argument in which an absolute path is shortened to its last part."""
    kind, colon, path = word.rpartition(":")
    return kind + colon + os.path.basename(path) if path.startswith(("/", "~")) else word


def write(out: Path | None, name: str, result: Row) -> None:
    """Write a result as JSON to a folder, if one is given; a run that stops half-way keeps what it wrote before."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        unfinished = out / f"{name}.json.unfinished"
        unfinished.write_text(json.dumps(result) + "\n")
        unfinished.replace(out / f"{name}.json")
