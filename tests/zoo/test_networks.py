"""The CIFAR networks against published numbers, torch's own counter and another ResNet's arithmetic."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aacp
from aacp.zoo.models import build_model, example_input
from aacp.zoo.networks import NETWORKS, ResNet, resnet
from graph.oracles import counted_macs

SMALLEST = ("vgg16", "resnet20", "resnet20-projection", "digits_resnet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "macs", "params"),
    [
        # Published for CIFAR-10: 313 M and 14.7 M, 40.5 M and 0.27 M, 125.5 M and 0.85 M, 252.9 M and 1.73 M.
        ("vgg16", 313.2e6, 14.72e6),
        ("resnet20", 40.55e6, 0.2697e6),
        ("resnet56", 125.49e6, 0.853e6),
        ("resnet110", 252.89e6, 1.728e6),
        # Not published in this form: counted in torchvision's network (see the test below).
        ("mobilenet_v2", 87.98e6, 2.237e6),
    ],
)
def test_networks_cost_what_is_published(name: str, macs: float, params: float) -> None:
    network = build_model(name)
    assert counted_macs(network, (example_input(network),)) == pytest.approx(macs, rel=1e-3)
    assert sum(parameter.numel() for parameter in network.parameters()) == pytest.approx(params, rel=1e-3)


# `make test` runs one network of each construction; the others have more layers.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in SMALLEST else pytest.param(name, marks=pytest.mark.extensive) for name in NETWORKS],
)
def test_every_network_traces_with_all_convolution_channels_free(name: str) -> None:
    network = build_model(name).eval()
    graph = aacp.trace(network, example_input(network))
    assert [group.name for group in graph.groups if group.frozen] == ["linear"]
    layers = [layer for layer, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    freed = {name for group in graph.free for name in graph.producer_names(group)}
    assert set(layers) <= freed
    halved = aacp.shrink(network, graph, [max(1, width // 2) for width in graph.full])
    assert halved(example_input(halved)).shape == (1, 10)
    assert 2 * counted_macs(halved, (example_input(halved),)) < counted_macs(network, (example_input(network),))


@pytest.mark.slow
def test_mobilenet_v2_is_the_one_of_torchvision_with_two_strides_less() -> None:
    torchvision = pytest.importorskip("torchvision")
    theirs = torchvision.models.mobilenet_v2(num_classes=10).eval()
    theirs.features[0][0].stride = (1, 1)
    theirs.features[2].conv[1][0].stride = (1, 1)
    ours = build_model("mobilenet_v2").eval()
    ours.load_state_dict(dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours(x), theirs(x))


def test_a_padded_shortcut_puts_a_quarter_of_the_channels_on_each_side() -> None:
    # As the authors of the public checkpoints wrote it, with their numbers.
    shortcut = resnet(20).layer2[0].shortcut
    x = torch.randn(2, 16, 8, 8)
    assert torch.equal(shortcut(x), F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 32 // 4, 32 // 4)))


def test_a_projected_shortcut_has_weights_where_size_or_width_changes() -> None:
    names = [name for name, _ in build_model("resnet20-projection").named_parameters() if "shortcut.0" in name]
    assert names == ["layer2.0.shortcut.0.weight", "layer3.0.shortcut.0.weight"]


def test_stages_halve_the_image_even_between_equal_widths() -> None:
    network = ResNet(1, widths=(8, 8, 8))
    sizes: list[int] = []
    network.layer3.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape[-1]))
    network(torch.randn(1, 3, 32, 32))
    assert sizes == [8]


def test_a_depth_between_blocks_is_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match="cannot have 21 layers"):
        resnet(21)
