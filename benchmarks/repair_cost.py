"""What repair costs: seconds and peak memory for ResNet50, and an estimate with repair compared with one without.

ResNet50 has random weights and reads 256 random smooth pictures of 224 px; only the sizes matter for the time. It is
cut to half its MACs with uniform widths. The first repair also loads libraries; it is printed on its own. Each repair
runs in a process of its own, so that the peak memory is that of this repair: on a CPU the resident memory of the whole
process, and, for comparison, the memory just before the repair; on a GPU what torch has allocated.
The two estimates score the same structures in one process, in turns. A search visits few widths of each group, so the
structures are in steps of an eighth, as in a search; the first structures are left out of the ratio and printed.

    python benchmarks/repair_cost.py [--network torchvision:resnet50] [--images 256] [--pixels 224] [--repeats 2]
        [--estimate resnet56] [--structures 30] [--parts repair estimate] [--device cuda] [--out FOLDER]
    python benchmarks/repair_cost.py --smoke
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import aacp
import repair_treatments as shared
from psae_speed import structures_of

WARM_UP = 5  # structures that each estimate scores before the ratio is taken


def pictures(count: int, pixels: int, seed: int = 0) -> torch.Tensor:
    """Random smooth pictures."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, max(2, pixels // 16), max(2, pixels // 16), generator=draw)
    return F.interpolate(coarse, size=pixels, mode="bilinear")


def resident() -> float:
    """The largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# -- one repair -------------------------------------------------------------------------------------------------------


def repair_once(options: argparse.Namespace) -> shared.Row:
    """Cut a network and repair it, several times; the seconds of each, and the peak memory of the first."""
    torch.manual_seed(0)
    model = aacp.build_model(options.network).eval().to(options.device)
    images = pictures(options.images, options.pixels)
    aacp.recalibrate(model, images[: min(32, options.images)])  # otherwise the activations of random weights explode
    graph = aacp.trace(model, images[:1].to(options.device))
    halved = shared.uniform(graph, graph, shared.budget_of(graph, 0.5))
    kept = aacp.Inheritance(model, graph, images[:1], device=options.device).kept(halved)
    batches = aacp.Batches.of(images, batch_size=options.batch, device=options.device)
    row: shared.Row = {"seconds": [], "mib_before": resident()}
    on_gpu = torch.device(options.device).type == "cuda"
    for _ in range(options.repeats):
        network = aacp.shrink(model, graph, kept).to(options.device).eval()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        shared.wait_for(options.device)
        begun = time.perf_counter()
        notes = aacp.repair(network, model, graph, kept, batches)
        shared.wait_for(options.device)
        row["seconds"].append(round(time.perf_counter() - begun, 2))
        row.setdefault("mib_peak", resident())
        if on_gpu:
            row.setdefault("gpu_mib_peak", torch.cuda.max_memory_allocated() / 2**20)
    return row | {"notes": list(notes)}


def repair(options: argparse.Namespace) -> shared.Row:
    """The same in a process of its own."""
    given = ["--network", options.network, "--images", str(options.images), "--pixels", str(options.pixels)]
    given += ["--batch", str(options.batch), "--repeats", str(options.repeats), "--device", options.device, "--here"]
    done = subprocess.run([sys.executable, __file__, *given], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("The repair failed; its message is above.")
    row = json.loads(done.stdout.splitlines()[-1])
    first, *others = row["seconds"]
    later = f", later {min(others):.1f} s" if others else ""
    gpu = f", {row['gpu_mib_peak']:,.0f} MiB on the GPU" if "gpu_mib_peak" in row else ""
    print(
        f"{options.network}, {options.images} images of {options.pixels} px on {options.device}: "
        f"repaired in {first:.1f} s{later}; peak {row['mib_peak']:,.0f} MiB, {row['mib_before']:,.0f} MiB before{gpu}",
        *row["notes"],
        sep="\n",
        flush=True,
    )
    return row


# -- two estimates ----------------------------------------------------------------------------------------------------


def seconds_of(estimate: aacp.PSAE, structure: Any, device: str) -> float:
    begun = time.perf_counter()
    estimate(structure)
    shared.wait_for(device)
    return time.perf_counter() - begun


def estimates(options: argparse.Namespace) -> shared.Row:
    """The seconds of each structure by the estimate without and with repair, in turns."""
    torch.manual_seed(0)
    model = aacp.build_model(options.estimate).eval()
    pixels = aacp.example_input(model).shape[-1] if options.estimate_pixels is None else options.estimate_pixels
    fit = pictures(options.calibration, pixels)
    holdout = pictures(options.holdout, pixels, 1)
    aacp.recalibrate(model, fit[:64])
    with torch.no_grad():
        labels = torch.cat([model(part).argmax(1) for part in holdout.split(100)])
    graph = aacp.trace(model, fit[:1])
    ways: dict[str, Any] = {"plain": {}, "repaired": {"reconstruction": "repair"}}
    made = {}
    row: shared.Row = {"network": options.estimate, "calibration": options.calibration, "holdout": options.holdout}
    for name, how in ways.items():
        begun = time.perf_counter()
        made[name] = aacp.PSAE(aacp.Inheritance(model, graph, fit, device=options.device, **how), (holdout, labels))
        shared.wait_for(options.device)
        row[name] = {"execution": made[name].execution, "notes": made[name].notes, "seconds": []}
        row[name]["preparation"] = time.perf_counter() - begun
    for structure in structures_of(graph, 0.5, options.structures + WARM_UP):
        for name, estimate in made.items():
            row[name]["seconds"].append(seconds_of(estimate, structure, options.device))
    middle = {name: statistics.median(row[name]["seconds"][WARM_UP:]) for name in ways}
    total = {name: sum(row[name]["seconds"]) + row[name]["preparation"] for name in ways}
    row["ratio"] = middle["repaired"] / middle["plain"]
    row["ratio_of_all"] = total["repaired"] / total["plain"]
    for name in ways:
        part = row[name]
        print(
            f"{options.estimate}, {name} ({part['execution']}): prepared in {part['preparation']:.2f} s, "
            f"first structure {part['seconds'][0]:.2f} s, then {1e3 * middle[name]:.1f} ms each "
            f"(median of {options.structures})"
        )
    print(
        f"an estimate with repair takes {row['ratio']:.2f} times one without; with all preparation "
        f"{row['ratio_of_all']:.2f} times",
        flush=True,
    )
    return row


def main() -> None:
    options = arguments()
    if options.here:
        print(json.dumps(repair_once(options)))
        return
    device = torch.device(options.device).type
    result = shared.circumstances(options.device) | {"network": options.network, "images": options.images}
    result |= {"pixels": options.pixels, "device": options.device}
    name = f"repair_cost_{'smoke' if options.smoke else device}"
    for part, work in (("repair", repair), ("estimate", estimates)):
        if part in options.parts:
            result[part] = work(options)
            shared.write(options.out, name, result)


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="torchvision:resnet50")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32, help="images in a batch that repair is given")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--estimate", default="resnet56", help="network of the two estimates")
    parser.add_argument("--estimate-pixels", type=int, help="pixels of its images, by default those it is made for")
    parser.add_argument("--calibration", type=int, default=1000, help="images of the estimates to recalibrate on")
    parser.add_argument("--holdout", type=int, default=1000, help="images of the estimates to score on")
    parser.add_argument("--structures", type=int, default=30)
    parser.add_argument("--parts", nargs="+", default=["repair", "estimate"], choices=["repair", "estimate"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--here", action="store_true", help="one repair in this process, as JSON")
    parser.add_argument("--smoke", action="store_true", help="small networks and few images")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.smoke:
        options.network = "resnet20"
        options.images = options.calibration = options.holdout = 8
        options.pixels = 32
        options.repeats = 1
        options.estimate = "resnet20"
        options.structures = 3
    return options


if __name__ == "__main__":
    main()
