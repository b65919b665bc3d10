"""How much faster estimates and trainings are on a processor if convolutions have channels last in memory.

For each network: the seconds of an estimate (recalibration on --images images of noise, a score on as many others) of a
structure that keeps about half of the channels, and of an epoch of training of it on --images images. Each is timed
with the plain layout and with channels last in turn, --rounds times after a warm-up, in one process. The table has the
medians, the ratio of them, and the range of the ratios of the rounds.

    python benchmarks/layout_speed.py [--networks resnet56 vgg16 ...] [--images 1024] [--rounds 5] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest import mock

import torch

import aacp
import repair_treatments as shared
from aacp.data.images import Images
from aacp.pytorch import layout

NETWORKS = ("resnet56", "vgg16", "mobilenet_v2", "digits_resnet", "torchvision:mobilenet_v2", "torchvision:resnet50")
LARGE = 224  # pixels; images of networks of torchvision, of which there is one for 16 small ones
DEVICES = {"plain": (), "channels last": layout.FASTER_ON}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--images", type=int, default=1024, help="images of 32 pixels or fewer; of larger ones 1 in 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [row for name in options.networks for row in rows_of(name, options.images, options.rounds)]
    lines = []
    for row in rows:
        seconds = (f"{median(row[name]):.2f}" for name in DEVICES)
        of_rounds = f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f}"
        lines.append([row["network"], row["what"], *seconds, f"{row['ratio']:.2f}", of_rounds])
    print(shared.table(["network", "what", *(f"{name}, s" for name in DEVICES), "ratio", "of each round"], lines))
    given = {"images": options.images, "rounds": options.rounds}
    shared.write(options.out, "layout_speed", shared.circumstances("cpu") | given | {"rows": rows})


def rows_of(name: str, images: int, rounds: int) -> list[shared.Row]:
    """The seconds of estimates and of trainings of a network in both layouts."""
    torch.manual_seed(0)
    model = aacp.build_model(name).eval()
    example = aacp.example_input(model)
    channels, size = example.shape[1], example.shape[-1]
    noise = torch.Generator().manual_seed(0)
    count = images if size < LARGE else images // 16
    pixels = torch.randint(256, (2 * count, channels, size, size), generator=noise, dtype=torch.uint8)
    labels = torch.randint(10, (2 * count,), generator=noise)
    data = Images(pixels, labels, (0.5,) * channels, (0.25,) * channels, padding=0, flip=False)
    graph = aacp.trace(model, example)
    structure = aacp.Structure(max(1, group.width // 2) for group in graph.free)
    first, second = (data.subset(torch.arange(start, start + count)) for start in (0, count))
    cut = aacp.Inheritance(model, graph, first).network(structure)

    def estimate() -> None:
        running = aacp.PSAE(aacp.Inheritance(model, graph, first), second)
        running([group.width for group in graph.free])  # finds the layout, and prepares what is done once
        begun = time.perf_counter()
        running(structure)
        seconds.append(time.perf_counter() - begun)

    def training() -> None:
        recipe = aacp.Recipe(epochs=1, batch_size=min(128, count), lr=0.01)
        seconds.append(aacp.fit(copy.deepcopy(cut), first, recipe, device="cpu").last.seconds)

    found = []
    for what, run in (("an estimate", estimate), ("an epoch", training)):
        seconds: list[float] = []
        found.append({"network": name, "what": what} | in_both_layouts(run, seconds, rounds))
        print({key: value for key, value in found[-1].items() if key != "ratios"}, flush=True)
    return found


def in_both_layouts(run: Callable[[], None], seconds: list[float], rounds: int) -> shared.Row:
    """The seconds that a function appends, in both layouts in turn, without those of the first round."""
    for _ in range(rounds + 1):
        for devices in DEVICES.values():
            with mock.patch.object(layout, "FASTER_ON", devices):
                run()
    plain, faster = (seconds[start :: len(DEVICES)][1:] for start in range(len(DEVICES)))
    both = zip(DEVICES, (plain, faster), strict=True)
    ratios = [one / other for one, other in zip(plain, faster, strict=True)]
    return dict(both) | {"ratio": median(plain) / median(faster), "ratios": ratios}


if __name__ == "__main__":
    main()
