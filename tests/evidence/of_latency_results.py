"""docs/results.md, latency: predictions of tables, limits on latency, and widths at steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean, median, stdev
from typing import Any

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import pct, raw

PAGE = "docs/results.md"
PREDICTED = (
    ("ResNet20", "torch", "resnet20_torch_cpu_1"),
    ("ResNet20", "ONNX Runtime", "resnet20_onnxruntime_cpu_1"),
    ("MobileNetV2, 224 px", "torch", "mobilenet_v2_torch_cpu_1"),
    ("MobileNetV2, 224 px", "ONNX Runtime", "mobilenet_v2_onnxruntime_cpu_1"),
    ("VGG16", "torch", "vgg16_torch_cpu_1"),
    ("VGG16", "ONNX Runtime", "vgg16_onnxruntime_cpu_1"),
    ("ResNet20, batch 2048", "H200", "resnet20_torch_cuda_2048"),
    ("MobileNetV2, 224 px, batch 256", "H200", "mobilenet_v2_torch_cuda_256"),
    ("VGG16, batch 512", "H200", "vgg16_torch_cuda_512"),
)

not_measured(PAGE, Origin.SETTING, "at 10 to 80 % fewer MACs")


def predicted(file: str) -> Any:
    """What latency_prediction.py measured of 30 structures."""
    found = raw(f"latency_prediction_{file}.json")
    assert found["error"]["structures"] == len(found["measured"]) == 30
    return found


@table(PAGE, "network", "runtime")
def latency_prediction() -> list[Row]:
    rows = []
    for network, runtime, file in PREDICTED:
        found = predicted(file)
        error = found["error"]
        milliseconds = 1e3 * found["seconds_unpruned"]
        shown = f"{milliseconds:.{1 if milliseconds >= 10 else 2}f} ms"
        median_error, highest, noise = (f"{pct(error[name], 1)} %" for name in ("median", "highest", "noise"))
        rows.append((network, runtime, shown, median_error, highest, f"{error['rank_correlation']:.3f}", noise))
    return rows


@states(PAGE)
def tables_of_less_time_or_smaller_batches_are_worse() -> Iterator[Claim]:
    error = predicted("mobilenet_v2_torch_cpu_1_one_second")["error"]
    words = "the error was {} % and the rank correlation {:.3f}"
    yield says(words, pct(error["median"], 1), error["rank_correlation"])
    error = predicted("mobilenet_v2_torch_cuda_64")["error"]
    words = "the ranking was lost ({} % and {:.3f},"
    yield says(words, pct(error["median"], 1), error["rank_correlation"])


@states(PAGE)
def tables_on_the_gpu_were_made_of() -> Iterator[Claim]:
    commands = [predicted(file)["command"] for _, runtime, file in PREDICTED if runtime == "H200"]
    ((structures, seconds),) = {re.findall(r"--learn (\d+) --seconds ([\d.]+)", command)[0] for command in commands}
    yield says("On the GPU there were {} structures of {} s", structures, seconds)


@states(PAGE)
def files_with_a_limit_on_latency_take() -> Iterator[Claim]:
    found = raw("latency_limits.json")
    limit = 1 - found["limits"]["latency"]
    ratios = [seed["latency"] for seed in found["seeds"]]
    assert len(ratios) == 5
    assert max(ratios) < limit
    yield says("all five exported files took {:.2f} to {:.2f} of its time", min(ratios), max(ratios))
    evaluations, images = re.findall(r"--evaluations (\d+) --images (\d+)", found["command"])[0]
    yield says("with {} evaluations on {} enlarged images of CIFAR-10", evaluations, images)
    words = "(limit {:.2f}; {:.3f} ± {:.3f} over five seeds"
    yield says(words, limit, fmean(ratios), stdev(ratios))
    upper = max(seed["latency_quartiles"][1] for seed in found["seeds"])
    yield says("the largest upper quartile of the turns is {:.3f}", upper)


@states(PAGE)
def less_time_takes_fewer_macs() -> Iterator[Claim]:
    seeds = raw("latency_limits.json")["seeds"]
    latency, macs, params = (fmean(seed[cost] for seed in seeds) for cost in ("latency", "macs", "params"))
    words = "On average MACs fell to {:.2f} and parameters to {:.2f}: {} % less time took {} % fewer MACs"
    yield says(words, macs, params, pct(1 - latency, 0), pct(1 - macs, 0))


@table(PAGE, "network", "any widths")
def widths_at_steps() -> list[Row]:
    rows = []
    for name, network in (("ResNet20", "resnet20"), ("VGG16", "vgg16")):
        found = next(row for row in raw("latency_steps.json")["rows"] if row["network"] == network)
        ratios = [checked["ratio"]["median"] for checked in found["checked"]]
        assert len(ratios) == 10
        parts = (ratios[:5], ratios[5:])
        cells = [f"{median(part):.2f} ({min(part):.2f} to {max(part):.2f})" for part in parts]
        rows.append((name, *cells, f"{found['odd_over_auto']:.2f}"))
    return rows
