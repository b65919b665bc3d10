"""docs/results.md, tracing: networks of torchvision and timm, of other tasks and libraries, and seconds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import RESULTS, ROOT, raw

PAGE = "docs/results.md"
X86, ARM = "x86_64, 1 thread per network", "Neoverse-N1 (aarch64), 2 shared cores"


@table(PAGE, "", "")
def traced_networks() -> list[Row]:
    networks = list(raw("zoo.json")["networks"].values())
    shares = [row["free_share"] for row in networks]
    seconds = [row["seconds"] for row in networks]
    return [
        ("networks (torchvision and timm)", str(len(networks))),
        ("cut to half, run, equal to the masked original", str(sum(row["passes"] for row in networks))),
        (
            "MACs and parameters equal torch's, before and after",
            str(sum(all(row["exact"].values()) for row in networks)),
        ),
        ("free convolution channels, median / mean", f"{median(shares):.1%} / {fmean(shares):.1%}"),
        ("seconds to trace and verify on two cores, median / longest", f"{median(seconds):.1f} / {max(seconds)}"),
    ]


@states(PAGE)
def the_second_run_has_the_same_verdicts() -> Iterator[Claim]:
    names = (ROOT / "benchmarks" / "zoo.txt").read_text().split()
    text = (RESULTS / "zoo_again.txt").read_text()
    found = re.findall(r"^(pass|FAIL) (\S+) +[\d.]+ s  free +[\d.]+% *(\S*)", text, flags=re.MULTILINE)
    assert {name for _, name, _ in found} == set(names) == set(raw("zoo.json")["networks"])
    assert {verdict for verdict, *_ in found} == {"pass"}
    assert not any("False" in counts for *_, counts in found)  # counts of MACs or parameters that differ from torch's
    yield says("all {} networks were traced, cut and compared with the same verdicts", len(names))


@table(PAGE, "traced network", "seconds")
def trace_speed() -> list[Row]:
    """Processor seconds, medians of three traces."""
    rows = []
    for name, seconds in raw("trace_speed_after.json")["medians"].items():
        parts = [seconds["export"], seconds["copies"], seconds["masked runs"] + seconds["cut runs"]]
        rest = seconds["cpu"] - sum(parts)
        rows.append((name, *(f"{value:.1f}" for value in (seconds["cpu"], *parts, rest))))
    return rows


def networks_of_tasks() -> list[dict[str, Any]]:
    """The rows of networks of other tasks and libraries."""
    return list(raw("tasks.json")["networks"].values())


def row_of_library(name: str, part: list[dict[str, Any]]) -> Row:
    """What became of the networks of a library."""
    traced = [row for row in part if "free_share" in row]
    tried = [row for row in traced if row["onnx"] != "not tried"]
    seconds = [row["seconds"] for row in traced]
    return (
        name,
        str(len(part)),
        str(sum(row["exact"] for row in part)),
        str(sum(not row["exact"] for row in traced)),
        str(sum(row["other_shapes"] is not None for row in traced)),
        f"{median(row['free_share'] for row in traced):.1%}",
        f"{sum(row['onnx'] == 'equal' for row in tried)} of {len(tried)}",
        f"{median(seconds):.1f} / {max(seconds):.1f}",
    )


@table(PAGE, "library", "networks")
def tasks() -> list[Row]:
    """One row per library, then all of them; hardly any network may fail, and none silently."""
    networks = networks_of_tasks()
    traced = [row for row in networks if "free_share" in row]
    assert len(networks) >= 120
    assert sum(row["exact"] for row in networks) >= 0.95 * len(networks)
    assert all(row["exact"] for row in traced)
    libraries = sorted({row["library"] for row in networks})
    parts = [(name, [row for row in networks if row["library"] == name]) for name in libraries]
    return [row_of_library(name, part) for name, part in [*parts, ("all", networks)]]


@table(PAGE, "not exact", "reason")
def tasks_that_are_not_exact() -> list[Row]:
    """The first sentence of each reason."""
    networks = raw("tasks.json")["networks"]
    failed = {name.partition(":")[2]: row["reason"] for name, row in networks.items() if not row["exact"]}
    return [(name, reason.partition(". ")[0].removesuffix(".")) for name, reason in failed.items()]


@states(PAGE)
def an_independent_oracle_decided() -> Iterator[Claim]:
    oracles = [row["oracle"] for row in networks_of_tasks() if "oracle" in row]
    zeroed = oracles.count("zeroed weights")
    yield says("For {} of the {} traced networks", zeroed, len(oracles))
    yield says("In the other {}, norms or means", len(oracles) - zeroed)


@states(PAGE)
def tasks_ran_on_two_machines() -> Iterator[Claim]:
    machines = Counter(row["machine"] for row in networks_of_tasks())
    assert set(machines) == {X86, ARM}
    yield says("{} are of an x86_64 machine, {} of a Neoverse-N1", machines[X86], machines[ARM])


@states(PAGE)
def files_of_two_networks_took_too_long() -> Iterator[Claim]:
    found = {name: row["onnx"] for name, row in raw("tasks.json")["networks"].items() if "onnx" in row}
    late = {name: re.findall(r"took more than (\d+) s", outcome) for name, outcome in found.items()}
    limits = {name: seconds[0] for name, seconds in late.items() if seconds}
    assert set(found.values()) == {"equal", "not tried", *(f"took more than {limit} s" for limit in limits.values())}
    (swin,) = (limit for name, limit in limits.items() if "SwinUNETR" in name)
    (mobilenet,) = (limit for name, limit in limits.items() if "SwinUNETR" not in name)
    yield says(
        "as were the ONNX files of SwinUNETR ({} s) and of MobileNetV3 with its features only ({} s)", swin, mobilenet
    )
