"""docs/search.md: searches that score structures on few images first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from statistics import fmean
from typing import Any

from aacp.search.screening import CONFIRMED_SHARE, MIN_CONFIRMED
from evidence.claims import Claim, Row, says, states, table
from evidence.raw import pct, raw, with_error

PAGE = "docs/search.md"
Kind = tuple[float, int]  # share of the images, evaluations


@cache
def searches(problem: str) -> dict[Kind, list[dict[str, Any]]]:
    """The rows of fidelity.py by share of the images and evaluations, one for each seed."""
    found: dict[Kind, list[dict[str, Any]]] = {}
    for row in raw(f"fidelity_{problem}.json")["rows"]:
        if "share" in row:
            found.setdefault((row["share"], row["evaluations"]), []).append(row)
    (seeds,) = {tuple((row["problem"], row["seed"]) for row in rows) for rows in found.values()}
    assert len(seeds) == (12 if problem == "synthetic" else 5)
    return found


def mean_of(problem: str, kind: Kind, field: str) -> float:
    return fmean(row[field] for row in searches(problem)[kind])


@table(PAGE, "search", "evaluations")
def few_images() -> list[Row]:
    rows = []
    for problem in ("synthetic", "digits_resnet", "resnet56"):
        longest = searches(problem)[1.0, max(evaluations for _, evaluations in searches(problem))]
        for (share, evaluations), part in searches(problem).items():
            gains = [row["score"] - base["score"] for row, base in zip(part, longest, strict=True)]
            cost, seconds = (mean_of(problem, (share, evaluations), field) for field in ("cost", "seconds"))
            images = "all" if share == 1 else f"{pct(share, 0)} %, then all"
            cells = (str(evaluations), images, f"{cost:.0f}", with_error(gains), f"{seconds:.1f}")
            rows.append((problem, *cells))
    return rows


@states(PAGE)
def structures_that_are_scored_on_all_images() -> Iterator[Claim]:
    assert MIN_CONFIRMED == 10
    yield says("{} % of the structures each, and at least ten", pct(CONFIRMED_SHARE, 0))


@states(PAGE)
def recalibration_takes_most_of_an_estimate_on_a_processor() -> Iterator[Claim]:
    seconds = raw("fidelity_digits_resnet.json")["rows"][0]["seconds of an estimate"]["all"]
    words = "takes {:.2f} of the {:.2f} s of an estimate of digits_resnet"
    yield says(words, seconds["network"], seconds["estimate"])


@states(PAGE)
def a_fifth_of_the_images_saves_two_fifths_of_the_cost() -> Iterator[Claim]:
    few, all_images = (0.2, 200), (1.0, 100)
    pairs = zip(searches("synthetic")[few], searches("synthetic")[all_images], strict=True)
    assert fmean(one["score"] - other["score"] for one, other in pairs) > 0  # "give what 100 evaluations give"
    share = mean_of("synthetic", few, "cost") / mean_of("synthetic", all_images, "cost")
    words = "on a fifth of the images give what 100 evaluations on all images give, for {:.0f} % of their cost"
    yield says(words, 100 * share)


@states(PAGE)
def screening_of_resnet56_gains_points_and_no_time() -> Iterator[Claim]:
    gains = [
        mean_of("resnet56", few, "score") - mean_of("resnet56", (1.0, evaluations), "score")
        for few, evaluations in (((0.1, 200), 40), ((0.2, 200), 60))
    ]
    yield says("is better than a search of the same cost on all images (by {:.1f} and {:.1f} points)", *gains)
    seconds = mean_of("resnet56", (0.1, 200), "seconds")
    assert seconds > mean_of("resnet56", (1.0, 100), "seconds")
    yield says("in the {:.1f} s of the search with a tenth of the images, more than 100 structures are scored", seconds)
