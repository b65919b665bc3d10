"""docs/search.md: Fig. 3, and search methods compared on synthetic problems."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any

from aacp.bench import fig3
from aacp.bench.compare import METHODS, NETWORKS
from evidence.claims import Claim, Row, says, states, table
from evidence.raw import pct, raw

PAGE = "docs/search.md"
DAMAGE = ("additive", "neighbour", "random")
SEEDS = 50


# -- Fig. 3 ------------------------------------------------------------------------------------------------------------


def readings() -> dict[str, dict[str, Any]]:
    """What each reading of the table found, by its name."""
    found = {row["reading"]: row for row in raw("fig3.json")}
    assert list(found) == [reading.name for reading in fig3.readings()]
    assert {len(row[key]) for row in found.values() for key in ("solved_at", "final")} == {SEEDS}
    return found


def solved_within(row: dict[str, Any], iterations: int) -> str:
    """The share of seeds that found the optimum by then, in per cent."""
    return pct(fmean(at is not None and at <= iterations for at in row["solved_at"]), 0)


@table(PAGE, "reading", "optimum within 300")
def figure_3() -> list[Row]:
    rows = []
    for name, row in readings().items():
        shares = (f"{solved_within(row, iterations)} %" for iterations in (300, 1000))
        middle = sorted(1001 if at is None else at for at in row["solved_at"])[SEEDS // 2]
        rows.append((name, *shares, str(middle) if middle <= 1000 else "-", f"{fmean(row['final']):.2f}"))
    return rows


@states(PAGE)
def the_released_search_solves_eq_14() -> Iterator[Claim]:
    found = readings()
    most, least = (found[f"IDE as released (N {size})"] for size in (50, 10))
    assert solved_within(most, 1000) == "100"
    words = "finds the optimum in all {} seeds, within 300 iterations in {} % of them"
    yield says(words, len(most["solved_at"]), solved_within(most, 300))
    assert solved_within(found["DE as released (N 50)"], 1000) == solved_within(least, 300) == "0"
    yield says("300 iterations are never enough, and 1,000 are in {} % of the seeds", solved_within(least, 1000))


# -- synthetic damage --------------------------------------------------------------------------------------------------


def regrets(family: str) -> list[Row]:
    """Points below the best reachable structure after 50, 100 and 200 evaluations, and at the authors' length."""
    found = raw(f"search_{family}.json")
    assert list(found["regrets"]) == list(METHODS)
    rows = []
    for method, seeds in found["regrets"].items():
        columns = [*zip(*seeds, strict=True)]
        longest = found["regrets_at_own_length"].get(method)
        assert {len(column) for column in [*columns, *([longest] if longest else [])]} == {SEEDS}
        rows.append((method, *map(around, columns), around(longest) if longest else "-"))
    assert set(found["own_lengths"].values()) == {2000}
    return rows


def around(values: Any) -> str:
    """Mean ± standard deviation."""
    return f"{fmean(values):.2f} ± {stdev(values):.2f}"


@table(PAGE, "additive", "after 50 evaluations")
def additive() -> list[Row]:
    return regrets("additive")


@table(PAGE, "neighbour", "after 50 evaluations")
def neighbour() -> list[Row]:
    return regrets("neighbour")


@table(PAGE, "random", "after 50 evaluations")
def random() -> list[Row]:
    return regrets("random")


@table(PAGE, "knapsack", "after 50 evaluations")
def knapsack() -> list[Row]:
    return regrets("knapsack")


def after_200(family: str, method: str) -> list[float]:
    """The regrets of a method after 200 evaluations, by seed."""
    return [seed[-1] for seed in raw(f"search_{family}.json")["regrets"][method]]


def at_2000(family: str, method: str = "released") -> list[float]:
    """The regrets of a search of the authors at its own length, by seed."""
    return list(raw(f"search_{family}.json")["regrets_at_own_length"][method])


@states(PAGE)
def the_default_leaves_less_with_a_tenth_of_the_evaluations() -> Iterator[Claim]:
    for family in DAMAGE:
        assert fmean(at_2000(family)) == min(fmean(at_2000(family, method)) for method in ("released", "paper", "de"))
    released = [fmean(at_2000(family)) for family in DAMAGE]
    yield says("Its 2,000 evaluations leave {:.2f}, {:.2f} and {:.2f} points in the three families", *released)
    default = [fmean(after_200(family, "default")) for family in DAMAGE]
    yield says("the default's 200 evaluations {:.2f}, {:.2f} and {:.2f}", *default)


@states(PAGE)
def the_default_is_ahead_on_nearly_all_problems() -> Iterator[Claim]:
    pairs = [list(zip(after_200(family, "default"), at_2000(family), strict=True)) for family in (*DAMAGE, "knapsack")]
    ahead = [sum(one < other for one, other in each) for each in pairs]
    (problems,) = {len(each) for each in pairs}
    yield says("in {}, {} and {} of {} cases, and in {} of {} knapsacks", *ahead[:3], problems, ahead[3], problems)


@states(PAGE)
def the_default_is_behind_at_first_with_many_coupled_groups() -> Iterator[Claim]:
    found = raw("search_neighbour.json")["regrets"]
    default, other = (
        [fmean(column) for column in zip(*found[method][NETWORKS.index("resnet110") :: len(NETWORKS)], strict=True)]
        for method in ("default", "ide+")
    )
    words = "until about 100 evaluations ({:.1f} and {:.1f} points after 50) and ahead after 200 ({:.1f} and {:.1f})"
    yield says(words, default[0], other[0], default[-1], other[-1])
