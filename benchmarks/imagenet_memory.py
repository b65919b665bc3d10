"""Claim: aacp prune of ResNet50 on a folder of 20 GB needs less than 4 GB of memory on a CPU.

The folder holds hard links to 300 synthetic pictures of 500 x 375 pixels: its bytes pretend, its decoding is real. The
memory is that of all processes of the command, read four times a second: the sum of their proportional set sizes, in
which memory that several processes share counts once, and of their resident set sizes, in which it counts for each.
The run is interrupted when it has trained for some minutes, since an epoch would take a day. The time to list a folder
of as many files as ImageNet has is measured beside it. Numbers, versions, hardware: results/imagenet_memory.json.

    python benchmarks/imagenet_memory.py [--gigabytes 20] [--calibration 128] [--holdout 256] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from aacp.runs.provenance import Provenance
from aacp.zoo.listing import list_images
from synthetic_pictures import write_folder, write_pictures

IMAGENET = 1_281_167  # training images
INTERRUPTED = 130


def processes_of(root: int) -> list[int]:
    """A process and all processes that it started, directly or not."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def memory_of(process: int) -> dict[str, int]:
    """The resident and proportional set size of a process in bytes, or nothing if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith(("Rss:", "Pss:"))}
    return {name: sizes.get(name, 0) for name in ("Rss", "Pss")}


def watched(arguments: list[str], seconds: float) -> dict[str, Any]:
    """Run a command of aacp, measure its memory, and interrupt it when it has trained for some seconds."""
    print("$ aacp", *arguments, file=sys.stderr)
    begun = time.perf_counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets programs in the background ignore it
    command = subprocess.Popen([sys.executable, "-m", "aacp.cli", *arguments], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    reader = threading.Thread(target=_collect, args=(command.stderr, said))
    reader.start()
    peaks = {"Rss": 0, "Pss": 0}
    most = 0
    trained_from = None
    while command.poll() is None:
        found = [memory_of(process) for process in processes_of(command.pid)]
        most = max(most, len(found))
        for name in peaks:
            peaks[name] = max(peaks[name], sum(sizes.get(name, 0) for sizes in found))
        if trained_from is None and any(line.startswith("training:") for line in said):
            trained_from = time.perf_counter()
            before = dict(peaks)
        if trained_from is not None and time.perf_counter() - trained_from > seconds:
            command.send_signal(signal.SIGINT)
            seconds = float("inf")
        time.sleep(0.25)
    reader.join()
    return {
        "command": " ".join(["aacp", *arguments]),
        "seconds": round(time.perf_counter() - begun, 1),
        "exit_code": command.returncode,
        "peak_proportional_gb": round(peaks["Pss"] / 1e9, 3),
        "peak_resident_gb": round(peaks["Rss"] / 1e9, 3),
        "peak_proportional_gb_before_training": None if trained_from is None else round(before["Pss"] / 1e9, 3),
        "most_processes": most,
        "progress": said,
    }


def _collect(stream: Any, lines: list[str]) -> None:
    for line in stream:
        sys.stderr.write(line)
        lines.append(line.rstrip())


def listing(folder: Path, pictures: list[Path], images: int) -> dict[str, Any]:
    """The seconds to list a folder of 1,000 classes, right after it was written."""
    write_folder(folder, pictures, 1000, images)
    begun = time.perf_counter()
    files, _, _ = list_images(folder)
    seconds = time.perf_counter() - begun
    held = len(files.block) + files.starts.nbytes + files.ends.nbytes
    return {"images": len(files), "seconds": round(seconds, 2), "megabytes": round(held / 1e6, 1)}


def pruned(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Prune: score the unpruned network, trace, search, recalibrate, and fine-tune for a while."""
    return watched(
        [
            "prune", "torchvision:resnet50", "--data", f"imagefolder:{root}", "--prune-macs", "0.5", "--holdout",
            str(options.holdout), "--calibration", str(options.calibration), "--evaluations", str(options.evaluations),
            "--epochs", "1", "--batch-size", str(options.batch), "--no-export", "--device", "cpu", "--run",
            str(root / "run"),
        ],
        options.seconds,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--test", type=int, default=200, help="test images")
    parser.add_argument("--holdout", type=int, default=256)
    parser.add_argument("--calibration", type=int, default=128)
    parser.add_argument("--evaluations", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="images in a step of training")
    parser.add_argument("--seconds", type=float, default=180, help="of training, after which the run is interrupted")
    parser.add_argument("--listed", type=int, default=IMAGENET, help="files of the listing")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        pictures = write_pictures(root / "pictures", options.pictures)
        mean = sum(file.stat().st_size for file in pictures) / len(pictures)
        images = round(options.gigabytes * 1e9 / mean)
        size = write_folder(root / "train", pictures, options.classes, images)
        write_folder(root / "val", pictures, options.classes, options.test)
        print(f"{images:,} training images, {size / 1e9:.1f} GB", file=sys.stderr)
        measured = pruned(options, root)
        listed = listing(root / "listed", pictures, options.listed)
        text = json.dumps(
            {
                **asdict(Provenance.of(" ".join(["python", *sys.argv]))),
                "torch": torch.__version__,
                "system": platform.platform(),
                "cores": os.cpu_count(),
                "training_images": images,
                "training_gb": round(size / 1e9, 2),
                "test_images": options.test,
                "seed": 0,
                "measured": measured,
                "listing": listed,
            },
            indent=1,
        ).replace(place, "FOLDER")
    print(text)
    if options.out is not None:
        options.out.write_text(f"{text}\n")
    assert measured["exit_code"] == INTERRUPTED, measured


if __name__ == "__main__":
    main()
