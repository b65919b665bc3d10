"""Every micro network is traced, cut, and compared with the original."""

from __future__ import annotations

import copy
import copyreg
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.graph.tracing import prepare
from aacp.graph.unverified import evaluation_copy
from graph.micro_networks import MICRO, Micro
from graph.oracles import counted_macs, half, in_double, tensors, traced, zero_masked
from sampling import sampled

# Networks in which removed channels are absent from a statistic, where a zero would still count (or from a product
# after elu(x) + 1, which makes it a one, or from a divisor, where it may not stand): they are compared with the masked
# program here, and by hand in test_masking.py.
STATISTICS = set(
    """cbam convnext_block global_context global_response_norm group_norm layer_norm_2d_by_hand layer_norm_functional
    layer_norm_of_whole_map linear_attention patch_merging position_embedding rms_norm statistics_buffers weight_norm
    weight_standardised_by_batch_norm weight_standardised_by_hand""".split()
)


def states(graph: aacp.ChannelGraph, layer_name: str) -> set[str | None]:
    """The frozen reasons (None: free) of the channels a layer makes."""
    found: set[str | None] = set()
    for layer in graph.layers:
        if layer.name == layer_name and layer.output is not None:
            lane = graph.lanes[layer.output]
            found |= {graph.groups[group].frozen for group in graph.unit_groups[lane[lane >= 0]]}
    return found


# Every twentieth network is in the quick tier: together they take most of a minute.
TIERS = sampled(MICRO, 20, pytest.mark.slow)


@pytest.mark.parametrize("micro", TIERS, ids=lambda micro: micro.name)
def test_half_of_every_free_group_can_go(micro: Micro) -> None:
    model, example = micro.build(), micro.example()
    before = copy.deepcopy(model.state_dict())
    graph = traced(micro)
    kept = half(graph, seed=1)
    smaller = aacp.shrink(model, graph, kept)

    for name in micro.free:
        assert None in states(graph, name), f"{name} should be free: {states(graph, name)}"
    for name in micro.frozen:
        assert None not in states(graph, name), f"{name} should be frozen"
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())

    counts = [len(kept[group.name]) for group in graph.free]
    assert aacp.macs(graph).full == counted_macs(model.eval(), example)
    assert aacp.macs(graph)(counts) == counted_macs(smaller.eval(), example)
    assert aacp.params(graph).full == sum(p.numel() for p in model.parameters())
    assert aacp.params(graph)(counts) == sum(p.numel() for p in smaller.parameters())

    if micro.name not in STATISTICS:
        units = graph.kept_units(kept)
        expected = tensors(zero_masked(model, graph, units).double().eval()(*in_double(example)))
        found = tensors(smaller.double().eval()(*in_double(example)))
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9 * max(1.0, one.abs().max().item()))
            assert one.abs().max() > 0
    assert np.all(np.array(counts) >= 1)


# All networks that zeros cannot be compared with, and a sample of the others.
COMPARED = [
    *(micro for micro in MICRO if micro.name in STATISTICS),
    *sampled((micro for micro in MICRO if micro.name not in STATISTICS), 8),
]


@pytest.mark.slow
@pytest.mark.parametrize("micro", COMPARED, ids=lambda micro: micro.name)
def test_a_cut_network_equals_the_masked_program_in_double_precision(micro: Micro) -> None:
    graph = traced(micro)
    bench = prepare(micro.build(), micro.example(), dtype=torch.float64)
    assert bench.difference_when(graph, graph.kept_units(half(graph, seed=1))) is None


class ComplexFilter(nn.Module):
    """A filter in the frequency domain with complex parameters, between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 5, 1)
        self.filter = nn.Parameter(torch.randn(4, 6, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.fft.irfft2(torch.fft.rfft2(self.stem(x)) * self.filter, s=(6, 6))
        return self.head(torch.relu(self.body(x)))


@pytest.mark.parametrize(("dtype", "of_complex"), [(torch.float32, torch.complex64), (torch.float64, torch.complex128)])
def test_complex_parameters_keep_their_imaginary_parts(dtype: torch.dtype, of_complex: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = ComplexFilter().eval(), torch.randn(2, 3, 6, 6)
    twin = evaluation_copy(model, dtype)
    assert twin.stem.weight.dtype == dtype
    assert twin.filter.dtype == of_complex
    assert torch.equal(twin.filter.to(torch.complex64), model.filter)
    graph = aacp.trace(model, x)
    assert [group.name for group in graph.free] == ["body"]
    smaller = aacp.shrink(model, graph, {"body": [0, 3, 4]})
    torch.testing.assert_close(smaller(x), zero_masked(model, graph, graph.kept_units({"body": [0, 3, 4]}))(x))


def test_traces_in_several_threads_do_not_disturb_each_other() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def free_groups(_: int) -> list[str]:
        return [group.name for group in aacp.trace(network, torch.zeros(1, 3, 8, 8)).free]

    def shared_state() -> list[object]:
        return [list(warnings.filters), dict(copyreg.dispatch_table), torch.get_rng_state().tolist()]

    before = shared_state()
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(free_groups, range(8)))
    assert found == [["0"]] * 8
    assert shared_state() == before
