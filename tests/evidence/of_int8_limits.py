"""docs/int8.md: steps, random structures, and limits on latency."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from statistics import median

from aacp.latency.defaults import STRUCTURES
from evidence.claims import Claim, Row, says, states, table
from evidence.raw import RESULTS, in_words, pct
from evidence.runtime_results import (
    NAMES,
    TITLES,
    error_of,
    fastest_share,
    limit,
    medians_of,
    option_of,
    ratios_of,
    row_of,
)

PAGE = "docs/int8.md"
MEASURED = (
    ("onnxruntime", "resnet20", "default"),
    ("onnxruntime", "resnet20", "found"),
    ("openvino", "resnet20", "default"),
    ("openvino", "resnet20", "found"),
    ("executorch", "resnet20", "default"),
    ("onnxruntime", "mobilenet_v2", "default"),
    ("onnxruntime", "mobilenet_v2", "found"),
    ("openvino", "mobilenet_v2", "default"),
    ("openvino", "mobilenet_v2", "found"),
    ("executorch", "mobilenet_v2", "default"),
)


def pairs_of(network: str) -> list[list[float]]:
    """The numbers of each pair of structures in the output of int8_steps.py, without their intervals."""
    text = (RESULTS / f"int8_steps_{network}.txt").read_text()
    lines = [line for line in text.splitlines() if line.startswith("0.")]
    return [[float(cell.split(" (")[0]) for cell in line.split(" | ")] for line in lines]


def steps_of(network: str) -> dict[str, int]:
    """The steps that int8_steps.py found."""
    (line,) = [
        line for line in (RESULTS / f"int8_steps_{network}.txt").read_text().splitlines() if "int8: steps" in line
    ]
    steps: dict[str, int] = ast.literal_eval(line.partition("steps ")[2])
    return steps


@table(PAGE, "network", "pairs")
def structures_in_steps_and_others() -> list[Row]:
    rows = []
    for title, network in (("MobileNetV2, 224 x 224 pixels", "mobilenet_v2"), ("ResNet20", "resnet20")):
        pairs = pairs_of(network)
        shares, times, ignoring = ([pair[column] for pair in pairs] for column in (0, 2, 3))
        medians = (median(times), median(ignoring), median(pair[4] for pair in pairs))
        macs = f"{min(shares):.2f} to {max(shares):.2f}"
        rows.append((title, str(len(pairs)), macs, *(f"{each:.2f}" for each in medians)))
    return rows


@states(PAGE)
def fewer_macs_do_not_make_a_network_faster() -> Iterator[Claim]:
    pairs = pairs_of("mobilenet_v2")
    assert min(pair[3] for pair in pairs) > 1 > 2 * max(pair[0] for pair in pairs)
    yield says("than the unpruned network in all {} pairs, with less than half of its MACs", in_words(len(pairs)))
    pairs = pairs_of("resnet20")
    shares, times = ([pair[column] for pair in pairs] for column in (0, 2))
    words = "in the steps, with between {} and {} % of the MACs, took between {:.2f} and {:.2f} of the time of the"
    yield says(words, pct(min(shares), 0), pct(max(shares), 0), min(times), max(times))
    whole = [row_of("resnet20", "onnxruntime", "int8", steps)["seconds_unpruned"] for steps in ("default", "found")]
    yield says("the unpruned network, which runs in {:.1f} to {:.1f} ms", 1000 * min(whole), 1000 * max(whole))


@states(PAGE)
def two_searches_for_steps_disagree() -> Iterator[Claim]:
    every = [*steps_of("mobilenet_v2").values(), *steps_of("resnet20").values()]
    yield says("Steps of {} to {} channels were found.", min(every), max(every))
    found = row_of("mobilenet_v2", "onnxruntime", "int8", "found")["steps"]
    (only,) = set(found.values())
    *small, large = sorted(set(steps_of("mobilenet_v2").values()))
    words = "one found {} and {} channels (`int8_steps_mobilenet_v2.txt`), the other {} in every group"
    yield says(words, ", ".join(map(str, small)), large, only)
    found = row_of("resnet20", "onnxruntime", "int8", "found")["steps"]
    pairs = [(step, found[group]) for group, step in steps_of("resnet20").items() if step != found[group]]
    ((one, other),) = set(pairs)
    words = "For ResNet20 {} groups have {} channels in one and {} in the other"
    yield says(words, in_words(len(pairs)), one, other)


@states(PAGE)
def random_structures_may_be_slower() -> Iterator[Claim]:
    times = row_of("mobilenet_v2", "onnxruntime", "int8")["measured"]
    slower = sum(time > 1 for time in times)
    yield says("{} of {} random structures of MobileNetV2 took longer than the unpruned network", slower, len(times))
    words = (
        "Of {} random structures of MobileNetV2 at 224 x 224 pixels in the default steps, an eighth of each width, {} "
        "took longer than the unpruned network in ONNX Runtime in int8: between {:.2f} and {:.2f} of its time"
    )
    yield says(words, len(times), slower, min(times), max(times))
    times = row_of("mobilenet_v2", "onnxruntime", "float32")["measured"]
    yield says("the same structures took between {:.2f} and {:.2f} of it", min(times), max(times))


def what_a_limit_came_to(network: str, runtime: str, steps: str) -> str:
    """The times of three results, or the most that can be saved."""
    row = row_of(network, runtime, "int8", steps)
    if "failure" not in row:
        return medians_of(row)
    return f"rejected: the fastest structure saves {pct(1 - float(fastest_share(row)), 1)} %"


@table(PAGE, "runtime", "network")
def errors_of_tables_and_results() -> list[Row]:
    rows = []
    for runtime, network, steps in MEASURED:
        error = error_of(row_of(network, runtime, "int8", steps))
        rows.append((TITLES[runtime], NAMES[network], steps, *error, what_a_limit_came_to(network, runtime, steps)))
    return rows


def met(network: str, runtime: str, steps: str) -> list[bool]:
    """Which results met the limit when they were timed again."""
    return [seed["met"] for seed in row_of(network, runtime, "int8", steps)["seeds"]]


@states(PAGE)
def found_steps_have_no_advantage_with_a_limit() -> Iterator[Claim]:
    both = [
        [each for runtime in ("onnxruntime", "openvino") for each in met("mobilenet_v2", runtime, steps)]
        for steps in ("default", "found")
    ]
    counts = [in_words(count) for each in both for count in (sum(each), len(each))]
    words = "{} of {} met it in the default steps when they were timed again, and {} of {} in steps that were found"
    yield says(words, *counts)


@states(PAGE)
def the_second_timing_confirms_results_of_mobilenet() -> Iterator[Claim]:
    in_onnxruntime = [*met("mobilenet_v2", "onnxruntime", "default"), *met("mobilenet_v2", "onnxruntime", "found")]
    in_openvino = met("mobilenet_v2", "openvino", "default")
    assert all(in_onnxruntime + in_openvino)
    words = "confirms this for the {} results in ONNX Runtime, and for the {} in OpenVINO in the default steps"
    yield says(words, in_words(len(in_onnxruntime)), in_words(len(in_openvino)))
    quick, slow = (row_of("mobilenet_v2", runtime, "int8", "found")["steps"] for runtime in ("onnxruntime", "openvino"))
    (step,) = set(quick.values())
    words = "{} channels in every group for ONNX Runtime, {} to {} for OpenVINO"
    yield says(words, step, min(slow.values()), max(slow.values()))


@states(PAGE)
def some_medians_of_mobilenet_are_over_the_limit() -> Iterator[Claim]:
    ratios = ratios_of(row_of("mobilenet_v2", "openvino", "int8", "found"))
    missed = sum(ratio["median"] > limit() for ratio in ratios)
    assert all(ratio["lower"] < limit() < ratio["upper"] for ratio in ratios)
    words = (
        "In OpenVINO {} of {} missed {:.2f} by their medians in the steps that were found, "
        "and the intervals of all {} contain {:.2f}."
    )
    yield says(words, in_words(missed), in_words(len(ratios)), limit(), in_words(len(ratios)), limit())
    row = row_of("mobilenet_v2", "executorch", "int8")
    ratios = ratios_of(row)
    assert all(ratio["median"] < limit() for ratio in ratios)
    unsure = sum(ratio["upper"] > limit() for ratio in ratios)
    words = "In ExecuTorch the medians of all {} are below {:.2f}, and the interval of {} contains it."
    yield says(words, in_words(len(ratios)), limit(), in_words(unsure))
    yield says("Its table was made of {} structures instead of {}", option_of(row, "--learn"), STRUCTURES)


@states(PAGE)
def limits_on_resnet20_are_met_in_executorch_alone() -> Iterator[Claim]:
    ratios = ratios_of(row_of("resnet20", "executorch", "int8"))
    (missed,) = [ratio for ratio in ratios if ratio["median"] > limit()]
    assert missed["lower"] < limit() < missed["upper"]
    words = "one of the {} results missed it in the second timing, and its interval contains {:.2f}"
    yield says(words, in_words(len(ratios)), limit())
    times = row_of("resnet20", "onnxruntime", "int8", "found")["measured"]
    words = "{} unseen structures of ResNet20 in ONNX Runtime in the steps that were found, the fastest saved {} %"
    yield says(words, len(times), pct(1 - min(times), 1))
