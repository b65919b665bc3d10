"""docs/distributed.md: workers on one GPU, many simulated workers, and what proposals without scores cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import raw, with_error

PAGE = "docs/distributed.md"

not_measured(PAGE, Origin.SETTING, "with a spread of 20 %")


@states(PAGE)
def searches_on_workers_have_the_history_of_one_process() -> Iterator[Claim]:
    rows = dict(raw("ray_workers.json")["rows"])
    rows.pop("driver killed and restarted, 2 workers")  # the benchmark compares it with a whole run of the command
    assert len(rows) == 5
    assert {row["history"] for row in rows.values()} == {rows["one process"]["history"]}
    numbers = [found[1] for name in rows if (found := re.match(r"(\d+) workers on three nodes", name))]
    yield says("in one process, on {}, {} and {} workers of a local cluster of three nodes", *numbers)


# -- one GPU -----------------------------------------------------------------------------------------------------------


@table(PAGE, "workers", "structures per second")
def workers_on_one_gpu() -> list[Row]:
    rows = []
    for row in raw("worker_throughput.json")["rows"]:
        shares = (f"{row['gpu_use_percent']:.0f} %", f"{row['busy_cores']:.1f}")
        name = str(row["workers"] or "this process")
        rows.append((name, f"{row['per_second']:.1f}", f"{row['start_seconds']:.1f}", *shares))
    return rows


@states(PAGE)
def ray_and_workers_take_seconds_to_start() -> Iterator[Claim]:
    alone, *others = (row["start_seconds"] for row in raw("worker_throughput.json")["rows"])
    words = "Ray and the start of workers cost {:.1f} to {:.1f} seconds, once"
    yield says(words, min(others) - alone, max(others) - alone)


# -- many workers ------------------------------------------------------------------------------------------------------


@table(PAGE, "method", "workers")
def idle_shares_that_were_simulated() -> list[Row]:
    rows = []
    for row in raw("workers_pool.json")["pool"]:
        numbers = [f"{row[name]:.0f}" for name in ("workers", "seconds", "proposals")]
        idle = [f"{100 * row[name]:.1f}" for name in ("idle", "between")]
        rows.append((row["method"], *numbers, f"{row['driver_milliseconds']:.2f}", *idle))
    return rows


@states(PAGE)
def simulated_estimates_take() -> Iterator[Claim]:
    pool = raw("workers_pool.json")["pool"]
    short, long = sorted({row["seconds"] for row in pool})
    yield says("whose estimates take {:.0f} s or {:.0f} s", short, long)
    few = {row["evaluations"] for row in pool if row["proposals"] == 8}
    yield says("Searches with 8 proposals have {} evaluations", *few)
    assert all(row["evaluations"] == 8 * row["workers"] for row in pool if row["proposals"] != 8)
    assert {row["wasted"] for row in pool} == {0}
    twice = [row for row in pool if row["proposals"] == 2 * row["workers"] and row["seconds"] == long]
    assert all(row["between"] < 0.0005 for row in twice)  # "no worker waits"
    assert len(twice) == 4


def gains_of_eight_proposals() -> dict[str, tuple[list[float], list[list[float]]]]:
    """By family: the scores with one proposal, and how far eight are above them after both numbers of evaluations."""
    found = {}
    parts = (raw(name)["proposals"] for name in ("workers_proposals.json", "workers_proposals_more.json"))
    for first, more in zip(*parts, strict=True):
        assert first["family"] == more["family"]
        alone, eight = first["one"] + more["one"], first["eight"] + more["eight"]
        gains = [[after[length] - one for after, one in zip(eight, alone, strict=True)] for length in (0, 1)]
        found[first["family"]] = (alone, gains)
    return found


@table(PAGE, "problems", "1 proposal, 200")
def proposals_cost_quality() -> list[Row]:
    return [
        (family, f"{fmean(alone):.2f}", *map(with_error, gains))
        for family, (alone, gains) in gains_of_eight_proposals().items()
    ]


@states(PAGE)
def additive_damage_stays_behind_with_more_evaluations() -> Iterator[Claim]:
    _, (_, longer) = gains_of_eight_proposals()["additive"]
    marks = next(run["marks"] for run in raw("workers_resnet56.json")["resnet56"] if run["proposals"] == 8)
    yield says("With {:.0f} % more evaluations, eight proposals reach", 100 * (marks[1] / marks[0] - 1))
    below = with_error([-gain for gain in longer]).removeprefix("+")
    yield says("For additive damage they stay {} points below it", below)


def gains_on_resnet56(file: str) -> list[str]:
    """How far eight proposals are above one after both numbers of evaluations, by other training images."""
    runs: list[dict[str, Any]] = raw(file)["resnet56"]
    alone, eight = ([run for run in runs if run["proposals"] == proposals] for proposals in (1, 8))
    assert [run["seed"] for run in alone] == [run["seed"] for run in eight] == [0, 1, 2]
    pairs = list(zip(alone, eight, strict=True))
    return [with_error([after["others"][length] - one["others"][0] for one, after in pairs]) for length in (0, 1)]


@states(PAGE)
def proposals_cost_on_resnet56() -> Iterator[Claim]:
    shorter, longer = gains_on_resnet56("workers_resnet56.json")
    yield says("after 200 evaluations, eight proposals are {} points above one", shorter)
    assert shorter == longer  # "the same structures"
    shorter, longer = gains_on_resnet56("workers_resnet56_public.json")
    marks = {tuple(run["marks"]) for run in raw("workers_resnet56_public.json")["resnet56"] if run["proposals"] == 8}
    ((first, second),) = marks
    yield says("it was {} points after {} and {} after {}", shorter, first, longer, second)
