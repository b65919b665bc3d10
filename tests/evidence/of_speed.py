"""docs/results.md: speed before and after, the first estimate, public checkpoints and the seconds of costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean, median

from evidence.claims import Claim, Row, says, states, table
from evidence.pages import text_of
from evidence.raw import RESULTS, pct, raw

PAGE = "docs/results.md"


def step(what: str, before: float | None, after: float, goal: str, *files: str) -> Row:
    """A row of the table: what was timed, its seconds, the goal and the raw output."""
    seconds = ("-" if before is None else f"{before:.2f}", f"{after:.2f}")
    return (f"{what}, seconds", *seconds, goal, ", ".join(f"`{file}.json`" for file in files))


def traces() -> list[Row]:
    """Traces of three networks by the code of both dates."""
    files = ("trace_speed_before", "trace_speed_after")
    old, new = (raw(f"{file}.json")["medians"] for file in files)
    names = {"MobileNetV3": "mobilenetv3_large_100", "ResNet50": "resnet50", "HRNet-W18": "hrnet_w18"}
    seconds = {name: [medians[f"timm:{key}"]["cpu"] for medians in (old, new)] for name, key in names.items()}
    return [step(f"trace of {name}, on a processor", *times, "-", *files) for name, times in seconds.items()]


def exports() -> list[Row]:
    """ONNX files by torch's newer exporter, which was used before, and by the older one."""
    timed = zip(("ResNet20", "MobileNetV2"), raw("export_speed.json")["rows"], strict=True)
    found = [(name, row["seconds"]) for name, row in timed]
    return [step(f"ONNX file of {name}", row["newer"], row["older"], "-", "export_speed") for name, row in found]


def estimates() -> list[Row]:
    """Recalibration, estimates of small images, and estimates of large ones."""
    recalibration = median(raw("recalibration_speed.json")["recalibration"])
    what = "recalibration of MobileNetV2, 1,000 images of 224 px, H200"
    rows = [step(what, None, recalibration, "1", "recalibration_speed")]
    files = ("psae_speed_resnet56", "psae_speed_resnet56_twice")
    old, new = (raw(f"{file}.json")["rows"] for file in files)
    what = "1,000 estimates of ResNet56 by the second estimator of a process, H200"
    rows.append(step(what, old["masked, two passes"]["seconds"], new["masked, again"]["seconds"], "24", *files))
    for name, file in (("MobileNetV2", "psae_speed_mobilenet_v2"), ("ResNet50", "psae_speed_resnet50")):
        found = raw(f"{file}.json")["rows"]
        goal = f"{2 * found['compiled forward']['ms'] / 1000:.2f}"
        what = f"an estimate of {name} on 9,096 images of 224 px, H200"
        rows.append(step(what, None, found["masked"]["ms_each"] / 1000, goal, file))
    return rows


def first_estimates() -> list[Row]:
    """The first estimate of a search, by the process that finds nothing compiled and by later ones."""
    before = raw("worker_throughput_again.json")["rows"][0]["start_seconds"]
    cold, *warm = raw("first_estimate.json")["seconds"]
    what, files = "first estimate of a search of ResNet56", ("worker_throughput_again", "first_estimate")
    return [
        step(f"{what}, on a machine that has just been started, H200", before, cold, "10", *files),
        step(f"{what}, H200, later processes", None, fmean(warm), "10", files[1]),
    ]


def epochs() -> list[Row]:
    """An epoch with torch's convolutions, with ours, and with what came after them."""
    files = ("train_speed_convolutions", "train_speed_streams")
    theirs, ours = (median(found["seconds"]) for found in raw(f"{files[0]}.json")["rows"])
    now = median(raw(f"{files[1]}.json")["rows"][0]["seconds"])
    what = "epoch of ResNet56 at -50 %, batch 128, H200, with"
    return [
        step(f"{what} our convolutions", theirs, ours, "1.2", files[0]),
        step(f"{what} streams and sums by convolutions too", ours, now, "1.2", *files),
    ]


@table(PAGE, "step", "before")
def speed_before_and_after() -> list[Row]:
    """The goals are settings, but for those of estimates at 224 px, which are two forward passes."""
    return [*traces(), *exports(), *estimates(), *first_estimates(), *epochs()]


@states(PAGE)
def the_first_estimate_comes_after() -> Iterator[Claim]:
    cold, *warm = raw("first_estimate.json")["seconds"]
    yield says("comes {:.1f} to {:.1f} s after the call", min(warm), max(warm))
    yield says("has just been started it takes {:.1f} s", cold)


@states(PAGE)
def python_compiles_files_for() -> Iterator[Claim]:
    profile = (RESULTS / "first_estimate_profile.txt").read_text()
    (seconds,) = re.findall(r"^ +\d+ +([\d.]+) .*builtins\.compile", profile, re.MULTILINE)
    yield says("has {:.1f} s in which Python compiles the files of torch", float(seconds))


@table(PAGE, "network", "file")
def checkpoints() -> list[Row]:
    """The name of a file ends with the first digits of its sha256, which no raw output has as a whole."""
    found = raw("checkpoints.json")["checkpoints"]
    hashes = dict(re.findall(r"`(resnet\d+-\w{8}\.th)` \| `(\w{64})`", text_of(PAGE)))
    rows = []
    for name, network in (("ResNet20", "resnet20"), ("ResNet56", "resnet56")):
        file = found[network]["file"]
        assert hashes[file].startswith(file.split("-")[1].removesuffix(".th"))
        rows.append((name, f"`{file}`", f"`{hashes[file]}`", f"{pct(found[network]['accuracy'])} %"))
    return rows


@states(PAGE)
def costs_take() -> Iterator[Claim]:
    found = raw("costs.json")["milliseconds for 1,000 structures"]
    both = found["macs and params"]
    words = "MACs and parameters together in {:.2f} ms ({:.2f} to {:.2f})"
    yield says(words, both["median"], both["min"], both["max"])
    yield says("peak activation memory in {:.2f} ms", found["activation_bytes"]["median"])
