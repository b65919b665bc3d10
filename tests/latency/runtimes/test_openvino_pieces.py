"""Pieces are read from the counters of the operators that OpenVINO executes; these tests need no OpenVINO."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from aacp.latency.runtimes import openvino, openvino_pieces
from aacp.latency.runtimes.openvino_pieces import Operator, mean_of_runs, pieces_of_operators
from aacp.latency.runtimes.runtime import TimedLayer


def operators(*entries: tuple[str, tuple[int, ...]]) -> list[Operator]:
    return [Operator(f"{kind}_{place}", kind, place, output) for place, (kind, output) in enumerate(entries)]


def layer(size: tuple[int, ...], channels: int, is_convolution: bool = True) -> TimedLayer:
    return TimedLayer("layer", is_convolution, size, channels, 1)


def test_reorders_and_pools_belong_to_the_layer_before_them() -> None:
    run = operators(
        ("Reorder", (1, 3, 8, 8)),
        ("Convolution", (1, 16, 8, 8)),
        ("Pooling", (1, 16, 4, 4)),
        ("FullyConnected", (1, 10)),
        ("SoftMax", (1, 10)),
    )
    assert pieces_of_operators(run, [layer((8, 8), 16), layer((), 10, is_convolution=False)]) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("shape", [(1, 12, 8, 8), (1, 16, 4, 4)])
def test_branches_that_run_in_another_order_are_identified_by_their_output(shape: tuple[int, ...]) -> None:
    run = operators(("Convolution", shape), ("Eltwise", shape), ("Convolution", (1, 16, 8, 8)))
    assert pieces_of_operators(run, [layer((8, 8), 16), layer(shape[2:], shape[1])]) == [1, 1, 0]


def test_products_are_part_of_a_piece_if_only_convolutions_begin_one() -> None:
    run = operators(("Convolution", (1, 16, 8, 8)), ("MatMul", (1, 64, 64)))
    assert pieces_of_operators(run, [layer((8, 8), 16)]) == [0, 0]


def test_fused_layers_have_no_pieces() -> None:
    run = operators(("Convolution", (1, 16, 8, 8)))
    assert pieces_of_operators(run, [layer((8, 8), 16), layer((8, 8), 16)]) is None


def test_runs_that_were_interrupted_do_not_count() -> None:
    seconds = np.array([1.0, 1.1, 9.0, 0.9])
    rows = np.array([[0.5, 0.2], [0.5, 0.4], [8.0, 0.2], [0.2, 0.3]])
    assert mean_of_runs(seconds, rows) == pytest.approx([0.4, 0.3])


class SimulatedRuntime(openvino.OpenVino):
    """OpenVINO on a machine with a clock of its own, which every run moves forward."""

    packages = ()
    now = 0.0
    seconds = 1.0  # of the next run

    def clock(self) -> float:
        return self.now

    def model_of(self, source: object, network: object, tensors: object) -> None:
        return None

    def infer(self, inputs: object, share_inputs: bool) -> None:
        self.now += self.seconds

    def create_infer_request(self) -> SimulatedRuntime:
        return self

    def get_profiling_info(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_name="Convolution_0", real_time=timedelta(microseconds=100))]


def test_runs_are_timed_by_the_clock_of_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimulatedRuntime()
    monkeypatch.setattr(openvino, "export_quickly", lambda *arguments: None)
    monkeypatch.setattr(openvino, "save_model", lambda *arguments: None)
    monkeypatch.setattr(
        openvino_pieces, "OpenVinoFile", lambda *arguments: SimpleNamespace(bound_to=lambda tensors: None)
    )
    monkeypatch.setattr(openvino_pieces, "compiled", lambda *arguments, profile: runtime)
    monkeypatch.setattr(openvino_pieces, "executed_operators", lambda _: operators(("Convolution", (1, 16, 8, 8))))
    pieces = runtime.prepare_pieces(nn.Identity(), torch.zeros(1), [layer((8, 8), 16)], device="cpu", threads=1)
    for runtime.seconds in (2.0, 3.0, 4.0):
        pieces.run_timed()
    ((short,), (middle,), (long,)) = pieces.take_recorded()
    assert (short / middle, long / middle) == pytest.approx((2 / 3, 4 / 3))
