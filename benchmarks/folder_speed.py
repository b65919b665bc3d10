"""Images per second of evaluation, recalibration and training on a folder of pictures, beside plain torchvision loops.

The folder holds hard links to synthetic pictures of 500 x 375 pixels, which decode like photographs. Every way is timed
in the same process, in turns, `--repeats` times, with the same number of workers:

- evaluate: accuracy on the test images, streamed as in aacp evaluate; plain: torchvision's transforms on a DataLoader
  of normalised float32 images. Also once they are kept as bytes, as the hold-out of a search is.
- recalibrate: the statistics of all batch norms over the calibration images, kept as bytes.
- train: SGD steps of two epochs by aacp.fit, of which the first includes the preparation (kernels are compiled, the
  step is captured); plain: one epoch of the same in a loop over a DataLoader, with autocast on a GPU.
- decode: the workers alone, without a network; and decoders on one core: Pillow as aacp uses it, torchvision's v2
  transforms on a PIL image, and torchvision's decode_jpeg with v2 transforms, where it is installed.

Raw times, versions, hardware and seeds: results/folder_speed.json.

    python benchmarks/folder_speed.py [--images 20000] [--network resnet50] [--batch 256] [--device cuda] [--out FILE]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import aacp
from aacp.data.devices import usable_cores
from aacp.data.memory import worker_count
from aacp.runs.provenance import Provenance
from aacp.zoo._torchvision import import_torchvision
from aacp.zoo.folders import MEAN, STD, ImageFolder, image_folder
from aacp.zoo.pictures import centred_crop, random_crop
from synthetic_pictures import write_folder, write_pictures

Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Plain(Dataset[tuple[torch.Tensor, int]]):
    """The files of a folder through torchvision's transforms, as its reference scripts read them."""

    folder: ImageFolder
    transform: Callable[[Any], torch.Tensor]

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        with Image.open(self.folder.files[index]) as picture:
            return self.transform(picture.convert("RGB")), int(self.folder.labels[index])


def transforms(size: int, train: bool) -> Callable[[Any], torch.Tensor]:
    """The usual transforms of ImageNet."""
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    crop = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    middle = [v2.Resize(round(size * 8 / 7)), v2.CenterCrop(size)]
    normalised = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose([*(crop if train else middle), *normalised])  # type: ignore[no-any-return]


def plain_loader(folder: ImageFolder, options: argparse.Namespace, train: bool) -> DataLoader[Any]:
    return DataLoader(
        Plain(folder, transforms(options.size, train)),
        options.batch,
        shuffle=train,
        drop_last=train,
        num_workers=usable_cores(),
        pin_memory=options.device == "cuda",
        generator=torch.Generator().manual_seed(0),
    )


def autocast(device: torch.device) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def plain_accuracy(network: nn.Module, loader: Iterable[Any], device: torch.device) -> float:
    right = torch.zeros((), device=device)
    total = 0
    with torch.no_grad():
        for inputs, labels in loader:
            outputs = network(inputs.to(device, non_blocking=True))
            right += (outputs.argmax(1) == labels.to(device, non_blocking=True)).sum()
            total += len(labels)
    return float(right) / total


def plain_training(network: nn.Module, loader: Iterable[Any], device: torch.device) -> None:
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    network = network.to(device).to(memory_format=layout).train()  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    for inputs, labels in loader:
        with autocast(device):
            outputs = network(inputs.to(device, non_blocking=True).to(memory_format=layout))
            loss = nn.functional.cross_entropy(outputs, labels.to(device, non_blocking=True))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()


def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """The seconds of some work, and its result."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return round(time.perf_counter() - begun, 4), result


def ways(
    options: argparse.Namespace, data: aacp.Data, device: torch.device
) -> dict[str, tuple[int, Callable[[], Any]]]:
    """What is timed, by name, with its number of images."""
    network = aacp.build_model(f"torchvision:{options.network}").to(device).eval()
    train, test = data.train, data.test
    assert isinstance(train, ImageFolder)
    assert isinstance(test, ImageFolder)
    held = aacp.Batches.of(data.holdout, device=device)
    calibration = aacp.Batches.of(train.unaugmented(), images=options.calibration, device=device)
    recipe = aacp.Recipe(epochs=2, batch_size=options.batch, lr=0.01)
    steps = len(train) // options.batch * options.batch
    fresh = lambda: aacp.build_model(f"torchvision:{options.network}")  # noqa: E731
    return {
        "decode, aacp": (len(test), lambda: drained(aacp.Batches.of(test, keep=False))),
        "decode, plain": (len(test), lambda: drained(plain_loader(test, options, train=False))),
        "decode for training, aacp": (steps, lambda: drained(training_batches(train, options))),
        "decode for training, plain": (steps, lambda: drained(plain_loader(train, options, train=True))),
        "evaluate, aacp": (len(test), lambda: aacp.accuracy(network, aacp.Batches.of(test, device=device, keep=False))),
        "evaluate, plain": (
            len(test),
            lambda: plain_accuracy(network, plain_loader(test, options, train=False), device),
        ),
        "evaluate kept bytes, aacp": (held.images, lambda: aacp.accuracy(network, held)),
        "recalibrate, aacp": (options.calibration, lambda: aacp.recalibrate(network, calibration)),
        "train two epochs, aacp": (2 * steps, lambda: aacp.fit(fresh(), train, recipe, device=device)),
        "train, plain": (steps, lambda: plain_training(fresh(), plain_loader(train, options, train=True), device)),
    }


def training_batches(train: ImageFolder, options: argparse.Namespace) -> DataLoader[Any]:
    images = train.as_bytes(0, 0)
    return DataLoader(images, options.batch, shuffle=True, drop_last=True, num_workers=worker_count(len(train)))


def drained(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def decoders(files: list[Path], size: int) -> dict[str, float]:
    """Images per second of each decoder on one core, cropped and resized at random as for training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    v2 = transforms(size, train=True)
    plain = Plain(ImageFolder(files, torch.zeros(len(files), dtype=torch.int64), ("a",)), v2)  # type: ignore[arg-type]
    found: dict[str, Callable[[int], Any]] = {
        "Pillow, as aacp uses it, random crop": lambda i: random_crop(files[i], size, i),
        "Pillow, as aacp uses it, centred crop": lambda i: centred_crop(files[i], size),
        "Pillow, torchvision v2 transforms": lambda i: plain[i],
    }
    io = importlib.import_module("torchvision.io")
    v2_module = importlib.import_module("torchvision.transforms.v2")
    tensor_steps = v2_module.Compose([v2_module.RandomResizedCrop(size), v2_module.RandomHorizontalFlip()])
    read = getattr(io, "decode_jpeg", None)
    if read is not None:
        found["torchvision decode_jpeg alone"] = lambda i: read(io.read_file(str(files[i])))
        found["torchvision decode_jpeg, v2 transforms"] = lambda i: tensor_steps(read(io.read_file(str(files[i]))))
    speeds = {}
    for name, decode in found.items():
        try:
            decode(0)
        except Exception as error:  # torchvision without its compiled decoders
            speeds[name] = -1.0
            print(f"{name}: not available ({type(error).__name__})", file=sys.stderr)
            continue
        begun = time.perf_counter()
        for number in range(len(files)):
            decode(number)
        speeds[name] = round(len(files) / (time.perf_counter() - begun), 1)
    torch.set_num_threads(threads)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=20_000, help="training images; a quarter as many test images")
    parser.add_argument("--pictures", type=int, default=300, help="different pictures")
    parser.add_argument("--calibration", type=int, default=1024)
    parser.add_argument("--holdout", type=int, default=2000)
    parser.add_argument("--network", default="resnet50", help="name of a torchvision network")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*not writable.*")
    device = torch.device(options.device)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        pictures = write_pictures(root / "pictures", options.pictures)
        write_folder(root / "train", pictures, 100, options.images)
        write_folder(root / "val", pictures, 100, max(100, options.images // 4))
        data = image_folder(root, holdout=options.holdout, size=options.size)
        speeds = decoders(pictures, options.size)
        measured = ways(options, data, device)
        seconds: Seconds = {name: [] for name in measured}
        epochs: list[list[dict[str, Any]]] = []
        for number in range(options.repeats):
            for name, (_, work) in measured.items():
                with aacp.show_progress():
                    elapsed, result = timed(work, device)
                seconds[name].append(elapsed)
                if isinstance(result, aacp.Trained):
                    epochs.append([epoch.to_json() for epoch in result.epochs])
                print(f"repeat {number}, {name}: {seconds[name][-1]} s", file=sys.stderr, flush=True)
    rates = {name: round(measured[name][0] / min(times), 1) for name, times in seconds.items()}
    text = json.dumps(
        {
            **asdict(Provenance.of(" ".join(["python", *sys.argv]))),
            "torch": torch.__version__,
            "torchvision": importlib.import_module("torchvision").__version__,
            "pillow": importlib.import_module("PIL").__version__,
            "system": platform.platform(),
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            "cores": os.cpu_count(),
            "workers": usable_cores(),
            "seed": 0,
            "settings": {name: value for name, value in vars(options).items() if name != "out"},
            "images": {name: images for name, (images, _) in measured.items()},
            "seconds": seconds,
            "epochs_of_training": epochs,
            "images_per_second_of_the_fastest_repeat": rates,
            "images_per_second_of_decoders_on_one_core": speeds,
        },
        indent=1,
    )
    print(text)
    if options.out is not None:
        options.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
