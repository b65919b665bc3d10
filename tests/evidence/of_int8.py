"""docs/int8.md: accuracies, and the times of operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import pct, raw
from evidence.runtime_results import TITLES

PAGE = "docs/int8.md"
CLASSIFIERS = {"resnet20": "ResNet20", "resnet56": "ResNet56", "torchvision:mobilenet_v2": "MobileNetV2"}
TEST_IMAGES = 10_000  # of CIFAR-10
PICTURES = 1_000  # of ImageNet

not_measured(
    PAGE,
    Origin.SETTING,
    "With signed ones, ONNX Runtime 1.31 ran a part",
    "OpenVINO 2026.4 decides which layers run in int8",
    "searched for within 50 % of its MACs",
)


def standard_error(accuracy: float, images: int) -> str:
    """The standard error of an accuracy in points."""
    return pct(((1 - accuracy) * accuracy / images) ** 0.5)


def unpruned_classifiers() -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of networks that were not pruned, by name and number of calibration images; 0 is float."""
    rows = [*raw("int8_accuracy.json")["rows"], *raw("int8_accuracy_imagenet.json")["rows"]]
    return {(CLASSIFIERS[row["network"]], row["calibration_images"]): row for row in rows}


@table(PAGE, "network", "float")
def accuracies_of_unpruned_networks() -> list[Row]:
    found = unpruned_classifiers()
    return [
        (
            name,
            *(f"{pct(found[name, images]['test_accuracy'])} %" for images in (0, 512, 32)),
            *(f"{found[name, images]['file_bytes']:,} bytes" for images in (0, 512)),
        )
        for name in CLASSIFIERS.values()
    ]


@states(PAGE)
def accuracies_of_unpruned_networks_are_as_certain() -> Iterator[Claim]:
    on_cifar = [standard_error(row["test_accuracy"], TEST_IMAGES) for row in raw("int8_accuracy.json")["rows"]]
    words = "`benchmarks/results/int8_accuracy.json`). The standard error of an accuracy is {} to {} points."
    yield says(words, min(on_cifar), max(on_cifar))
    found = unpruned_classifiers()
    exact, int8 = (found["MobileNetV2", images]["test_accuracy"] for images in (0, 512))
    words = "{:,} validation pictures (standard error {:.1f} points;"
    yield says(words, PICTURES, float(standard_error(exact, PICTURES)))
    yield says("The network loses {:.1f} points in int8", 100 * (exact - int8))


def pruned_rows() -> list[dict[str, Any]]:
    """The rows of a pruned ResNet20 in three runtimes, in float and in int8."""
    rows: list[dict[str, Any]] = raw("int8_accuracy_pruned.json")["rows"]
    assert all(row["network"] == "resnet20" and 0.45 < row["macs_left"] <= 0.5 for row in rows)
    return rows


@table(PAGE, "runtime", "float")
def accuracies_of_a_pruned_network() -> list[Row]:
    found = {(row["runtime"].split()[0], row["calibration_images"]): row for row in pruned_rows()}
    rows = []
    for runtime in ("onnxruntime", "openvino", "executorch"):
        both = [found[runtime, images] for images in (0, 512)]
        accuracies = [f"{pct(row['test_accuracy'])} %" for row in both]
        rows.append((TITLES[runtime], *accuracies, *(f"{row['file_bytes']:,} bytes" for row in both)))
    return rows


@states(PAGE)
def a_pruned_network_loses_little() -> Iterator[Claim]:
    rows = pruned_rows()
    (exact,) = {row["test_accuracy"] for row in rows if row["precision"] == "float32"}
    lost = [exact - row["test_accuracy"] for row in rows if row["precision"] == "int8"]
    error = standard_error(exact, TEST_IMAGES)
    yield says("`int8_accuracy_pruned.json`). The standard error of an accuracy is {} points.", error)
    words = "int8 loses between {} and {} points of {} %"
    yield says(words, pct(min(lost)), pct(max(lost)), pct(exact))


@states(PAGE)
def a_conversion_for_executorch_takes_long() -> Iterator[Claim]:
    (seconds,) = [
        row["export_seconds"]
        for row in pruned_rows()
        if (row["runtime"].split()[0], row["precision"]) == ("executorch", "int8")
    ]
    yield says("Quantising and converting a pruned ResNet20 took {:.0f} s (`int8_accuracy_pruned.json`)", seconds)


def operators() -> dict[tuple[str, str], dict[str, Any]]:
    """The microseconds of the operators of ResNet20, by widths and precision."""
    rows = raw("int8_operators.json")["networks"]
    return {(row["widths"], row["precision"]): row for row in rows}


@states(PAGE)
def convolutions_take_most_of_the_time() -> Iterator[Claim]:
    whole = operators()["unpruned", "int8"]

    def share(*kinds: str) -> str:
        return pct(sum(whole["operators"][kind] for kind in kinds) / whole["total"], 0)

    words = (
        "Convolutions take {} % of the time of the unpruned network in int8, quantising and dequantising take {} %, "
        "and the slices and pads of the shortcuts {} %"
    )
    yield says(words, share("QLinearConv"), share("QuantizeLinear", "DequantizeLinear"), share("Slice", "Pad"))


@states(PAGE)
def convolutions_of_half_the_width_are_not_faster_in_int8() -> Iterator[Claim]:
    rows = operators()
    times = [
        rows[widths, precision]["operators"][kind]
        for precision, kind in (("int8", "QLinearConv"), ("float32", "Conv"))
        for widths in ("halved", "unpruned")
    ]
    words = "take {:.0f} microseconds in place of {:.0f} in int8, but {:.0f} in place of {:.0f} in float32"
    yield says(words, *times)


@table(PAGE, "channels", "microseconds in float32")
def times_of_single_convolutions() -> list[Row]:
    rows = raw("int8_operators.json")["convolutions"]
    times = {row["channels"]: row for row in rows}
    assert all(times[width]["int8"] > max(times[16]["int8"], times[width]["float32"]) for width in (4, 8, 12))
    return [(str(row["channels"]), *(f"{row[name]:.0f}" for name in ("float32", "int8"))) for row in rows]
