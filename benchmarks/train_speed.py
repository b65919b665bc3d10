"""Claim: on an H200, an epoch of fine-tuning takes at most 1.2 s for ResNet56 at -50 %, and at most 1.5 s for VGG16.

50,000 CIFAR-10 images, batches of 128 or of --batch, distillation from the unpruned network. The captured update is
compared with a plain loop in bf16 with the same data on the GPU. Each is timed for some epochs (--epochs) after a
warm-up.

python benchmarks/train_speed.py --data PATH --weights resnet56.th [--network resnet56 --way captured ...]
                                 [--batch 128 256 ...] [--smoke]
python benchmarks/train_speed.py ... --epochs 0      lists the slowest kernels instead
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn import functional as F

from aacp.accelerate import moments
from aacp.accelerate.capture import CapturedUpdate
from aacp.accelerate.convolutions import fast_convolutions
from aacp.accelerate.norms import FastBatchNorm2d, fast_norms
from aacp.accelerate.update import ConcurrentUpdate
from aacp.accelerate.widening import MULTIPLE, example_inputs, widened
from aacp.data.images import Images
from aacp.train.device_batches import DeviceBatches
from aacp.train.fabric import make_fabric
from aacp.train.recipe import FINETUNE, Recipe
from aacp.train.session import Session
from aacp.train.sources import batches_of
from aacp.user.progress import show_progress
from aacp.zoo.data import load_data
from halving import circumstances, pair

# "captured" is what `fit` does on a GPU; each of the others changes one thing, to measure its effect.
WAYS = (
    "captured",
    "plain",
    "captured, not widened",
    "captured, autocast weights",
    "captured, torch's norms",
    "captured, torch's convolutions",
    "captured, moments by the norm",
    "captured, torch's norms in the teacher",
    "captured, teacher on the same stream",
    "captured, gradients on one stream",
    "captured, channels first",
    "captured, single precision",
    "captured, compiled",
    "eager step",
)


def seconds_of(
    way: str, student: nn.Module, teacher: nn.Module, images: Images, recipe: Recipe, epochs: int
) -> list[float]:
    """The seconds of each timed epoch."""
    if way == "captured, single precision":
        recipe = replace(recipe, precision="32-true")
    fabric = make_fabric(recipe.precision)
    source = batches_of(images, recipe, fabric)
    assert isinstance(source, DeviceBatches)
    if way == "plain":
        return plain(student, teacher, source, recipe, fabric.device, epochs)
    shown = example_inputs(source, fabric)
    is_narrow = way in ("captured, single precision", "captured, not widened")
    multiple = 1 if is_narrow else MULTIPLE
    with show_progress(), widened(student, shown, fabric, multiple) as trained_as:
        if way == "captured, compiled":
            trained_as.network.compile()
        network, torchs = trained_as.network, nullcontext()
        norms = torchs if way == "captured, torch's norms" else fast_norms(network, fabric)
        convolutions = torchs if way == "captured, torch's convolutions" else fast_convolutions(network, fabric)
        is_apart = way == "captured, moments by the norm"
        apart = mock.patch.object(moments, "sums_for", return_value=None) if is_apart else nullcontext()
        with norms, convolutions, apart:
            return epochs_of(way, network, teacher, source, recipe, fabric, epochs)


def epochs_of(
    way: str,
    student: nn.Module,
    teacher: nn.Module,
    source: DeviceBatches,
    recipe: Recipe,
    fabric: Fabric,
    epochs: int,
) -> list[float]:
    """The seconds of each timed epoch of a session."""
    session = Session(student, source, recipe, fabric, teacher, accelerate=way != "eager step")
    captured = session.update.update if isinstance(session.update, CapturedUpdate) else None
    if way == "captured, autocast weights" and isinstance(captured, ConcurrentUpdate):
        captured.half_weights = None
    if way == "captured, teacher on the same stream" and isinstance(captured, ConcurrentUpdate):
        captured.teacher_stream = None
    if way == "captured, gradients on one stream" and isinstance(captured, ConcurrentUpdate) and captured.half_weights:
        captured.half_weights.late_gradients.stream = None
    if way == "captured, torch's norms in the teacher" and session.teacher:
        for layer in (layer for network in session.teacher.networks for layer in network.modules()):
            layer.__class__ = nn.BatchNorm2d if isinstance(layer, FastBatchNorm2d) else layer.__class__
    if way == "captured, channels first":
        student.to(memory_format=torch.contiguous_format)
        for network in session.teacher.networks if session.teacher else []:
            network.to(memory_format=torch.contiguous_format)
        ordered = source.batch
        source.batch = lambda plan: tuple(part.contiguous() for part in ordered(plan))  # type: ignore[method-assign]
    warm_up = session.run_epoch(0)
    print(f"    first epoch {warm_up.seconds:.2f} s, loss {warm_up.loss:.4f}", flush=True)
    if not epochs:
        show_kernels(session, source)
    return [session.run_epoch(1 + number).seconds for number in range(epochs)]


def show_kernels(session: Session, source: DeviceBatches, steps: int = 20) -> None:
    """Print the kernels that take most of the time of some steps."""
    with torch.profiler.profile() as profile:
        for _, (inputs, targets) in zip(range(steps), source.epoch(0), strict=False):
            session.update(inputs, targets, 0.0)
        torch.cuda.synchronize()
    print(profile.key_averages().table(sort_by="self_cuda_time_total", row_limit=40, max_name_column_width=100))


def plain(
    student: nn.Module, teacher: nn.Module, source: DeviceBatches, recipe: Recipe, device: torch.device, epochs: int
) -> list[float]:
    """A common training loop: autocast, torch's SGD, one step after the other."""
    student.to(device).train()
    teacher = copy.deepcopy(teacher).to(device).eval()
    optimiser = torch.optim.SGD(
        student.parameters(),
        recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            with torch.no_grad():
                taught = teacher(inputs)
            outputs = student(inputs)
        soft = F.kl_div(
            F.log_softmax(outputs.float() / recipe.temperature, 1),
            F.softmax(taught.float() / recipe.temperature, 1),
            reduction="batchmean",
        )
        loss = (1 - recipe.distillation) * F.cross_entropy(outputs.float(), targets)
        loss = loss + recipe.distillation * recipe.temperature**2 * soft
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.detach()

    def epoch(number: int, limit: int) -> float:
        begun = time.perf_counter()
        losses = [step(*batch) for _, batch in zip(range(limit), source.epoch(number), strict=False)]
        float(torch.stack(losses).mean())  # waits for the device
        return time.perf_counter() - begun

    epoch(0, 30)  # warm-up
    return [epoch(1 + number, source.steps) for number in range(epochs)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--weights", type=Path, help="public ResNet56 checkpoint; speed does not depend on it")
    parser.add_argument("--network", nargs="+", default=["resnet56", "vgg16"])
    parser.add_argument("--way", nargs="+", default=["captured", "plain"], choices=WAYS)
    parser.add_argument("--batch", nargs="+", type=int, default=[128], help="images in a step")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "train_speed.json")
    parser.add_argument("--smoke", action="store_true", help="a short test of about a minute on a CPU with the digits")
    options = parser.parse_args()
    images = load_data("digits" if options.smoke else f"cifar10:{options.data}", holdout=0.0).train
    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    networks = ["digits_resnet"] if options.smoke else options.network
    for network, batch, way in product(networks, options.batch, options.way):
        recipe = replace(FINETUNE, batch_size=batch)
        weights = options.weights if network == "resnet56" else None
        teacher, student, description = pair(network, weights)
        print(f"{description}, batch {batch}: {way}", flush=True)
        try:
            seconds = seconds_of(way, student, teacher, images, recipe, options.epochs)
        except Exception as error:  # the other ways are still measured
            print(f"    failed: {type(error).__name__}: {error}", flush=True)
            continue
        if not seconds:
            continue
        speed = len(images) // batch * batch / (sum(seconds) / len(seconds))
        row = {"network": network, "way": way, "description": description, "batch": batch}
        row |= {"images": len(images), "seconds": [round(s, 4) for s in seconds], "images per second": round(speed)}
        print(f"    seconds per epoch {row['seconds']}, {row['images per second']:,} images/s", flush=True)
        known = [old for old in known if any(old[key] != row[key] for key in ("network", "way", "batch"))]
        known.append({**row, **circumstances()})
        options.out.write_text(json.dumps({"rows": known}, indent=1) + "\n")


if __name__ == "__main__":
    main()
