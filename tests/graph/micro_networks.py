"""Micro networks: small modules that each isolate one construct a channel pruner must get right.

`MICRO` is the table. The docstring of a builder says where the difficulty lies; its row says what a tracer must do:

* `free`: layers of which at least some output channels must be free to prune;
* `frozen`: layers of which no output channel may be pruned, because no smaller module of the same class computes what
  the masked one does (outputs of the network, sizes written into the code, operators that mix neighbouring channels).

Layers in neither list may be cut or frozen as the tracer likes, as long as what it cuts stays exact. The widths inside
a network differ wherever they can, so that a size matched to the wrong channels by its value shows up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

Example = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Micro:
    """A network, arguments for it, and which of its layers must, or must not, be free to prune."""

    name: str
    build: Callable[[], nn.Module]
    example: Example
    free: tuple[str, ...]
    frozen: tuple[str, ...] = ()


# -- building blocks --------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A module from its parts (modules, parameters, buffers, plain values) and its forward function."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, *inputs)


class LambdaLayer(nn.Module):
    """A function as a layer; the sizes it needs hide in its closure."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def chain(**parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(parts))


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, **options)


def unit(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution "0", batch norm "1" and a smooth activation "2" (a dead ReLU would hide mistakes)."""
    layers = (conv(inputs, outputs, kernel, stride, groups, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())
    return nn.Sequential(*layers)


def around(first: int, body: nn.Module, last: int, classes: int = 5) -> nn.Sequential:
    """A body from `first` to `last` channels between a stem ("stem.0") and a 1x1 head."""
    return chain(stem=unit(3, first), body=body, head=conv(last, classes, 1))


def classifier(features: int, classes: int = 5) -> nn.Sequential:
    return chain(pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(features, classes))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(0.5 * torch.randn(shape))


def image(*shapes: tuple[int, ...]) -> Example:
    """Random tensors, the same each time; one 2 x 3 x 8 x 8 image if no shape is given."""

    def example() -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        return tuple(torch.randn(shape, generator=generator) for shape in shapes or ((2, 3, 8, 8),))

    return example


def _stir(model: nn.Module) -> None:
    """Give statistics, biases, norms and scales values of their own, so that no channel can pass for another."""
    with torch.no_grad():
        for parameter_ in model.parameters():
            if parameter_.dim() == 1 or not parameter_.any():
                parameter_.add_(0.3 * torch.randn_like(parameter_))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.3)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)


_TABLE: list[Micro] = []


def micro(free: str, frozen: str = "head", example: Example | None = None) -> Callable[..., Callable[[], nn.Module]]:
    """Enter a builder into the table; layers are named in one string, with blanks between them."""

    def enter(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        def build() -> nn.Module:
            torch.manual_seed(0)
            model = make()
            _stir(model)
            return model.eval()

        _TABLE.append(Micro(make.__name__, build, example or image(), tuple(free.split()), tuple(frozen.split())))
        return build

    return enter


# -- plain chains and the way to the classifier -----------------------------------------------------------------------


@micro("0 3 6", "11")
def plain_vgg() -> nn.Module:
    """Convolutions, pooling and a classifier in one nn.Sequential, without normalisation."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 8), (8, 12), (12, 20)):
        layers += [conv(inputs, outputs), nn.SiLU(), nn.MaxPool2d(2) if outputs < 20 else nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.5), nn.Linear(20, 5))


@micro("conv fc1", "fc2")
def flatten_to_linear() -> nn.Module:
    """Each channel becomes 16 columns of the linear layer."""
    layers = {"conv": conv(3, 12, stride=2), "act": nn.SiLU(), "flat": nn.Flatten()}
    return chain(**layers, fc1=nn.Linear(12 * 16, 18), norm=nn.BatchNorm1d(18), act2=nn.SiLU(), fc2=nn.Linear(18, 5))


@micro("conv", "fc")
def pool_to_2x2_then_flatten() -> nn.Module:
    """Adaptive pooling leaves 2 x 2, so each channel becomes 4 columns."""
    return chain(conv=conv(3, 14), act=nn.SiLU(), pool=nn.AdaptiveAvgPool2d(2), flat=nn.Flatten(), fc=nn.Linear(56, 5))


@micro("conv1", "conv2 fc", image((2, 3, 4, 4)))
def flatten_by_literal_view() -> nn.Module:
    """The size is written into the code: with half the channels it would fold the batch without an error."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.fc(m.conv2(m.conv1(x)).view(-1, 16 * 4 * 4))

    return Block(run, conv1=conv(3, 10), conv2=conv(10, 16), fc=nn.Linear(256, 5))


@micro("conv1 conv2", "fc", image((2, 3, 4, 4)))
def flatten_by_attribute() -> nn.Module:
    """The size is an attribute, which a pruner can repair."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.fc(F.silu(m.conv2(m.conv1(x))).view(-1, m.num_features))

    return Block(run, conv1=conv(3, 10), conv2=conv(10, 14), fc=nn.Linear(224, 5), num_features=224)


@micro("conv fc1", "fc2")
def flatten_by_batch_size() -> nn.Module:
    """x.view(x.size(0), -1) adapts by itself; only linear layers follow."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.silu(m.conv(x)), 4)
        return m.fc2(F.silu(m.fc1(x.view(x.size(0), -1))))

    return Block(run, conv=conv(3, 9), fc1=nn.Linear(36, 22), fc2=nn.Linear(22, 7))


@micro("fc conv.0", "head", image((2, 7)))
def linear_to_feature_map() -> nn.Module:
    """A generator: 16 outputs of the linear layer make one channel of the map."""

    def run(m: Any, z: Tensor) -> Tensor:
        return m.head(m.conv(m.fc(z).view(-1, m.channels, 4, 4)))

    return Block(run, fc=nn.Linear(7, 10 * 16), conv=unit(10, 13), head=conv(13, 5), channels=10)


@micro("conv fc", "head")
def linear_channels_last() -> nn.Module:
    """Linear layers on permuted maps act as 1x1 convolutions."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.head(F.gelu(m.fc(F.silu(m.conv(x)).permute(0, 2, 3, 1))))

    return Block(run, conv=conv(3, 10), fc=nn.Linear(10, 26), head=nn.Linear(26, 5))


# -- kinds of convolution ---------------------------------------------------------------------------------------------


@micro("a b", "head", image((2, 3, 16)))
def conv1d() -> nn.Module:
    parts = {"a": nn.Conv1d(3, 10, 5, padding=2), "norm": nn.BatchNorm1d(10), "act": nn.SiLU()}
    return chain(**parts, b=nn.Conv1d(10, 14, 3, groups=2), head=nn.Conv1d(14, 5, 1))


@micro("a b", "head", image((2, 3, 4, 8, 8)))
def conv3d() -> nn.Module:
    parts = {"a": nn.Conv3d(3, 8, 3, padding=1), "norm": nn.BatchNorm3d(8), "act": nn.SiLU()}
    return chain(**parts, b=nn.Conv3d(8, 12, (1, 3, 3)), pool=nn.AvgPool3d(2), head=nn.Conv3d(12, 5, 1))


@micro("stem.0 body")
def conv_transpose() -> nn.Module:
    """Outputs lie in the second dimension of the weight."""
    return around(10, nn.ConvTranspose2d(10, 14, 4, 2, 1), 14)


@micro("stem.0 body.up")
def grouped_conv_transpose() -> nn.Module:
    """The weight is [inputs, outputs / groups, k, k]: both lanes are cut inside each group."""
    up = nn.ConvTranspose2d(12, 20, 3, 2, 1, 1, groups=4)
    return around(12, chain(up=up, norm=nn.BatchNorm2d(20)), 20)


@micro("stem.0 body.up")
def depthwise_conv_transpose() -> nn.Module:
    up = nn.ConvTranspose2d(11, 11, 4, 2, 1, groups=11, bias=False)
    return around(11, chain(up=up), 11)


@micro("stem.0 body")
def grouped_conv() -> nn.Module:
    return around(12, conv(12, 20, groups=4), 20)


@micro("stem.0 body.a.0 body.b.0")
def two_groupings_in_a_row() -> nn.Module:
    """Three groups and then four: the ties of both sides meet in the middle."""
    return around(12, chain(a=unit(12, 24, groups=3), b=unit(24, 16, groups=4)), 16)


@micro("stem.0 body.dw body.pw.0")
def depthwise_separable() -> nn.Module:
    return around(10, chain(dw=conv(10, 10, groups=10), pw=unit(10, 18, 1)), 18)


@micro("stem.0 body.0")
def depthwise_multiplier() -> nn.Module:
    """Each input channel makes three output channels that go together."""
    return around(8, unit(8, 24, groups=8), 24)


@micro("stem.0 body.a body.b.0")
def dilated_conv() -> nn.Module:
    return around(9, chain(a=nn.Conv2d(9, 13, 3, padding=2, dilation=2), b=unit(13, 10, 5)), 10)


@micro("stem.0 body.same body.circular body.reflect")
def padding_modes() -> nn.Module:
    """Padding of space by name or by another mode is an operator of its own in the graph."""
    same, circular = nn.Conv2d(8, 12, (3, 5), padding="same"), conv(12, 10, padding_mode="circular")
    return around(8, chain(same=same, circular=circular, reflect=conv(10, 14, padding_mode="reflect")), 14)


@micro("stem.0 body.attend.0")
def one_output_channel() -> nn.Module:
    """A convolution with one output is an attention map and no depthwise convolution; its output is broadcast."""
    attend = nn.Sequential(conv(10, 6), nn.SiLU(), conv(6, 1))
    return around(10, Block(lambda m, x: x * m.attend(x).sigmoid(), attend=attend), 10)


@micro("body.a body.c", example=image((2, 1, 8, 8)))
def one_input_channel() -> nn.Module:
    """groups = 1 = inputs: neither of these is depthwise."""
    return chain(body=chain(a=conv(1, 12), b=conv(12, 1), c=conv(1, 9)), head=conv(9, 5, 1))


@micro("stem.0")
def functional_kernel() -> nn.Module:
    """A kernel that is a bare parameter, without a convolution module around it."""

    def run(m: Any, x: Tensor) -> Tensor:
        return F.silu(F.conv2d(x, m.kernel, m.bias, padding=1))

    return around(10, Block(run, kernel=parameter(14, 10, 3, 3), bias=parameter(14)), 14)


@micro("stem.0 body.0 body.2")
def frozen_parameters() -> nn.Module:
    """requires_grad_(False) changes nothing about which channels can go."""
    return around(8, nn.Sequential(conv(8, 12), nn.SiLU(), conv(12, 10)), 10).requires_grad_(False)


# -- residual streams -------------------------------------------------------------------------------------------------


def basic_block(inputs: int, middle: int, outputs: int, stride: int = 1, shortcut: nn.Module | None = None) -> Block:
    def run(m: Any, x: Tensor) -> Tensor:
        return F.silu(m.norm(m.conv2(m.conv1(x))) + m.shortcut(x))

    shortcut = shortcut or (nn.Identity() if inputs == outputs else conv(inputs, outputs, 1, stride))
    parts = {"conv1": unit(inputs, middle, 3, stride), "conv2": conv(middle, outputs, bias=False)}
    return Block(run, **parts, norm=nn.BatchNorm2d(outputs), shortcut=shortcut)


@micro("stem.0 body.0.conv1.0 body.0.conv2 body.1.conv1.0 body.1.conv2 body.1.shortcut", "head.fc")
def resnet_basic() -> nn.Module:
    """An identity shortcut, then a projection to another width."""
    body = nn.Sequential(basic_block(10, 14, 10), basic_block(10, 18, 22, 2))
    return chain(stem=unit(3, 10), body=body, head=classifier(22))


@micro("stem.0 body.0.conv1.0 body.0.conv2 body.1.conv1.0", "head.fc")
def padded_shortcut() -> nn.Module:
    """Option A of CIFAR ResNets: zeros before and after the channels, as many as a closure says."""
    planes = 24
    pad = LambdaLayer(lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, planes // 4, planes // 4)))
    body = nn.Sequential(basic_block(12, 9, 12), basic_block(12, 14, 24, 2, pad))
    return chain(stem=unit(3, 12), body=body, head=classifier(24))


@micro("stem.0 body.conv1.0", "head.fc")
def padded_shortcut_by_zeros() -> nn.Module:
    """New channels come as torch.zeros and are concatenated; their number is an attribute."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = F.avg_pool2d(x, 2)
        zeros = torch.zeros(x.size(0), m.extra, x.size(2), x.size(3), dtype=x.dtype, device=x.device)
        return torch.cat((x, zeros), 1)

    body = basic_block(12, 16, 19, 2, Block(run, extra=7))
    return chain(stem=unit(3, 12), body=body, head=classifier(19))


@micro("stem.0 body.conv1.0 body.conv2", "head.fc")
def padded_shortcut_by_zero_product() -> nn.Module:
    """The new channels are the old ones times nought, as in older PyTorch ResNets: no size is needed anywhere."""
    double = LambdaLayer(lambda x: torch.cat((x[:, :, ::2, ::2], x[:, :, ::2, ::2].mul(0)), 1))
    return chain(stem=unit(3, 9), body=basic_block(9, 14, 18, 2, double), head=classifier(18))


@micro("stem.0 body.0.a body.0.b body.1.a body.1.b")
def preactivation_residual() -> nn.Module:
    """Batch norm before the convolution: the stream itself is never normalised."""

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.b(F.silu(m.norm2(m.a(F.silu(m.norm1(x))))))

    def block(middle: int) -> Block:
        norms = {"norm1": nn.BatchNorm2d(10), "norm2": nn.BatchNorm2d(middle)}
        return Block(run, **norms, a=conv(10, middle), b=conv(middle, 10))

    return around(10, nn.Sequential(block(13), block(16)), 10)


@micro("stem.0 body.expand.0 body.depthwise.0 body.project")
def inverted_residual() -> nn.Module:
    """MobileNetV2: the wide depthwise middle goes with its expansion, the stream with the projection."""
    parts = {"expand": unit(8, 30, 1), "depthwise": unit(30, 30, groups=30), "project": conv(30, 8, 1)}

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.norm(m.project(m.depthwise(m.expand(x))))

    return around(8, Block(run, **parts, norm=nn.BatchNorm2d(8)), 8)


@micro("stem.0 body.reduce.0 body.grouped.0 body.expand")
def resnext_bottleneck() -> nn.Module:
    parts = {"reduce": unit(14, 20, 1), "grouped": unit(20, 20, groups=5), "expand": conv(20, 14, 1)}
    return around(14, Block(lambda m, x: x + m.expand(m.grouped(m.reduce(x))), **parts), 14)


@micro("stem.0 body.wide body.point")
def repvgg_branches() -> nn.Module:
    """Three parallel branches, one of them a batch norm alone."""
    parts = {"wide": conv(11, 11), "point": conv(11, 11, 1), "norm": nn.BatchNorm2d(11)}
    return around(11, Block(lambda m, x: F.silu(m.wide(x) + m.point(x) + m.norm(x)), **parts), 11)


@micro("stem.0 body.a body.b.0")
def in_place_adds() -> nn.Module:
    """`x += y`, F.relu(inplace) and add_ write into tensors that others still hold."""

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.b(m.a(x))
        y += x
        y.mul_(0.5).add_(x)
        return F.leaky_relu(y, 0.1, inplace=True)

    return around(10, Block(run, a=conv(10, 14), b=unit(14, 10)), 10)


@micro("stem.0 body.inner")
def stochastic_depth() -> nn.Module:
    """A residual branch that training drops at random; in eval mode it is always there."""

    def drop(m: Any, x: Tensor) -> Tensor:
        if not m.training:
            return x
        return x * x.new_empty(x.size(0), 1, 1, 1).bernoulli_(1 - m.rate) / (1 - m.rate)

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.drop(m.outer(F.silu(m.inner(x))))

    return around(9, Block(run, inner=conv(9, 14), outer=conv(14, 9), drop=Block(drop, rate=0.2)), 9)


@micro("stem.0 body.squeeze body.wide")
def broadcast_residual() -> nn.Module:
    """Shapes [C, 1, 1] and [1, H, W] are added to [C, H, W]: the first ties channels, the second must not."""
    parts = {"squeeze": conv(10, 10, 1), "wide": conv(10, 13), "plane": conv(13, 1)}

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.squeeze(x.mean((2, 3), keepdim=True)) + m.plane(F.silu(m.wide(x)))

    return around(10, Block(run, **parts), 10)


# -- concatenation and splitting --------------------------------------------------------------------------------------


@micro("stem.0 body.a.0 body.b.0 body.c.0 body.d.0")
def inception_concat() -> nn.Module:
    parts = {"a": unit(10, 6, 1), "b": unit(10, 9), "c": unit(10, 7, 5), "d": unit(10, 4, 1)}

    def run(m: Any, x: Tensor) -> Tensor:
        return torch.cat((m.a(x), m.b(x), m.c(x), m.d(F.max_pool2d(x, 3, 1, 1))), 1)

    return around(10, Block(run, **parts), 26)


@micro("stem.0 body.a.0 body.b.0 body.c body.d.0")
def residual_over_concat() -> nn.Module:
    """The sum ties the concatenated sources to other convolutions piece by piece, across different cuts."""
    parts = {"a": unit(10, 6), "b": unit(10, 13), "c": conv(10, 19, 1), "d": unit(10, 9)}

    def run(m: Any, x: Tensor) -> Tensor:
        return torch.cat((m.a(x), m.b(x)), 1) + m.c(x) + torch.cat((m.d(x), x), 1)

    return around(10, Block(run, **parts), 19)


@micro("stem.0 body.first.conv.0 body.second.conv.0 body.transition.0")
def dense_block() -> nn.Module:
    def layer(inputs: int, growth: int) -> Block:
        def run(m: Any, x: Tensor) -> Tensor:
            return torch.cat((x, m.conv(F.silu(m.norm(x)))), 1)

        return Block(run, norm=nn.BatchNorm2d(inputs), conv=unit(inputs, growth))

    return around(10, chain(first=layer(10, 6), second=layer(16, 7), transition=unit(23, 12, 1)), 12)


@micro("stem.0 body.a")
def grouped_conv_after_uneven_concat() -> nn.Module:
    """Groups of 6 channels over sources of 10 and 8: the border of the sources lies inside a group."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.grouped(torch.cat((x, m.a(x)), 1))

    return around(10, Block(run, a=conv(10, 8), grouped=conv(18, 15, groups=3)), 15)


@micro("stem.0 body.a")
def depthwise_after_concat() -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.norm(m.depthwise(torch.cat((m.a(x), x), 1)))

    parts = {"a": conv(9, 13), "depthwise": conv(22, 22, groups=22), "norm": nn.BatchNorm2d(22)}
    return around(9, Block(run, **parts), 22)


@micro("body.a.0")
def image_and_coordinates_in_concat() -> nn.Module:
    """The network's input and a buffer of coordinates stay whole beside channels that can go."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.mix(torch.cat((x, m.a(x), m.grid.expand(x.size(0), -1, -1, -1)), 1))

    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij"))[None]
    return chain(body=Block(run, a=unit(3, 10), mix=unit(15, 12), grid=grid), head=conv(12, 5, 1))


@micro("stem.0 body.open.0 body.blocks.0.0 body.blocks.1.0 body.close.0")
def c2f() -> nn.Module:
    """YOLOv8: a chunk in two, each block appended to a list, all of it concatenated."""

    def run(m: Any, x: Tensor) -> Tensor:
        pieces = list(m.open(x).chunk(2, 1))
        pieces.extend(block(pieces[-1]) for block in m.blocks)
        return m.close(torch.cat(pieces, 1))

    blocks = nn.ModuleList(unit(9, 9) for _ in range(2))
    return around(10, Block(run, open=unit(10, 18, 1), blocks=blocks, close=unit(36, 14, 1)), 14)


@micro("stem.0 body.open.0 body.close.0")
def c2f_residual_with_hard_coded_split() -> nn.Module:
    """The same with `.split((self.c, self.c), 1)` and residual blocks."""

    def run(m: Any, x: Tensor) -> Tensor:
        pieces = list(m.open(x).split((m.c, m.c), 1))
        pieces.append(m.block(pieces[-1]))
        return m.close(torch.cat(pieces, 1))

    return around(10, Block(run, open=unit(10, 18, 1), block=basic_block(9, 12, 9), close=unit(27, 14, 1), c=9), 14)


@micro("stem.0 body.left.0 body.right.0 body.block.conv1.0 body.close.0")
def cross_stage_partial() -> nn.Module:
    """Two 1x1 convolutions of one input, a residual block on one of them."""
    parts = {"left": unit(12, 7, 1), "right": unit(12, 9, 1), "block": basic_block(7, 10, 7), "close": unit(16, 14, 1)}
    return around(12, Block(lambda m, x: m.close(torch.cat((m.block(m.left(x)), m.right(x)), 1)), **parts), 14)


@micro("stem.0 body.open.0 body.blocks.0.0 body.blocks.1.0 body.close.0")
def elan() -> nn.Module:
    """A chain of blocks whose every stage goes into the concatenation."""

    def run(m: Any, x: Tensor) -> Tensor:
        pieces = [m.open(x), m.side(x)]
        for block in m.blocks:
            pieces.append(block(pieces[-1]))
        return m.close(torch.cat(pieces[::-1], dim=1))

    blocks = nn.ModuleList((unit(8, 6), unit(6, 9)))
    return around(10, Block(run, open=unit(10, 7, 1), side=unit(10, 8, 1), blocks=blocks, close=unit(30, 14, 1)), 14)


@micro("stem.0 body.open.0 body.close.0")
def spatial_pyramid_pooling() -> nn.Module:
    """SPPF: the same channels four times in one concatenation."""

    def run(m: Any, x: Tensor) -> Tensor:
        pieces = [m.open(x)]
        for _ in range(3):
            pieces.append(m.pool(pieces[-1]))
        return m.close(torch.cat(pieces, 1))

    return around(12, Block(run, open=unit(12, 7, 1), pool=nn.MaxPool2d(3, 1, 1), close=unit(28, 14, 1)), 14)


@micro("stem.0 body.a.0 body.b.0 body.pooled.0 body.close.0")
def atrous_pyramid() -> nn.Module:
    """ASPP: dilated branches and a pooled one that is interpolated back to the size of the map."""

    def run(m: Any, x: Tensor) -> Tensor:
        pooled = F.interpolate(m.pooled(F.adaptive_avg_pool2d(x, 1)), x.shape[-2:], mode="bilinear")
        return m.close(torch.cat((m.a(x), m.b(x), pooled), 1))

    b = nn.Sequential(nn.Conv2d(10, 9, 3, padding=4, dilation=4), nn.SiLU())
    return around(10, Block(run, a=unit(10, 7, 1), b=b, pooled=unit(10, 6, 1), close=unit(22, 12, 1)), 12)


@micro("stem.0 body.conv.0")
def focus() -> nn.Module:
    """YOLOv5's focus: four strided slices of space, concatenated over channels."""

    def run(m: Any, x: Tensor) -> Tensor:
        corners = (x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2])
        return m.conv(torch.cat(corners, 1))

    return around(7, Block(run, conv=unit(28, 12)), 12)


@micro("stem.0 body.a body.b.0")
def chunk_gate() -> nn.Module:
    """GLU written with chunk: the halves go together, channel by channel."""

    def run(m: Any, x: Tensor) -> Tensor:
        value, gate = m.a(x).chunk(2, dim=1)
        return m.b(value * gate.sigmoid())

    return around(10, Block(run, a=conv(10, 26), b=unit(13, 8)), 8)


@micro("stem.0 body.0 body.2.0")
def glu_module() -> nn.Module:
    """nn.GLU over channels halves them inside one operator."""
    return around(10, nn.Sequential(conv(10, 22), nn.GLU(1), unit(11, 9)), 9)


@micro("stem.0 body.a.0 body.b.0 body.c.0")
def uneven_split() -> nn.Module:
    """Split into uneven parts by a list attribute; each part goes its own way."""

    def run(m: Any, x: Tensor) -> Tensor:
        small, middle, large = torch.split(m.a(x), m.split_sizes, dim=1)
        return torch.cat((m.b(small), middle, m.c(large)), 1)

    parts = {"a": unit(10, 22), "b": unit(4, 9), "c": unit(11, 5)}
    return around(10, Block(run, **parts, split_sizes=[4, 7, 11]), 21)


@micro("stem.0 body.open.0 body.close.0")
def res2net() -> nn.Module:
    """torch.split by `self.width`, each piece added to the result of the one before."""

    def run(m: Any, x: Tensor) -> Tensor:
        pieces = torch.split(m.open(x), m.width, 1)
        results = [m.convs[0](pieces[0])]
        for piece, step in zip(pieces[1:-1], m.convs[1:], strict=True):
            results.append(step(results[-1] + piece))
        return m.close(torch.cat((*results, pieces[-1]), 1))

    convs = nn.ModuleList(unit(7, 7) for _ in range(3))
    return around(10, Block(run, open=unit(10, 28, 1), convs=convs, close=unit(28, 12, 1), width=7), 12)


@micro("stem.0 body.close.0")
def split_with_remainder() -> nn.Module:
    """split by `self.width` leaves a smaller last piece: 8, 8 and 5 of 21."""

    def run(m: Any, x: Tensor) -> Tensor:
        first, second, rest = m.open(x).split(m.width, 1)
        return m.close(torch.cat((m.a(first), second * first, rest), 1))

    return around(10, Block(run, open=unit(10, 21, 1), a=unit(8, 6), close=unit(19, 12, 1), width=8), 12)


@micro("stem.0 body.open.0")
def mixed_depthwise() -> nn.Module:
    """MixNet: depthwise convolutions of different kernels on the parts in `self.splits`."""

    def run(m: Any, x: Tensor) -> Tensor:
        pieces = torch.split(m.open(x), m.splits, 1)
        return torch.cat([mix(piece) for mix, piece in zip(m.mixes, pieces, strict=True)], 1)

    splits = [11, 6, 5]
    mixes = nn.ModuleList(
        conv(width, width, kernel, groups=width) for width, kernel in zip(splits, (3, 5, 7), strict=True)
    )
    return around(10, Block(run, open=unit(10, 22, 1), mixes=mixes, splits=splits), 22)


@micro("stem.0 body.project body.middle.0 body.out")
def dual_path() -> nn.Module:
    """DPN: the first channels are a residual stream, the others are concatenated, at an attribute's border."""

    def run(m: Any, x: Tensor) -> Tensor:
        shortcut, y = m.project(x), m.out(m.middle(x))
        stream = shortcut[:, : m.residual, :, :] + y[:, : m.residual, :, :]
        return torch.cat((stream, shortcut[:, m.residual :], y[:, m.residual :]), dim=1)

    parts = {"project": conv(10, 22, 1), "middle": unit(10, 13), "out": conv(13, 19, 1)}
    return around(10, Block(run, **parts, residual=14), 27)


def ghost(outputs: int) -> Block:
    def run(m: Any, x: Tensor) -> Tensor:
        x = m.primary(x)
        return torch.cat((x, m.cheap(x)), 1)[:, : m.out_channels, :, :]

    return Block(run, primary=unit(12, 10, 1), cheap=unit(10, 10, groups=10), out_channels=outputs)


@micro("stem.0 body.primary.0 body.cheap.0")
def ghost_module() -> nn.Module:
    """The slice to `self.out_channels` takes everything."""
    return around(12, ghost(20), 20)


@micro("stem.0")
def ghost_module_of_odd_width() -> nn.Module:
    """The slice drops channels, so that some of the primary ones occur once and others twice."""
    return around(12, ghost(17), 17)


@micro("stem.0 body.conv1.0 body.close.0")
def partial_convolution() -> nn.Module:
    """FasterNet: a convolution on the first quarter by attributes, the rest passes by; a residual around it."""

    def run(m: Any, x: Tensor) -> Tensor:
        first, rest = torch.split(x, [m.touched, m.untouched], dim=1)
        return x + m.close(m.conv1(torch.cat((m.partial(first), rest), 1)))

    parts = {"partial": conv(4, 4), "conv1": unit(16, 26, 1), "close": unit(26, 16, 1)}
    return around(16, Block(run, **parts, touched=4, untouched=12), 16)


@micro("stem.0 body.b.0")
def literal_slices() -> nn.Module:
    """x[:, :8] stands in the code: at least the first eight channels of `a` must stay."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.a(x)
        return torch.cat((m.b(x[:, :8]), x[:, 8:]), 1)

    return around(10, Block(run, a=unit(10, 20), b=unit(8, 13)), 25)


@micro("body.b.0 body.c.0")
def every_second_channel() -> nn.Module:
    """x[:, ::2] and x[:, 1::2]: after a cut, even and odd places change hands unless pairs go together."""

    def run(m: Any, x: Tensor) -> Tensor:
        return torch.cat((m.b(x[:, ::2]), m.c(x[:, 1::2])), 1)

    return around(18, Block(run, b=unit(9, 6), c=unit(9, 8)), 14)


@micro("stem.0")
def negative_slice() -> nn.Module:
    """x[:, :-3] and x[:, -3:] count from the end."""

    def run(m: Any, x: Tensor) -> Tensor:
        return torch.cat((x[:, :-3] * 2, x[:, -3:].sigmoid()), 1)

    return around(14, nn.Sequential(conv(14, 11), Block(run)), 11)


@micro("stem.0 body.a.0", "body.planes head")
def indexing_by_unbind_and_select() -> nn.Module:
    """x[:, 2] and unbind take single channels, which must stay."""

    def run(m: Any, x: Tensor) -> Tensor:
        plane, *others = m.planes(m.a(x)).unbind(1)
        return x * plane[:, None].sigmoid() + others[1].unsqueeze(1) - others[0][:, None]

    return around(10, Block(run, a=unit(10, 12), planes=conv(12, 3)), 10)


# -- reordering -------------------------------------------------------------------------------------------------------


def shuffle(x: Tensor, groups: int) -> Tensor:
    b, c, h, w = x.shape
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).contiguous().view(b, c, h, w)


@micro("stem.0 body.a.0 body.depthwise body.b")
def shufflenet_v1() -> nn.Module:
    """Grouped convolutions with a shuffle by view between them, and a residual around."""
    parts = {"a": unit(12, 27, 1, groups=3), "depthwise": conv(27, 27, groups=27), "b": conv(27, 12, 1, groups=3)}
    return around(12, Block(lambda m, x: x + m.b(m.depthwise(shuffle(m.a(x), m.groups))), **parts, groups=3), 12)


@micro("stem.0 body.0.a.0 body.0.b.0 body.1.a.0")
def shufflenet_v2() -> nn.Module:
    """Half of the channels pass by, then the halves are interleaved; twice, so that ties run through the shuffle."""

    def run(m: Any, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        return shuffle(torch.cat((left, m.b(m.depthwise(m.a(right)))), 1), 2)

    def block(middle: int) -> Block:
        parts = {"a": unit(10, middle, 1), "depthwise": conv(middle, middle, groups=middle), "b": unit(middle, 10, 1)}
        return Block(run, **parts)

    return around(20, nn.Sequential(block(13), block(16)), 20)


@micro("stem.0 body.0.0 body.2")
def channel_shuffle_module() -> nn.Module:
    return around(12, nn.Sequential(unit(12, 20, groups=4), nn.ChannelShuffle(4), conv(20, 15)), 15)


@micro("stem.0 body.0 body.2.0")
def pixel_shuffle() -> nn.Module:
    """Four channels in a row make one."""
    return around(10, nn.Sequential(conv(10, 28), nn.PixelShuffle(2), unit(7, 12)), 12)


@micro("stem.0 body.1.0")
def pixel_unshuffle() -> nn.Module:
    """One channel makes four in a row."""
    return around(7, nn.Sequential(nn.PixelUnshuffle(2), unit(28, 12)), 12)


@micro("stem.0 body.a body.b.0")
def pixel_shuffle_by_view() -> nn.Module:
    """Depth to space and back with view and permute; the factor comes first here, so slots lie a width apart."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = (x := m.a(x)).shape
        x = x.view(b, m.factor, m.factor, c // m.factor**2, h, w).permute(0, 3, 4, 1, 5, 2)
        x = F.silu(x.reshape(b, c // m.factor**2, h * m.factor, w * m.factor))
        x = x.view(b, -1, h, m.factor, w, m.factor).permute(0, 3, 5, 1, 2, 4).reshape(b, -1, h, w)
        return m.b(x)

    return around(10, Block(run, a=conv(10, 28), b=unit(28, 12), factor=2), 12)


@micro("stem.0 body.b.0")
def patch_merging() -> nn.Module:
    """Swin: tokens of four neighbours side by side, a layer norm, a linear reduction."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = torch.cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1)
        return m.b(m.reduce(m.norm(x)).permute(0, 3, 1, 2))

    return around(7, Block(run, norm=nn.LayerNorm(28), reduce=nn.Linear(28, 13, bias=False), b=unit(13, 9)), 9)


@micro("stem.0 body.b.0")
def width_cast_by_int() -> nn.Module:
    """MONAI's SwinUNETR: the width is read off a tensor and cast by `int`, which returns a plain number."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        width = int(c)
        pixels = x.permute(0, 2, 3, 1).reshape(-1, width)
        return m.b(pixels.sigmoid().view(b, h, w, width).permute(0, 3, 1, 2))

    return around(14, Block(run, b=unit(14, 9)), 9)


@micro("stem.0 body.conv")
def window_partition() -> nn.Module:
    """Windows of space become tokens and go back: the channel dimension moves to the end and returns."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        s = m.window
        tokens = x.view(b, c, h // s, s, w // s, s).permute(0, 2, 4, 3, 5, 1).reshape(-1, s * s, c)
        tokens = m.fc(tokens - tokens.mean(1, keepdim=True))
        y = tokens.view(b, h // s, w // s, s, s, -1).permute(0, 5, 1, 3, 2, 4).reshape(b, -1, h, w)
        return m.conv(x + y)

    return around(10, Block(run, fc=nn.Linear(10, 10), conv=conv(10, 14), window=4), 14)


@micro("stem.0 body.0")
def flip_of_channels() -> nn.Module:
    """A sum with its own mirror image ties the first to the last."""
    return around(10, nn.Sequential(conv(10, 14), LambdaLayer(lambda x: x + 0.5 * x.flip(1))), 14)


@micro("body.b.0")
def roll_of_channels() -> nn.Module:
    """A roll by a fixed number of channels fits another width only by luck."""
    return around(14, Block(lambda m, x: m.b(x.roll(m.shift, 1)), b=unit(14, 9), shift=3), 9)


@micro("body.b.0")
def permutation_buffer() -> nn.Module:
    """Channels are picked by a buffer of indices, whose values, not only its length, depend on what is kept."""
    order = torch.randperm(12)
    return around(12, Block(lambda m, x: m.b(x.index_select(1, m.order)), b=unit(12, 9), order=order), 9)


@micro("stem.0 body.b.0")
def repeated_channels() -> nn.Module:
    """The same channels several times, one after another or side by side."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.b(torch.cat((x.repeat(1, 2, 1, 1), x.repeat_interleave(2, dim=1)), 1))

    return around(7, Block(run, b=unit(28, 11)), 11)


@micro("stem.0 body.a body.c.0")
def unflatten_and_flatten() -> nn.Module:
    """nn.Unflatten holds the sizes in a tuple; the groups are then averaged."""
    parts = {"a": conv(10, 24), "split": nn.Unflatten(1, (4, 6)), "mean": LambdaLayer(lambda x: x.mean(1))}
    return around(10, chain(**parts, c=unit(6, 9)), 9)


@micro("stem.0 body.a")
def maxout() -> nn.Module:
    """The larger of two neighbours: the pair goes together."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        return m.a(x).view(b, -1, m.pieces, h, w).amax(2)

    return around(10, Block(run, a=conv(10, 26), pieces=2), 13)


# -- arithmetic between branches --------------------------------------------------------------------------------------


@micro("stem.0 body.a.0 body.b.0")
def product_of_branches() -> nn.Module:
    return around(10, Block(lambda m, x: m.a(x) * m.b(x), a=unit(10, 14), b=unit(10, 14, 1)), 14)


@micro("stem.0 body.a.0 body.b.0")
def maximum_of_branches() -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        return torch.maximum(m.a(x), m.b(x)) - torch.where(m.a(x) > 0, m.b(x), 0.1 * m.a(x))

    return around(10, Block(run, a=unit(10, 14), b=unit(10, 14, 1)), 14)


@micro("stem.0 body.branches.0.0 body.branches.2.0")
def stack_then_reduce() -> nn.Module:
    """torch.stack makes a new dimension in front of the channels, and sum, mean and max take it away."""

    def run(m: Any, x: Tensor) -> Tensor:
        stacked = torch.stack([branch(x) for branch in m.branches], dim=1)
        return stacked.sum(1) + stacked.mean(dim=1) * stacked.max(dim=1).values

    branches = nn.ModuleList(unit(10, 13, kernel) for kernel in (1, 3, 5))
    return around(10, Block(run, branches=branches), 13)


@micro("stem.0 body.a.0 body.b.0")
def weighted_fusion() -> nn.Module:
    """BiFPN: learnt weights of the branches, normalised, are not channels, although there are several of them."""

    def run(m: Any, x: Tensor) -> Tensor:
        share = F.softplus(m.fusion)
        share = share / (share.sum() + 1e-4)
        return share[0] * m.a(x) + share[1] * m.b(x)

    return around(10, Block(run, a=unit(10, 12), b=unit(10, 12), fusion=parameter(2)), 12)


@micro("stem.0 body.a body.b.0")
def functions_without_zero() -> nn.Module:
    """sigmoid, exp, cos and a constant turn 0 into something else: a mask before them is not a mask after them."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.b((m.a(x).sigmoid() + 1).cos() + torch.exp(-m.a(x).abs()))

    return around(10, Block(run, a=conv(10, 14), b=unit(14, 9)), 9)


@micro("conv", "fc")
def bilinear_pooling() -> nn.Module:
    """Products of all pairs of channels, flattened: one channel is a row and a column of the square."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.reduce(F.silu(m.conv(x))).flatten(2)
        return m.fc((x @ x.transpose(1, 2) / x.size(2)).flatten(1))

    return Block(run, conv=conv(3, 12), reduce=conv(12, 7), fc=nn.Linear(49, 5))


@micro("stem.0 body.b.0")
def einsum_mixing() -> nn.Module:
    """A matrix parameter applied by einsum."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.b(torch.einsum("bchw,cd->bdhw", x, m.matrix))

    return around(10, Block(run, matrix=parameter(10, 13), b=unit(13, 9)), 9)


@micro("stem.0 body.c.0")
def einsum_between_activations() -> nn.Module:
    """One branch is summed over its channels and weighs the positions of the other: their channels never meet."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.c(torch.einsum("bchw,bdhw,bd->bchw", m.a(x), m.b(x), m.b(x).mean((2, 3))))

    return around(10, Block(run, a=unit(10, 12), b=unit(10, 7), c=unit(12, 9)), 9)


# -- gates and attention over channels --------------------------------------------------------------------------------


@micro("stem.0 body.gate.1")
def squeeze_excite_conv() -> nn.Module:
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(14, 6, 1), nn.SiLU(), conv(6, 14, 1), nn.Sigmoid())
    return around(14, Block(lambda m, x: x * m.gate(x), gate=gate), 14)


@micro("stem.0 body.gate.0")
def squeeze_excite_linear() -> nn.Module:
    """Linear layers between two views, with the width read from the shape."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, _, _ = x.size()
        return x * m.gate(m.pool(x).view(b, c)).view(b, c, 1, 1).expand_as(x)

    gate = nn.Sequential(nn.Linear(14, 6, bias=False), nn.SiLU(), nn.Linear(6, 14, bias=False), nn.Hardsigmoid())
    return around(14, Block(run, gate=gate, pool=nn.AdaptiveAvgPool2d(1)), 14)


@micro("stem.0 body.first", "body.last head")
def efficient_channel_attention() -> nn.Module:
    """ECA: a convolution along the channels mixes neighbours, so their order and number must stay."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.last(F.silu(m.first(x)))
        gate = m.along(x.mean((2, 3)).unsqueeze(1)).transpose(1, 2).unsqueeze(-1)
        return x * gate.sigmoid()

    along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
    return around(10, Block(run, first=conv(10, 13), last=conv(13, 16), along=along), 16)


@micro("stem.0 body.first", "body.last head")
def channels_as_space() -> nn.Module:
    """Triplet attention: channels change places with rows, and a convolution slides over them."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.last(F.silu(m.first(x)))
        turned = x.permute(0, 2, 1, 3)
        planes = torch.cat((turned.amax(1, keepdim=True), turned.mean(1, keepdim=True)), 1)
        return (turned * m.slide(planes).sigmoid()).permute(0, 2, 1, 3)

    return around(10, Block(run, first=conv(10, 13), last=conv(13, 16), slide=conv(2, 1)), 16)


@micro("body.fc.0")
def cbam() -> nn.Module:
    """Mean and maximum over space through one shared network, then over channels through a 7x7 convolution."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = x + m.conv(x)
        x = x * (m.fc(F.adaptive_avg_pool2d(x, 1)) + m.fc(F.adaptive_max_pool2d(x, 1))).sigmoid()
        planes = torch.cat((x.mean(1, keepdim=True), torch.max(x, 1, keepdim=True)[0]), 1)
        return m.close(x * m.spatial(planes).sigmoid())

    fc = nn.Sequential(conv(12, 5, 1), nn.SiLU(), conv(5, 12, 1))
    parts = {"conv": conv(12, 12), "fc": fc, "spatial": conv(2, 1, 7), "close": unit(12, 9)}
    return around(12, Block(run, **parts), 9)


@micro("stem.0 body.paths.0.0 body.paths.1.0 body.reduce")
def selective_kernel() -> nn.Module:
    """SKNet: paths are stacked and weighted by a softmax over paths, which is a view of one convolution's output."""

    def run(m: Any, x: Tensor) -> Tensor:
        stacked = torch.stack([path(x) for path in m.paths], dim=1)
        weight = m.select(F.silu(m.reduce(stacked.sum(1).mean((2, 3), keepdim=True))))
        weight = weight.view(x.size(0), m.num_paths, m.attn_channels, 1, 1).softmax(dim=1)
        return (stacked * weight).sum(1)

    paths = nn.ModuleList((unit(10, 14), unit(10, 14, 5, groups=2)))
    parts = {"paths": paths, "reduce": conv(14, 6, 1), "select": conv(6, 28, 1, bias=False)}
    return around(10, Block(run, **parts, num_paths=2, attn_channels=14), 14)


@micro("stem.0 body.conv.0 body.fc1")
def split_attention() -> nn.Module:
    """ResNeSt: a radix of parallel groups in one convolution, a softmax over the radix, and a sum."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.conv(x)
        b, c, h, w = x.shape
        x = x.reshape(b, m.radix, c // m.radix, h, w)
        gate = m.fc2(F.silu(m.norm(m.fc1(x.sum(dim=1).mean((2, 3), keepdim=True)))))
        gate = gate.view(b, m.cardinality, m.radix, -1).transpose(1, 2).softmax(dim=1).reshape(b, -1, 1, 1)
        return (x * gate.reshape(b, m.radix, c // m.radix, 1, 1)).sum(dim=1)

    parts = {"conv": unit(10, 28, groups=2), "fc1": conv(14, 6, 1), "norm": nn.BatchNorm2d(6), "fc2": conv(6, 28, 1)}
    return around(10, Block(run, **parts, radix=2, cardinality=1), 14)


@micro("stem.0 body.down")
def global_context() -> nn.Module:
    """GCNet: a softmax over space weighs positions by a matrix product; a layer norm sits in the bottleneck."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        weight = m.mask(x).view(b, 1, h * w).softmax(-1).transpose(1, 2)
        context = (x.view(b, c, h * w) @ weight).view(b, c, 1, 1)
        return x + m.up(F.silu(m.norm(m.down(context))))

    norm = nn.LayerNorm([6, 1, 1])
    return around(12, Block(run, mask=conv(12, 1, 1), down=conv(12, 6, 1), norm=norm, up=conv(6, 12, 1)), 12)


@micro("stem.0 body.down.0", "head", image((2, 3, 8, 10)))
def coordinate_attention() -> nn.Module:
    """Rows and columns are pooled, concatenated along space, squeezed together and split along space again."""

    def run(m: Any, x: Tensor) -> Tensor:
        _, _, h, w = x.shape
        pooled = torch.cat((x.mean(3, keepdim=True), x.mean(2, keepdim=True).transpose(2, 3)), dim=2)
        rows, columns = torch.split(m.down(pooled), [h, w], dim=2)
        return x * m.up_rows(rows).sigmoid() * m.up_columns(columns.permute(0, 1, 3, 2)).sigmoid()

    return around(12, Block(run, down=unit(12, 6, 1), up_rows=conv(6, 12, 1), up_columns=conv(6, 12, 1)), 12)


@micro("body.b.0")
def softmax_over_channels() -> nn.Module:
    """A removed channel takes its share of the sum along: not what a zero does."""
    return around(10, Block(lambda m, x: m.b(m.a(x).softmax(1)), a=conv(10, 13), b=unit(13, 9)), 9)


@micro("stem.0 body.a.0 body.b.0")
def normalise_over_channels() -> nn.Module:
    """F.normalize: zeros do not change a length, so this one can be cut."""
    return around(10, Block(lambda m, x: m.b(F.normalize(m.a(x), dim=1)), a=unit(10, 13), b=unit(13, 9)), 9)


@micro("conv.0", "")
def cosine_head() -> nn.Module:
    """Features and rows of the head's matrix, both of length one; the latter's length hangs on the kept columns."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = F.normalize(m.conv2(m.conv(x)).mean((2, 3)), dim=1)
        return m.temperature.exp() * F.linear(x, F.normalize(m.centres, dim=1))

    return Block(run, conv=unit(3, 10), conv2=unit(10, 13), centres=parameter(5, 13), temperature=parameter(1))


@micro("stem.0", "body.a head")
def local_response_norm() -> nn.Module:
    """AlexNet's normalisation over neighbouring channels, which is average pooling in three dimensions inside."""
    return around(10, chain(a=conv(10, 13), lrn=nn.LocalResponseNorm(5, alpha=0.5, k=1.0)), 13)


@micro("stem.0", "body.a head")
def sort_over_channels() -> nn.Module:
    """Which channel comes out where depends on the values."""
    return around(10, chain(a=conv(10, 13), sort=LambdaLayer(lambda x: x.sort(1).values)), 13)


@micro("stem.0 body.b.0")
def cumulative_sum_over_channels() -> nn.Module:
    return around(10, Block(lambda m, x: m.b(m.a(x).cumsum(1)), a=conv(10, 13), b=unit(13, 9)), 9)


# -- normalisation, scales and buffers --------------------------------------------------------------------------------


@micro("stem.0 body.a.0")
def layer_scale_vector() -> nn.Module:
    """A parameter of shape [C], multiplied in channels-last order."""

    def run(m: Any, x: Tensor) -> Tensor:
        return x + (m.gamma * m.b(m.a(x)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    return around(10, Block(run, a=unit(10, 17), b=conv(17, 10), gamma=parameter(10)), 10)


@micro("stem.0 body.a.0")
def layer_scale_map() -> nn.Module:
    """Parameters of shape [C, 1, 1] and [1, C, 1, 1], in a list."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.scales[0] * x + m.scales[1] * m.b(m.a(x))

    scales = nn.ParameterList((parameter(10, 1, 1), parameter(1, 10, 1, 1)))
    return around(10, Block(run, a=unit(10, 17), b=conv(17, 10), scales=scales), 10)


@micro("stem.0 body.a body.b")
def channel_bias_and_slope() -> nn.Module:
    """NFNet's and MetaFormer's little parameters: a bias per channel, StarReLU's scalars, a slope by torch.where."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.a(x) + m.bias[:, None, None]
        x = m.scale * F.relu(x) ** 2 + m.shift * x
        return m.b(torch.where(x > 0, x, m.slope * x))

    scalars = {"scale": parameter(1), "shift": parameter(1)}
    return around(
        10, Block(run, a=conv(10, 13), bias=parameter(13), slope=parameter(1, 13, 1, 1), b=conv(13, 9), **scalars), 9
    )


@micro("stem.0 body.a body.b")
def prelu() -> nn.Module:
    """A slope per channel, and one for all."""
    return around(10, chain(a=conv(10, 13), act=nn.PReLU(13), b=conv(13, 9), single=nn.PReLU()), 9)


@micro("stem.0 body.a")
def statistics_buffers() -> nn.Module:
    """Mean and deviation as buffers: on the image, where they stay whole, and on features, where they are cut."""

    def run(m: Any, x: Tensor) -> Tensor:
        return (x - m.mean) / m.std

    def normalise(width: int) -> Block:
        return Block(run, mean=torch.randn(width, 1, 1), std=torch.rand(1, width, 1, 1) + 0.5)

    body = chain(a=conv(9, 13), act=nn.SiLU(), norm=normalise(13))
    return chain(norm=normalise(3), stem=unit(3, 9), body=body, head=conv(13, 5, 1))


@micro("stem.0 body.a body.b")
def batch_norm_without_affine() -> nn.Module:
    """Statistics without weight and bias, and one that has weights but no statistics of its own to use."""
    norms = nn.BatchNorm2d(13, affine=False), nn.InstanceNorm2d(9, affine=True)
    return around(10, chain(a=conv(10, 13), norm=norms[0], act=nn.SiLU(), b=conv(13, 9), norm2=norms[1]), 9)


@micro("stem.0 body.a body.b")
def instance_norm_with_statistics() -> nn.Module:
    norm = nn.InstanceNorm2d(13, affine=True, track_running_stats=True)
    return around(10, chain(a=conv(10, 13), norm=norm, act=nn.SiLU(), b=conv(13, 9)), 9)


@micro("stem.0 body.a body.b")
def instance_norm_without_tensors() -> nn.Module:
    """Only the number of channels that the norm holds says how wide it is."""
    norms = nn.InstanceNorm2d(13), nn.InstanceNorm2d(9)
    return around(10, chain(a=conv(10, 13), norm=norms[0], act=nn.SiLU(), b=conv(13, 9), norm2=norms[1]), 9)


@micro("stem.0 body.a body.b")
def group_norm() -> nn.Module:
    """Four groups of six and, as some networks have it, one group of all."""
    return around(
        10, chain(a=conv(10, 24), n=nn.GroupNorm(4, 24), act=nn.SiLU(), b=conv(24, 9), m=nn.GroupNorm(1, 9)), 9
    )


@micro("stem.0 body.depthwise body.fc1")
def convnext_block() -> nn.Module:
    """Depthwise convolution, layer norm and linear layers channels-last, layer scale, residual."""

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.fc2(F.gelu(m.fc1(m.norm(m.depthwise(x).permute(0, 2, 3, 1)))))
        return x + (y * m.gamma).permute(0, 3, 1, 2)

    parts = {"depthwise": conv(10, 10, 7, groups=10), "norm": nn.LayerNorm(10, eps=1e-6), "gamma": parameter(10)}
    return around(10, Block(run, **parts, fc1=nn.Linear(10, 26), fc2=nn.Linear(26, 10)), 10)


@micro("stem.0 body.a body.b")
def layer_norm_2d_by_hand() -> nn.Module:
    """Mean and variance over dimension 1, written out."""

    def run(m: Any, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return m.weight[:, None, None] * ((x - mean) / torch.sqrt(variance + m.eps)) + m.bias[:, None, None]

    norm = Block(run, weight=parameter(13), bias=parameter(13), eps=1e-6)
    return around(10, chain(a=conv(10, 13), norm=norm, b=conv(13, 9)), 9)


@micro("stem.0 body.a body.b")
def layer_norm_functional() -> nn.Module:
    """timm's LayerNorm2d: F.layer_norm between permutes, with the shape as a tuple attribute."""

    def run(m: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), m.normalized_shape, m.weight, m.bias, 1e-6).permute(0, 3, 1, 2)

    norm = Block(run, weight=parameter(13), bias=parameter(13), normalized_shape=(13,))
    return around(10, chain(a=conv(10, 13), norm=norm, b=conv(13, 9)), 9)


@micro("stem.0 body.b")
def layer_norm_of_whole_map() -> nn.Module:
    """nn.LayerNorm over channels and space at once, with weights of that shape."""
    return around(10, chain(a=conv(10, 13), norm=nn.LayerNorm([13, 8, 8]), b=conv(13, 9)), 9)


@micro("stem.0 body.a body.b")
def rms_norm() -> nn.Module:
    """nn.RMSNorm channels-last, and the same by hand in front of it."""
    last, first = (LambdaLayer(lambda x: x.permute(0, 2, 3, 1)), LambdaLayer(lambda x: x.permute(0, 3, 1, 2)))

    def run(m: Any, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * m.weight.view(1, -1, 1, 1)

    hand = Block(run, weight=parameter(10))
    return around(10, chain(hand=hand, a=conv(10, 13), last=last, norm=nn.RMSNorm(13), first=first, b=conv(13, 9)), 9)


@micro("stem.0 body.fc1")
def global_response_norm() -> nn.Module:
    """ConvNeXt v2's GRN: lengths over space, divided by their mean over channels."""

    def grn(m: Any, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, 2, dim=(1, 2), keepdim=True)
        return x + m.bias + m.weight * x * length / (length.mean(-1, keepdim=True) + 1e-6)

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.fc2(m.grn(F.gelu(m.fc1(x.permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)

    norm = Block(grn, weight=parameter(26), bias=parameter(26))
    return around(10, Block(run, fc1=nn.Linear(10, 26), grn=norm, fc2=nn.Linear(26, 10)), 10)


class StandardisedByBatchNorm(nn.Conv2d):
    """timm's way: the filters are the channels of a batch norm."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes, padding=1)
        self.gain = nn.Parameter(torch.full((self.out_channels, 1, 1, 1), 0.4))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(rows, None, None, self.gain.view(-1), training=True, momentum=0.0, eps=1e-6)
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias, padding=self.padding)


class StandardisedByHand(nn.Conv2d):
    """Big Transfer's way: mean and variance of each filter."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, unbiased=False)
        return F.conv2d(x, (self.weight - mean) * torch.rsqrt(variance + 1e-6) / 3, self.bias, padding=self.padding)


@micro("body.a body.b")
def weight_standardised_by_batch_norm() -> nn.Module:
    return around(
        10, chain(a=StandardisedByBatchNorm(10, 13, 3), act=nn.SiLU(), b=StandardisedByBatchNorm(13, 9, 3)), 9
    )


@micro("body.a body.b")
def weight_standardised_by_hand() -> nn.Module:
    return around(10, chain(a=StandardisedByHand(10, 13, 3), act=nn.SiLU(), b=StandardisedByHand(13, 9, 3)), 9)


@micro("body.a")
def weight_norm() -> nn.Module:
    """A parametrisation: length [C, 1, 1, 1] and direction [C, in, k, k] are the parameters, not `weight`."""
    return around(10, chain(a=parametrizations.weight_norm(conv(10, 13)), act=nn.SiLU(), b=conv(13, 9)), 9)


@micro("body.b")
def spectral_norm() -> nn.Module:
    """The weight is divided by its largest singular value, of which two buffers hold the vectors."""
    return around(10, chain(a=parametrizations.spectral_norm(conv(10, 13)), act=nn.SiLU(), b=conv(13, 9)), 9)


def blur_kernel(channels: int) -> Tensor:
    line = torch.tensor([1.0, 2.0, 1.0])
    return (torch.outer(line, line) / 16).expand(channels, 1, 3, 3).clone()


@micro("stem.0 body.a.0")
def blur_pool_with_buffer() -> nn.Module:
    """An anti-aliasing kernel for each channel, as a buffer that is cut along."""

    def run(m: Any, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), m.kernel, stride=2, groups=m.kernel.shape[0])

    return around(10, chain(a=unit(10, 14), blur=Block(run, kernel=blur_kernel(14))), 14)


@micro("stem.0 body.a.0")
def blur_pool_with_expanded_buffer() -> nn.Module:
    """One kernel, expanded to `self.channels` on the way."""

    def run(m: Any, x: Tensor) -> Tensor:
        kernel = m.kernel.expand(m.channels, -1, -1, -1)
        return F.conv2d(F.pad(x, (1, 1, 1, 1)), kernel, stride=2, groups=m.channels)

    return around(10, chain(a=unit(10, 14), blur=Block(run, kernel=blur_kernel(1), channels=14)), 14)


@micro("stem.0 body.b.0")
def haar_transform() -> nn.Module:
    """Four fixed filters for each channel, repeated as often as there are channels."""

    def run(m: Any, x: Tensor) -> Tensor:
        return m.b(F.conv2d(x, m.filters.repeat(x.shape[1], 1, 1, 1), stride=2, groups=x.shape[1]))

    signs = torch.tensor(
        [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=torch.get_default_dtype()
    )
    return around(7, Block(run, filters=signs.view(4, 1, 2, 2) / 2, b=unit(28, 12)), 12)


@micro("stem.0 body.b.0")
def position_embedding() -> nn.Module:
    """Parameters [1, C, H, W] on a map and [1, N, C] on tokens, with a class token in front that is dropped again."""

    def run(m: Any, x: Tensor) -> Tensor:
        tokens = (x + m.on_map).flatten(2).transpose(1, 2)
        tokens = torch.cat((m.token.expand(x.size(0), -1, -1), tokens), 1) + m.on_tokens
        tokens = m.norm(tokens)
        return m.b((tokens[:, 1:] * tokens[:, :1]).transpose(1, 2).reshape(x.shape))

    parts = {"on_map": parameter(1, 10, 8, 8), "on_tokens": parameter(1, 65, 10), "token": parameter(1, 1, 10)}
    return around(10, Block(run, **parts, norm=nn.LayerNorm(10), b=unit(10, 13)), 13)


# -- attention inside convolutional networks --------------------------------------------------------------------------


@micro("stem.0 body.qkv")
def attention_by_hand() -> nn.Module:
    """One linear layer for queries, keys and values, reshaped to (B, N, 3, heads, dim); the scale is a number."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        qkv = m.qkv(x.flatten(2).transpose(1, 2)).reshape(b, h * w, 3, m.num_heads, m.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        weight = (q @ k.transpose(-2, -1) * m.scale).softmax(dim=-1)
        tokens = (weight @ v).transpose(1, 2).reshape(b, h * w, m.num_heads * m.head_dim)
        return x + m.proj(tokens).transpose(1, 2).reshape(b, c, h, w)

    parts = {"qkv": nn.Linear(10, 3 * 2 * 6), "proj": nn.Linear(12, 10)}
    return around(10, Block(run, **parts, num_heads=2, head_dim=6, scale=6**-0.5), 10)


@micro("stem.0 body.qkv body.proj")
def attention_within_bands() -> nn.Module:
    """Bands of positions, and the scale of a head's width: only whole heads can go, although a head is the wider."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        bands = m.qkv(x).flatten(2).transpose(1, 2).reshape(b * m.bands, h * w // m.bands, 3 * m.inner)
        heads = bands.view(b * m.bands, -1, m.num_heads, 3 * m.head_dim).transpose(1, 2)
        q, k, v = heads.split([m.head_dim, m.head_dim, m.head_dim], dim=3)
        weight = (q * m.head_dim**-0.5 @ k.transpose(2, 3)).softmax(3)
        tokens = (weight @ v).transpose(1, 2).reshape(b, h * w, m.inner)
        return x + m.proj(tokens.transpose(1, 2).reshape(b, m.inner, h, w))

    parts = {"qkv": conv(10, 3 * 12, 1), "proj": conv(12, 10, 1)}
    return around(10, Block(run, **parts, num_heads=3, head_dim=4, inner=12, bands=2), 10)


@micro("stem.0 body.inside body.close.0")
def unpooling() -> nn.Module:
    """SegNet: values are put back to the positions that the maxima of a pooling came from."""

    def run(m: Any, x: Tensor) -> Tensor:
        small, places = F.max_pool2d(x, 2, return_indices=True)
        return m.close(F.max_unpool2d(m.inside(small), places, 2, output_size=x.shape[2:]))

    return around(10, Block(run, inside=conv(10, 10), close=unit(10, 7)), 7)


@micro("stem.0 body.v")
def attention_scaled_dot_product() -> nn.Module:
    """The fused operator takes its scale from the width of the queries: cutting those changes it."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k = (layer(tokens).view(b, -1, m.num_heads, m.key_dim).transpose(1, 2) for layer in (m.q, m.k))
        v = m.v(tokens).view(b, -1, m.num_heads, m.value_dim).transpose(1, 2)
        tokens = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, -1)
        return x + m.proj(tokens).transpose(1, 2).view(b, c, h, w)

    parts = {"q": nn.Linear(14, 12), "k": nn.Linear(14, 12), "v": nn.Linear(14, 20), "proj": nn.Linear(20, 14)}
    return around(14, Block(run, **parts, num_heads=4, key_dim=3, value_dim=5), 14)


@micro("body.close.0")
def attention_module() -> nn.Module:
    """nn.MultiheadAttention, whose width, heads and scale hang together; a layer norm in front."""

    def run(m: Any, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        y = m.norm(tokens)
        tokens = tokens + m.attention(y, y, y, need_weights=False)[0]
        return m.close(tokens.transpose(1, 2).reshape(x.shape))

    attention = nn.MultiheadAttention(12, 3, batch_first=True)
    return around(12, Block(run, norm=nn.LayerNorm(12), attention=attention, close=unit(12, 9)), 9)


@micro("stem.0 body.theta body.phi body.value")
def non_local_block() -> nn.Module:
    """1x1 convolutions meet in a matrix product over channels, values in another over positions."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        theta, phi = m.theta(x).view(b, m.inner, -1), m.phi(F.max_pool2d(x, 2)).view(b, m.inner, -1)
        weight = torch.bmm(theta.transpose(1, 2), phi).softmax(-1)
        y = torch.bmm(weight, m.value(F.max_pool2d(x, 2)).flatten(2).transpose(1, 2))
        return x + m.out(y.transpose(1, 2).reshape(b, -1, h, w))

    parts = {"theta": conv(12, 5, 1), "phi": conv(12, 5, 1), "value": conv(12, 7, 1), "out": conv(7, 12, 1)}
    return around(12, Block(run, **parts, inner=5), 12)


@micro("stem.0")
def linear_attention() -> nn.Module:
    """EfficientViT: positive keys times values, with a one padded to the values for the sum that is divided by."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        qkv = m.qkv(x).reshape(b, -1, 3 * m.dim, h * w).transpose(-1, -2)
        q, k, v = torch.split(qkv, m.dim, dim=-1)
        v = F.pad(v, (0, 1), mode="constant", value=1.0)
        out = (F.elu(q) + 1) @ ((F.elu(k) + 1).transpose(-1, -2) @ v)
        out = out[..., :-1] / (out[..., -1:] + 1e-4)
        return x + m.proj(out.transpose(-1, -2).reshape(b, -1, h, w))

    return around(10, Block(run, qkv=conv(10, 36, 1), proj=conv(12, 10, 1), dim=6), 10)


@micro("stem.0")
def attention_over_channels() -> nn.Module:
    """Cross-covariance: channels attend to channels, so a softmax runs over them."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        q, k, v = m.qkv(x).reshape(b, 3, m.num_heads, -1, h * w).unbind(1)
        weight = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * m.temperature).softmax(-1)
        return x + m.proj((weight @ v).reshape(b, -1, h, w))

    parts = {"qkv": conv(10, 36, 1), "proj": conv(12, 10, 1), "temperature": parameter(2, 1, 1)}
    return around(10, Block(run, **parts, num_heads=2), 10)


@micro("stem.0", "body.fc2 head")
def token_mixing() -> nn.Module:
    """Linear layers over positions: what they make is space again and must stay; channels pass through."""

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.fc2(F.gelu(m.fc1(x.flatten(2)))).view(x.shape)

    return around(10, Block(run, fc1=nn.Linear(64, 22), fc2=nn.Linear(22, 64)), 10)


@micro("body.reduce.0")
def involution() -> nn.Module:
    """Kernels made for each position meet patches from F.unfold, group by group."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        kernel = m.span(m.reduce(x)).view(b, m.groups, 1, 9, h, w)
        patches = F.unfold(x, 3, padding=1).view(b, m.groups, c // m.groups, 9, h, w)
        return (kernel * patches).sum(3).view(b, c, h, w)

    return around(10, Block(run, reduce=unit(10, 6, 1), span=conv(6, 18, 1), groups=2), 10)


@micro("stem.0")
def conditional_kernels() -> nn.Module:
    """CondConv: each sample mixes its own kernel out of experts; batch and channels share a dimension."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = F.silu(m.hidden(x))
        b, c, h, w = x.shape
        weight = m.routing(x.mean((2, 3))).sigmoid() @ m.experts
        y = F.conv2d(x.reshape(1, b * c, h, w), weight.view(b * m.outputs, c, 3, 3), padding=1, groups=b)
        return y.view(b, m.outputs, h, w)

    parts = {"hidden": conv(10, 7), "routing": nn.Linear(7, 4), "experts": parameter(4, 11 * 7 * 9)}
    return around(10, Block(run, **parts, outputs=11), 11)


@micro("stem.0 body.wide.0")
def conditional_depthwise_kernels() -> nn.Module:
    """timm's CondConv: the number of groups is the batch times an attribute, and inputs / groups must stay 1."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.wide(x)
        b, c, h, w = x.shape
        kernels = (m.routing(x.mean((2, 3))).sigmoid() @ m.experts).view(b * m.outputs, m.inputs // m.groups, 3, 3)
        y = F.conv2d(x.reshape(1, b * c, h, w), kernels, padding=1, groups=b * m.groups)
        return m.narrow(F.silu(y.view(b, m.outputs, h, w)))

    parts = {"wide": unit(10, 14), "routing": nn.Linear(14, 4), "experts": parameter(4, 14 * 9)}
    return around(10, Block(run, **parts, groups=14, inputs=14, outputs=14, narrow=conv(14, 9)), 9)


@micro("stem.0")
def fourier_filter() -> nn.Module:
    """GFNet: a complex weight for each channel and frequency, kept as a real parameter."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.a(x)
        spectrum = torch.fft.rfft2(x, norm="ortho") * torch.view_as_complex(m.weight)
        return m.b(torch.fft.irfft2(spectrum, s=x.shape[-2:], norm="ortho"))

    return around(10, Block(run, a=conv(10, 13), b=conv(13, 9), weight=parameter(13, 8, 5, 2)), 9)


@micro("conv", "fc")
def recurrent_head() -> nn.Module:
    """Columns of the map go through a recurrent cell, an operator that is seldom known."""

    def run(m: Any, x: Tensor) -> Tensor:
        state = None
        for column in m.reduce(F.silu(m.conv(x))).mean(2).unbind(2):
            state = m.cell(column, state)
        return m.fc(state)

    return Block(run, conv=conv(3, 12), reduce=conv(12, 7), cell=nn.GRUCell(7, 9), fc=nn.Linear(9, 5))


# -- several resolutions, inputs, outputs -----------------------------------------------------------------------------


@micro("down1.0 down2.0 bottom.0 up.0 merge.0")
def unet() -> nn.Module:
    """Upsampling and transposed convolution, each concatenated with what was skipped."""

    def run(m: Any, x: Tensor) -> Tensor:
        fine = m.down1(x)
        coarse = m.down2(F.max_pool2d(fine, 2))
        x = F.interpolate(m.bottom(F.max_pool2d(coarse, 2)), scale_factor=2, mode="bilinear", align_corners=False)
        return m.head(m.merge(torch.cat((fine, m.grow(m.up(torch.cat((x, coarse), 1)))), 1)))

    parts = {"down1": unit(3, 8), "down2": unit(8, 12), "bottom": unit(12, 18), "up": unit(30, 14)}
    return Block(run, **parts, grow=nn.ConvTranspose2d(14, 10, 2, 2), merge=unit(18, 11), head=conv(11, 5, 1))


@micro("c1.0 c2.0 c3.0 lateral.0 lateral.1 lateral.2", "head")
def feature_pyramid() -> nn.Module:
    """Lateral sums over three levels and one head for all: the outputs of the head are a tuple."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, ...]:
        levels = [m.c1(x)]
        levels.append(m.c2(levels[-1]))
        levels.append(m.c3(levels[-1]))
        merged = [m.lateral[2](levels[2])]
        for lateral, level in ((m.lateral[1], levels[1]), (m.lateral[0], levels[0])):
            merged.append(lateral(level) + F.interpolate(merged[-1], scale_factor=2.0, mode="nearest"))
        return tuple(m.head(F.silu(level)) for level in reversed(merged))

    parts = {"c1": unit(3, 8), "c2": unit(8, 12, stride=2), "c3": unit(12, 18, stride=2), "head": conv(15, 5)}
    return Block(run, **parts, lateral=nn.ModuleList(conv(width, 15, 1) for width in (8, 12, 18)))


@micro("fine.0 coarse.0 up.0 down.0")
def high_resolution_fusion() -> nn.Module:
    """HRNet: two resolutions exchange sums."""

    def run(m: Any, x: Tensor) -> Tensor:
        fine, coarse = m.fine(x), m.coarse(x)
        fine, coarse = fine + F.interpolate(m.up(coarse), scale_factor=2), coarse + m.down(fine)
        return m.head(torch.cat((fine, F.interpolate(coarse, size=fine.shape[2:])), 1))

    parts = {"fine": unit(3, 9), "coarse": unit(3, 14, stride=2), "up": unit(14, 9, 1), "down": unit(9, 14, stride=2)}
    return Block(run, **parts, head=conv(23, 5, 1))


@micro("image.0 film", "head", image((2, 3, 8, 8), (2, 6)))
def two_inputs() -> nn.Module:
    """FiLM: a vector modulates the map, scale and shift from one linear layer."""

    def run(m: Any, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = m.film(condition).chunk(2, dim=-1)
        return m.head(F.silu(m.image(x) * (1 + scale[:, :, None, None]) + shift[..., None, None]))

    return Block(run, image=unit(3, 13), film=nn.Linear(6, 26), head=conv(13, 5))


def _nested() -> tuple[Any, ...]:
    left, right, depth = image((2, 3, 8, 8), (2, 3, 8, 8), (2, 1, 8, 8))()
    return ({"views": [left, right], "extra": {"depth": depth}},)


@micro("view.0 depth.0 mix.0", "head", _nested)
def nested_input() -> nn.Module:
    """One argument: a dictionary of a list and a dictionary."""

    def run(m: Any, batch: dict[str, Any]) -> Tensor:
        views = [m.view(view) for view in batch["views"]]
        return m.head(m.mix(torch.cat((*views, m.depth(batch["extra"]["depth"])), 1)))

    return Block(run, view=unit(3, 9), depth=unit(1, 7), mix=unit(25, 14), head=conv(14, 5, 1))


@micro("a.0 b.0", "head aux")
def dictionary_output() -> nn.Module:
    """Two heads at different depths."""

    def run(m: Any, x: Tensor) -> dict[str, Tensor]:
        a = m.a(x)
        return {"out": m.head(m.b(a)), "aux": m.aux(a)}

    return Block(run, a=unit(3, 10), b=unit(10, 14), head=conv(14, 5, 1), aux=conv(10, 6, 1))


@micro("a.0 c.0", "b.0 head")
def features_in_output() -> nn.Module:
    """The map of the second layer is given out beside the result, and so are sizes that hang on no channel."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        features = m.b(m.a(x))
        return m.head(m.c(features)), [features, features.mean((1, 2, 3))]

    return Block(run, a=unit(3, 10), b=unit(10, 14), c=unit(14, 9), head=conv(9, 5, 1))


@micro("a b", "last", image((2, 3, 8, 8)))
def image_residual() -> nn.Module:
    """A denoiser: the last layer is tied to the network's input."""

    def run(m: Any, x: Tensor) -> Tensor:
        return x - m.last(F.silu(m.b(F.silu(m.a(x)))))

    return Block(run, a=conv(3, 10), b=conv(10, 14), last=conv(14, 3))


# -- modules used twice, not at all, or by choice ---------------------------------------------------------------------


@micro("stem.0 body.shared.0")
def shared_conv() -> nn.Module:
    """The same convolution twice in a row ties its inputs to its outputs."""
    return around(10, Block(lambda m, x: m.shared(m.shared(x)), shared=unit(10, 10)), 10)


@micro("stem.0 body.shared.0 body.a.0 body.b.0")
def shared_head_at_two_resolutions() -> nn.Module:
    """A submodule sees two inputs of different size and origin; their channels are tied through its weight."""

    def run(m: Any, x: Tensor) -> Tensor:
        fine, coarse = m.shared(m.a(x)), m.shared(m.b(F.avg_pool2d(x, 2)))
        return torch.cat((fine, F.interpolate(coarse, scale_factor=2)), 1)

    return around(10, Block(run, a=unit(10, 12), b=unit(10, 12), shared=unit(12, 7)), 14)


@micro("stem.0 body.a body.b")
def tied_convolutions() -> nn.Module:
    """Two modules hold one weight, each with a bias of its own."""
    a, b = conv(10, 10), conv(10, 10)
    b.weight = a.weight
    return around(10, chain(a=a, act=nn.SiLU(), b=b), 10)


@micro("stem.0 body.encode")
def tied_autoencoder() -> nn.Module:
    """A weight and its transpose: rows here, columns there."""

    def run(m: Any, x: Tensor) -> Tensor:
        hidden = F.silu(m.encode(x.permute(0, 2, 3, 1)))
        return F.linear(hidden, m.encode.weight.t(), m.bias).permute(0, 3, 1, 2)

    return around(10, Block(run, encode=nn.Linear(10, 17), bias=parameter(10)), 10)


@micro("stem.0 body.choices.1.0")
def chosen_by_attribute() -> nn.Module:
    """Only one of a list of modules runs, by an integer that is not a size, although it may equal one."""
    choices = nn.ModuleList((unit(10, 1, 1), unit(10, 13), unit(10, 16)))
    return around(10, Block(lambda m, x: m.choices[m.choice](x), choices=choices, choice=1), 13)


@micro("stem.0 body.a.0")
def unused_in_eval() -> nn.Module:
    """An auxiliary head that only training runs."""

    def run(m: Any, x: Tensor) -> Any:
        x = m.a(x)
        return (m.b(x), m.auxiliary(x)) if m.training else m.b(x)

    return around(10, Block(run, a=unit(10, 14), b=conv(14, 9), auxiliary=conv(14, 6)), 9)


@micro("stem.0 body.b", "head", image((2, 3, 8, 8)))
def everything_is_eight() -> nn.Module:
    """Widths, rows and columns are all 8, and so is an attribute that is a size of space and must not be repaired."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = F.interpolate(F.avg_pool2d(m.a(x), 2), size=(m.size, m.size))
        return m.b(x.view(-1, m.channels, m.size, m.size).transpose(2, 3)) / m.divisor

    return around(8, Block(run, a=conv(8, 8), b=conv(8, 8), size=8, channels=8, divisor=8), 8)


@micro("stem.0 body.a")
def size_from_another_module() -> nn.Module:
    """The size of a view is read from the layer that makes it, and so follows by itself."""

    def run(m: Any, x: Tensor) -> Tensor:
        return F.silu(m.a(x).view(-1, m.a.out_channels, x.size(2) * x.size(3))).unflatten(2, x.shape[2:])

    return around(10, Block(run, a=conv(10, 14)), 14)


@micro("stem.0 body.b.0")
def sizes_in_a_partial() -> nn.Module:
    """Split sizes hide in the arguments of a functools.partial."""

    def run(m: Any, x: Tensor) -> Tensor:
        first, second = m.split(m.a(x))
        return m.b(torch.cat((second.sigmoid(), first), 1))

    split = partial(torch.split, split_size_or_sections=[5, 9], dim=1)
    return around(10, Block(run, a=conv(10, 14), b=unit(14, 11), split=split), 11)


GLOBAL_WIDTH = 14


@micro("stem.0", "body.a head")
def size_from_a_global() -> nn.Module:
    """A constant of the Python module belongs to every network that reads it."""

    def run(m: Any, x: Tensor) -> Tensor:
        return F.silu(m.a(x).view(2, GLOBAL_WIDTH, 8, 8))

    return around(10, Block(run, a=conv(10, GLOBAL_WIDTH)), GLOBAL_WIDTH)


MICRO: tuple[Micro, ...] = tuple(_TABLE)
