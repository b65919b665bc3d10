"""docs/runtimes.md: what became of every network, tables and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from aacp.latency.defaults import STRUCTURES
from aacp.latency.runtimes.openvino_pieces import INTERRUPTED
from aacp.latency.runtimes.registry import BUILT_IN, UNSUPPORTED
from evidence.claims import Claim, Row, says, states, table
from evidence.raw import in_words, pct, raw
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

PAGE = "docs/runtimes.md"
MEASURED = (
    ("onnxruntime", "resnet20"),
    ("openvino", "resnet20"),
    ("executorch", "resnet20"),
    ("onnxruntime", "mobilenet_v2"),
    ("openvino", "mobilenet_v2"),
    ("executorch", "mobilenet_v2"),
    ("ncnn", "mobilenet_v2"),
    ("torch", "resnet20"),
    ("torch", "mobilenet_v2"),
    ("cuda-graphs", "resnet20"),
    ("torch-compile", "mobilenet_v2"),
)


def outcome(network: str, runtime: str, precision: str) -> str:
    """What became of a network in a runtime: how far its file is from torch, or the first sentence of an error."""
    for row in raw(f"runtime_outputs_{network}.json")["rows"]:
        if (row["runtime"].split()[0], row["precision"]) == (runtime, precision) and "failure" not in row:
            agreed = f"same class {pct(row['same_class'], 1)} %"
            if precision == "int8":
                return f"likeness {row['likeness']:.3f}, {agreed}"
            return f"difference {row['relative_difference']:.0e}, {agreed}"
    row = row_of(network, runtime, precision)
    if "largest_difference" in row:  # a failure comes later then, such as a limit that cannot be met
        return "runs without a file"
    return str(re.split(r"\. (?=[A-Z])", row["failure"])[0].rstrip("."))


@table(PAGE, "runtime", "precision")
def every_network_in_every_runtime() -> list[Row]:
    return [
        (f"`{runtime}`", precision, *(outcome(network, runtime, precision) for network in NAMES))
        for runtime, precision in product([*BUILT_IN, *UNSUPPORTED], ("float32", "int8"))
    ]


@table(PAGE, "runtime", "network")
def errors_of_tables_and_results() -> list[Row]:
    rows = []
    for runtime, network in MEASURED:
        row = row_of(network, runtime, "float32")
        rows.append((TITLES.get(runtime, runtime), NAMES[network], *error_of(row), medians_of(row)))
    return rows


@states(PAGE)
def some_results_missed_their_limit_when_they_were_timed_again() -> Iterator[Claim]:
    every = [ratio for runtime, network in MEASURED for ratio in ratios_of(row_of(network, runtime, "float32"))]
    missed = [ratio for ratio in every if ratio["median"] > limit()]
    assert len(missed) == 7
    yield says("by its medians, {} of the {} results missed {:.2f}", in_words(len(missed)), len(every), limit())
    unsure = [ratio for ratio in missed if ratio["lower"] < limit() < ratio["upper"]]
    yield says("The intervals of {} of these contain {:.2f};", in_words(len(unsure)), limit())
    in_torch, in_graphs, compiled = [ratio for ratio in missed if ratio["lower"] > limit()]
    assert in_torch in ratios_of(row_of("mobilenet_v2", "torch", "float32"))
    yield says("that of MobileNetV2 in torch ({:.2f}) begins at {:.4f}", in_torch["median"], in_torch["lower"])
    assert in_graphs in ratios_of(row_of("resnet20", "cuda-graphs", "float32"))
    yield says("that of ResNet20 in CUDA graphs ({:.3f}) at {:.4f}", in_graphs["median"], in_graphs["lower"])
    assert compiled in ratios_of(row_of("mobilenet_v2", "torch-compile", "float32"))
    yield says("that of MobileNetV2 in torch-compile ({:.3f}) at {:.4f}", compiled["median"], compiled["lower"])


@states(PAGE)
def the_table_of_torch_compile_has_fewer_structures() -> Iterator[Claim]:
    row = row_of("mobilenet_v2", "torch-compile", "float32")
    words = "The table of torch-compile was made of {} structures instead of {} and tested with {}, since each"
    yield says(words, option_of(row, "--learn"), STRUCTURES, option_of(row, "--unseen"))
    (correlation,) = re.findall(
        r"the rank correlation is ([\d.]+), at least", row_of("resnet20", "torch-compile", "float32")["failure"]
    )
    words = "the table of {} structures has a rank correlation of {} on structures that it was not fitted to"
    yield says(words, STRUCTURES, correlation)


@states(PAGE)
def cuda_graphs_reject_a_limit() -> Iterator[Claim]:
    row = row_of("mobilenet_v2", "cuda-graphs", "float32")
    assert row["hardware"] == "NVIDIA H200"
    assert row["setting"]["batch"] == 1
    words = "MobileNetV2 in CUDA graphs on the H200 takes {:.2f} ms at batch 1"
    yield says(words, 1000 * row["seconds_unpruned"])
    yield says("the fastest structure in the default steps takes {} of that", fastest_share(row))


@states(PAGE)
def runs_that_were_interrupted_do_not_count() -> Iterator[Claim]:
    yield says("A table uses the mean over the runs that took at most {:.1f} times the median", INTERRUPTED)
