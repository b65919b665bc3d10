"""Cost models compared with published numbers, and with sums written out layer by layer."""

import numpy as np
import pytest

from aacp.bench.networks import resnet, vgg16


@pytest.mark.parametrize(
    ("network", "macs", "params"),
    [
        # Published for CIFAR-10: 313 M and 14.7 M, 125.5 M and 0.85 M, 252.9 M and 1.73 M.
        (vgg16(), 313.2e6, 14.72e6),
        (resnet(56), 125.49e6, 0.853e6),
        (resnet(110), 252.89e6, 1.728e6),
    ],
)
def test_unpruned_networks_cost_what_is_published(network, macs: float, params: float) -> None:
    assert network.macs().full == pytest.approx(macs, rel=1e-3)
    assert network.params().full == pytest.approx(params, rel=1e-3)


def test_groups_are_counted_by_blocks_and_stages() -> None:
    assert [len(network.widths) for network in (vgg16(), resnet(20), resnet(56), resnet(110))] == [13, 12, 30, 57]


def test_macs_of_a_pruned_resnet_are_the_sum_over_its_layers() -> None:
    network = resnet(20)
    counts = np.random.default_rng(0).integers(1, 17, size=12)
    inner, (first, second, third) = counts[:9].tolist(), counts[9:].tolist()
    total = 9 * 32**2 * 3 * first
    before = first
    for block, width in enumerate(inner):
        size, stage = (32, 16, 8)[block // 3], (first, second, third)[block // 3]
        total += 9 * size**2 * (before * width + width * stage)
        before = stage
    assert network.macs()(counts) == total + 10 * third


def test_a_stage_is_used_by_every_block_along_it() -> None:
    # Stem, and in each of three blocks one layer that reads it and one that writes it; then the next stage reads it.
    assert resnet(20).uses.tolist() == [2] * 9 + [1 + 3 + 3 + 1, 3 + 2 + 1, 3 + 2]
