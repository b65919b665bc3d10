"""Repair of three small networks for other tasks: without batch norms, a U-Net for regression, and a hybrid.

Each network is trained for up to a minute on data that is made here, then cut by 30 and 50 % of its MACs with uniform
widths, and delivered inherited, recalibrated or repaired on 256 inputs without targets. Scores are those of new inputs;
the likeness is 1 - squared error / variance of the original's outputs, so 1 means that the outputs are equal.

    python benchmarks/repair_tasks.py [--tasks plain unet hybrid] [--rates 0.3 0.5] [--seconds 60] [--device cpu]
        [--out FOLDER]
    python benchmarks/repair_tasks.py --smoke
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aacp
import repair_treatments as shared

SIZE = 32  # pixels of a side
CLASSES = 10
Made = tuple[Tensor, Tensor]  # inputs and targets


# -- data that is made ------------------------------------------------------------------------------------------------


def textures(count: int, seed: int) -> Made:
    """Gratings of ten directions with random wave lengths, colours and phases, in noise; the label is the direction."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=draw)
    angle = (labels + 0.6 * torch.rand(count, generator=draw) - 0.3) * torch.pi / CLASSES
    frequency = 0.25 + 0.75 * torch.rand(count, generator=draw)
    phase = 2 * torch.pi * torch.rand(count, 3, generator=draw)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    along = angle.cos()[:, None, None] * columns + angle.sin()[:, None, None] * rows
    waves = (along * frequency[:, None, None])[:, None] + phase[:, :, None, None]
    return waves.sin() + 0.8 * torch.randn(count, 3, SIZE, SIZE, generator=draw), labels


def smooth_fields(count: int, seed: int) -> Made:
    """Smooth random fields with edges, to be recovered from a noisy picture in which three quarters are hidden."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 2, 5, 5, generator=draw)
    smooth = F.interpolate(coarse, size=SIZE, mode="bicubic", align_corners=True)
    clean = smooth[:, :1] + (smooth[:, 1:] > 0).float()
    shown = (torch.rand(count, 1, SIZE, SIZE, generator=draw) < 0.25).float()
    noisy = (clean + 0.2 * torch.randn(clean.shape, generator=draw)) * shown
    return torch.cat([noisy, shown], 1), clean


# -- networks ---------------------------------------------------------------------------------------------------------


class PlainNetwork(nn.Module):
    """Convolutions with biases and residual blocks, without any norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.first = nn.ModuleList([nn.Conv2d(32, 48, 3, padding=1), nn.Conv2d(48, 32, 3, padding=1)])
        self.down = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.second = nn.ModuleList([nn.Conv2d(64, 96, 3, padding=1), nn.Conv2d(96, 64, 3, padding=1)])
        self.close = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        x = x + self.first[1](F.relu(self.first[0](x)))
        x = F.relu(self.down(x))
        x = x + self.second[1](F.relu(self.second[0](x)))
        return self.head(F.relu(self.close(x)).mean((2, 3)))


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with batch norms."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three scales, concatenated shortcuts, transposed convolutions on the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.ModuleList([double(2, 16), double(16, 32)])
        self.bottom = double(32, 64)
        self.up = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
        self.right = nn.ModuleList([double(64, 32), double(32, 16)])
        self.head = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.left[0](x)
        second = self.left[1](F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.right[0](torch.cat([second, self.up[0](x)], 1))
        x = self.right[1](torch.cat([first, self.up[1](x)], 1))
        return self.head(x)


class Attention(nn.Module):
    """Self-attention whose queries, keys and values are linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.heads = heads
        self.scale = (width // heads) ** -0.5

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(tokens)
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weight = (query @ key.transpose(-2, -1) * self.scale).softmax(-1)
        return tokens + self.out((weight @ value).transpose(1, 2).reshape(batch, length, -1))


class Hybrid(nn.Module):
    """A convolutional stem with batch norms, then transformer blocks on its positions."""

    def __init__(self, width: int = 64, blocks: int = 2) -> None:
        super().__init__()
        stem: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 48), (48, width)):
            stem += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.GELU()]
        self.stem = nn.Sequential(*stem)
        self.place = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.attention = nn.ModuleList(Attention(width, 4) for _ in range(blocks))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))
            for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2) + self.place
        for attention, mlp in zip(self.attention, self.mlp, strict=True):
            tokens = attention(tokens)
            tokens = tokens + mlp(tokens)
        return self.head(self.norm(tokens).mean(1))


# -- tasks ------------------------------------------------------------------------------------------------------------


def explained(network: nn.Module, batches: aacp.Batches) -> float:
    """The share of the variance of the targets that a regression explains."""
    with torch.no_grad():
        pairs = [(network(inputs).float(), targets) for inputs, targets in batches]
    errors = torch.cat([(outputs - targets).square().flatten() for outputs, targets in pairs])
    targets = torch.cat([targets for _, targets in pairs])
    return float(1 - errors.mean() / targets.var())


@dataclass(frozen=True)
class Task:
    """A network, the data it learns from, its loss and its score."""

    title: str
    build: Callable[[], nn.Module]
    made: Callable[[int, int], Made]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[nn.Module, aacp.Batches], float]


TASKS = {
    "plain": Task("no batch norms, classification", PlainNetwork, textures, F.cross_entropy, aacp.accuracy),
    "unet": Task("U-Net, regression", UNet, smooth_fields, F.mse_loss, explained),
    "hybrid": Task("convolutions and transformer, classification", Hybrid, textures, F.cross_entropy, aacp.accuracy),
}


def train(network: nn.Module, task: Task, options: argparse.Namespace) -> int:
    """Train on a stream of new data for `options.steps` steps or `options.seconds`; returns the steps done."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    begun = time.perf_counter()
    pool = [tensor.to(options.device) for tensor in task.made(options.examples, 1)]
    network.train()
    for step in range(options.steps):
        progress = max(step / options.steps, (time.perf_counter() - begun) / options.seconds)
        if progress >= 1:
            return step
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * (1 - progress)
        chosen = torch.randint(0, options.examples, (64,))
        loss = task.loss(network(pool[0][chosen]), pool[1][chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return options.steps


def measured(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Train one network and compare the treatments of its cut forms."""
    task = TASKS[name]
    torch.manual_seed(options.seed)
    network = task.build().to(options.device)
    steps = train(network, task, options)
    network.eval()
    images = task.made(options.images, 2)[0]
    graph = aacp.trace(network, images[:1].to(options.device))
    subject = shared.Subject(network, graph, images, task.made(options.test, 3), options.device, task.score)
    unpruned = subject.judged(network)
    print(
        f"{task.title}: {len(graph.free)} free groups, {steps} steps, unpruned {shared.per_cent(unpruned)}", flush=True
    )
    rows = []
    inner = aacp.trace(network, images[:1].to(options.device), scope="inner")
    graphs = {"uniform": inner}
    if len(inner.free) < len(graph.free):
        graphs["uniform, residual streams too"] = graph
    for rate in options.rates:
        for widths, free in graphs.items():
            structure = shared.uniform(graph, free, shared.budget_of(free, rate))
            few = [
                {"rate": rate, "widths": widths, **subject.row(structure, order, treatment)}
                for order in options.orders
                for treatment in shared.TREATMENTS
            ]
            print(shared.by_order(few), flush=True)
            rows += few
    return {"task": name, "title": task.title, "steps": steps, "unpruned": unpruned, "rows": rows}


def main() -> None:
    options = arguments()
    result = shared.circumstances(options.device) | {"seed": options.seed, "images": options.images, "tasks": []}
    for name in options.tasks:
        result["tasks"].append(measured(name, options))
        shared.write(options.out, "repair_tasks", result)


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rates", nargs="+", type=float, default=[0.3, 0.5])
    parser.add_argument("--orders", nargs="+", default=list(shared.ORDERS))
    parser.add_argument("--images", type=int, default=256, help="inputs to fit on, without targets")
    parser.add_argument("--test", type=int, default=2000, help="inputs to score on")
    parser.add_argument("--examples", type=int, default=8000, help="examples to train on")
    parser.add_argument("--steps", type=int, default=1500, help="of training, at most")
    parser.add_argument("--seconds", type=float, default=60, help="of training, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="hardly trained, on few inputs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.smoke:
        options.images = options.test = options.examples = 64
        options.steps = 3
        options.rates = [0.5]
    return options


if __name__ == "__main__":
    main()
