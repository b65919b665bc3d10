"""CUDA graphs: a captured network computes what the module computes, and its pieces are timed in the graph.

The suite of test_every_runtime runs on it too, where there is a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.latency.runtimes import cuda_graphs
from aacp.latency.runtimes.cuda_graphs import CapturedNetwork, CudaGraphs
from aacp.latency.runtimes.runtime import PiecesByMacs, TimedLayer

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])

EXAMPLE = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LAYERS = [TimedLayer(name, True, (30, 30), 64, 1000) for name in ("0", "2", "4")]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 256, 3), nn.ReLU(), nn.Conv2d(256, 8, 1)
    ).eval()  # fmt: skip


class Waiting(nn.Module):
    """A network whose forward waits for the GPU."""

    def forward(self, images: Tensor) -> Tensor:
        return images * images.mean().item()


def test_it_runs_on_gpus_only() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"The runtime cuda-graphs has no device 'cpu'\. Use cuda, or"):
        aacp.Deployment("cuda-graphs", "cpu")
    with pytest.raises(aacp.InvalidOption, match=r"torch runs modules, but a\.onnx is a file"):
        CudaGraphs().prepare(Path("a.onnx"), EXAMPLE, device="cuda", threads=1)


def test_without_events_in_graphs_the_time_is_divided_by_macs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "HAS_EXTERNAL_EVENTS", False)
    monkeypatch.setattr(CudaGraphs, "translate", lambda *_, **__: lambda: None)
    pieces = CudaGraphs().prepare_pieces(network(), EXAMPLE, LAYERS, device="cuda", threads=1)
    assert isinstance(pieces, PiecesByMacs)
    pieces.run_timed()
    ((first, *others),) = pieces.take_recorded()
    assert others == [first, first]


@on_gpu
def test_a_replay_computes_what_the_module_computes(device: str) -> None:
    captured = CapturedNetwork(network(), EXAMPLE, device)
    expected = captured._prepared.network(*captured._prepared.arguments)
    found = captured.run()
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, expected.detach())
    captured._prepared.arguments[0].mul_(2)  # a run computes anew, with the inputs that are there
    assert not torch.allclose(captured.run(), expected)


@on_gpu
def test_pieces_are_timed_in_the_graph(device: str) -> None:
    pieces = CudaGraphs().prepare_pieces(network(), EXAMPLE, LAYERS, device=device, threads=1)
    assert not isinstance(pieces, PiecesByMacs)
    for _ in range(20):
        pieces.run_timed()
    recorded = torch.tensor(pieces.take_recorded())
    assert recorded.shape == (20, 3)
    middle = recorded.median(0).values
    assert (middle > 0).all()
    assert middle[1] == middle.max()  # it has 85 times the MACs of the first layer, and 72 times those of the last
    assert pieces.take_recorded() == []


@on_gpu
def test_a_network_that_waits_for_the_gpu_is_rejected(device: str) -> None:
    message = r"Waiting cannot be captured as a CUDA graph: .*\. Remove what waits .* use the runtime torch\."
    with pytest.raises(aacp.ExportFailed, match=message):
        CapturedNetwork(Waiting(), EXAMPLE, device)
    assert isinstance(CapturedNetwork(network(), EXAMPLE, device).run(), Tensor)  # the GPU is as before


@on_gpu
def test_a_limit_is_measured_in_graphs(device: str) -> None:
    model = network()
    graph = aacp.trace(model, EXAMPLE)
    where = aacp.Deployment("cuda-graphs", device)
    space = aacp.SearchSpace(graph, 1 / 4)
    table = aacp.measure_latency(
        model, graph, space, where, example=EXAMPLE, structures=6, held_out=3, seconds_per_structure=0.1
    )
    assert table.conditions.runtime == "cuda-graphs"
    (checked,) = aacp.check_latency(model, graph, [graph.full], where, example=EXAMPLE, turns=5)
    assert 0.5 < checked.ratio.median < 2
