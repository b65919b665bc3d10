"""docs/search.md: long searches, rescaling, error curves, settings, earlier searches and the time per proposal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean

from aacp.search.evolution import FIG3, IDE_PLUS, PAPER, RELEASED
from aacp.search.guided import REFIT_GROWTH
from evidence.claims import Claim, Row, says, states, table
from evidence.raw import RESULTS, pct, raw, with_error

PAGE = "docs/search.md"


@states(PAGE)
def long_searches_stay_manageable() -> Iterator[Claim]:
    found = raw("large_history.json")
    assert all(found["checks"].values())
    seconds = found["seconds"]
    yield says(
        "with {:,} candidates of ResNet56, resuming takes {:.1f} s, a checkpoint {:.0f} ms",
        found["settings"]["candidates"],
        seconds["resume"],
        1000 * seconds["checkpoint"],
    )
    words = "a Pareto front of score, MACs and parameters {:.2f} s, and the report {:.1f} s and {:.1f} MB"
    yield says(words, seconds["front"], seconds["report"], found["sizes"]["report_mb"])


@table(PAGE, "network", "step")
def slack_after_rescaling() -> list[Row]:
    rows = []
    for row in raw("slack.json"):
        points = (f"{row['mean']:.3f}", f"{row['most']:.3f}")
        shares = (f"{pct(row['broken'], 0)} %", f"{pct(row['idle'], 0)} %")
        rows.append((row["model"], f"c/{1 / row['pruning_step']:g}", row["form"], *points, *shares))
    return rows


@states(PAGE)
def error_curves_are_near_to_a_search() -> Iterator[Claim]:
    runs = {run["name"]: run for run in raw("repair_resnet56_cpu.json")["product"]}
    curves, search = runs["curves"], runs["without labels"]
    assert {run["rate"] for run in runs.values()} == {0.5}
    words = "At -50 % MACs `curves` delivered {} %, a search of {} evaluations {} %"
    yield says(words, pct(curves["score"]), raw("repair_resnet56_cpu.json")["evaluations"], pct(search["score"]))
    seconds = (run["stages"]["search"] for run in (curves, search))
    yield says("`curves` found its structure in {:.0f} s, the search in {:,.0f} s", *seconds)
    found = [delivered("obs_more", "curves"), delivered("obs", "as it is")]
    behind = [float(more[rate]) - float(less[rate]) for less, more in [found] for rate in (0.5, 0.7)]
    behind.append(100 * (search["score"] - curves["score"]))
    yield says("On ResNet56 `curves` ends {:.1f} to {:.1f} points below a search", min(behind), max(behind))
    words = "With the importance `obs`, `curves` and a search delivered {} and {} % at -50 %, {} and {} % at -70 %"
    yield says(words, *(each[rate] for rate in (0.5, 0.7) for each in found))


def delivered(file: str, name: str) -> dict[float, str]:
    """The test accuracies of the networks that runs of this name delivered, by the share of MACs removed."""
    runs = raw(f"repair_resnet56_{file}.json")["product"]
    return {run["rate"]: pct(run["score"]) for run in runs if run["name"] == name}


@states(PAGE)
def mobilenet_shows_that_error_curves_can_be_far_behind() -> Iterator[Claim]:
    found = {
        row["widths"]: pct(row["score"], 1) for row in raw("repair_mobilenet_l1.json")["rows"] if row["rate"] == 0.3
    }
    words = "MobileNetV2 at -30 % keeps {} % with `curves` and {} % with a search"
    yield says(words, found["aacp.prune, curves"], found["aacp.prune"])


@states(PAGE)
def presets_share_two_settings() -> Iterator[Claim]:
    (settings,) = {(preset.differential_weight, preset.crossover_rate) for preset in (PAPER, RELEASED, FIG3, IDE_PLUS)}
    yield says("F is {} and CR is {} in all of them", *settings)


# -- earlier searches --------------------------------------------------------------------------------------------------


@table(PAGE, "damage", "search")
def searches_that_know_others() -> list[Row]:
    rows = []
    for family, searches in raw("transfer.json")["accuracy in per cent"].items():
        for name, scores in searches.items():
            apart = [score[0] - fresh[-1] for score, fresh in zip(scores, searches["fresh"], strict=True)]
            means = (f"{fmean(column):.2f}" for column in zip(*scores, strict=True))
            rows.append((family, name, *means, with_error(apart)))
    return rows


@states(PAGE)
def a_taught_search_is_better_at_the_end() -> Iterator[Claim]:
    found = raw("transfer.json")["accuracy in per cent"].values()
    ends = [[fmean(scores[-1] for scores in each[name]) for name in ("taught", "fresh")] for each in found]
    gains = [taught - fresh for taught, fresh in ends]
    words = "After {} evaluations it is better in all three families, by {:.1f} to {:.1f} points"
    yield says(words, raw("transfer.json")["marks"][-1], min(gains), max(gains))


# -- time per proposal -------------------------------------------------------------------------------------------------


@table(PAGE, "method", "ms per proposal, 51 groups, 200 observations")
def milliseconds_per_proposal() -> list[Row]:
    _, text = (RESULTS / "slack.md").read_text().split("| method | ms per proposal, 51 groups, 200 observations |")
    return re.findall(r"^\| ([\w+]+) \| ([\d.]+) \|$", text, flags=re.MULTILINE)


@states(PAGE)
def the_model_is_fitted_again() -> Iterator[Claim]:
    yield says("whenever the number of observations has grown by {:.0f} %", 100 * (REFIT_GROWTH - 1))
