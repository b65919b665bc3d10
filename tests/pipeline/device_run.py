"""A run of a tiny network for a device in another process: its latency table, and what the run delivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import aacp
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.pruning import prune
from latency.device_process import run_on_device
from latency.simulator import FileSimulator
from pipeline import tiny_run

WHERE = aacp.Deployment(FileSimulator(), "npu", threads=1)
SPEED = {"per_batch": 1e-6, "per_mac": 1e-8}  # of the device, where the network is small
RATE = 0.4  # the share of the latency to remove
TRAINING = Path("trainings") / "untrained"


def device_table(folder: Path) -> Path:
    """The table of the device, as `aacp measure --from` writes it, with the folder of its networks beside it."""
    model = tiny_run.network().eval()
    example = torch.zeros(1, 1, 8, 8)
    graph = aacp.trace(model, example)
    space = aacp.SearchSpace(graph, 1 / 8)
    networks = folder / "networks"
    aacp.export_networks(model, graph, space, WHERE, example=example, folder=networks, structures=16, held_out=5)
    ended = run_on_device(networks, **SPEED)
    assert ended.returncode == 0, ended.stderr
    aacp.table_from_results(networks / "results.json").save(folder / "table.json")
    return folder / "table.json"


def device_plan(table: Path, **others: Any) -> aacp.Plan:
    short = replace(tiny_run.PLAN, recipe=None, reconstruction=None, export=True)
    return replace(short, deployment=WHERE, latency_table=str(table), **others)


def pruned_for_device(folder: Path, plan: aacp.Plan) -> Pruned:
    return prune(tiny_run.network(), tiny_run.data(), {"latency": RATE}, folder, plan=plan, device="cpu")
