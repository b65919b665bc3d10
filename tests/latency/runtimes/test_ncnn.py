"""ncnn: shapes in .param files, which needs no package, and what ncnn does besides the suite of all runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.runtimes.ncnn import Ncnn, operators_in, shapes_in, with_shapes

PARAM = """7767517
4 4
Input                    in1                      0 1 in1
Input                    in0                      0 1 in0
ReLU                     relu_0                   1 1 in0 1
Concat                   cat_0                    2 1 1 in1 out0 0=0
"""


@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 7, 5), (2, 3, 7, 5)])
def test_shapes_of_inputs_are_written_and_read_by_their_names(shape: tuple[int, ...]) -> None:
    text = with_shapes(PARAM, [shape, (9,)])
    assert shapes_in(text) == [(1, *shape), (1, 9)]
    assert [words[:2] for words in operators_in(text)] == [words[:2] for words in operators_in(PARAM)]
    assert text.splitlines()[4:] == PARAM.splitlines()[4:]


def test_width_height_and_channels_have_the_numbers_that_ncnn_gives_them() -> None:
    line = with_shapes(PARAM, [(3, 7, 5), (9,)]).splitlines()[3]
    assert line.split()[-3:] == ["0=5", "1=7", "2=3"]


@pytest.fixture
def runtime() -> Ncnn:
    found = Ncnn()
    if not found.is_installed:
        pytest.skip("ncnn or pnnx is not installed")
    return found


class Unknown(nn.Module):
    """A network with an operator that ncnn does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.erfcx(self.layer(x))


def test_the_layer_is_named_that_ncnn_does_not_have(runtime: Ncnn, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Threshold(0.1, 0.2)), nn.Threshold(0.3, 0.2)).eval()
    words = r"ncnn has no operator nn.Threshold \(layer 1.0\). Replace that part"
    with pytest.raises(aacp.ExportFailed, match=words):
        runtime.export(network, tmp_path / "network.param", torch.zeros(1, 3, 8, 8))


def test_an_operator_that_ncnn_does_not_have_is_named(runtime: Ncnn, tmp_path: Path) -> None:
    with pytest.raises(aacp.ExportFailed, match=r"ncnn has no operator aten::special_erfcx. Replace that part"):
        runtime.export(Unknown().eval(), tmp_path / "network.param", torch.randn(1, 3, 8, 8))
    assert not list(tmp_path.iterdir())


def test_a_batch_of_two_is_rejected(runtime: Ncnn) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"ncnn runs batches of at most 1, but the batch has 2 inputs"):
        runtime.prepare(nn.Conv2d(3, 4, 3).eval(), torch.randn(2, 3, 8, 8), device="cpu", threads=1)


def test_outputs_are_equal_in_every_run_though_relu_works_in_place(runtime: Ncnn) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3)).eval()
    example = torch.randn(1, 3, 8, 8)
    before = example.clone()
    run = runtime.prepare(model, example, device="cpu", threads=1)
    first = torch.as_tensor(run()[0])
    assert torch.equal(first, torch.as_tensor(run()[0]))
    assert torch.equal(example, before)
    torch.testing.assert_close(first, model(example).detach(), rtol=1e-4, atol=1e-5)


def test_a_network_in_double_precision_is_delivered_in_single_precision(runtime: Ncnn, tmp_path: Path) -> None:
    model = nn.Conv2d(3, 4, 3).double().eval()
    file = runtime.export(model, tmp_path / "network.param", torch.randn(1, 3, 8, 8).double())
    assert file.largest_difference is not None
    assert 0 < file.largest_difference < 1e-5
    assert model.weight.dtype == torch.float64
    assert (tmp_path / "network.bin").stat().st_size < 8 * model.weight.numel()
