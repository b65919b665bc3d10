"""docs/results.md: how well estimates of repaired networks rank structures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import mean, pct, raw
from evidence.search_pays import LOW, after_epochs, tests_of

PAGE = "docs/results.md"
EPOCHS = (10, 30, 100)

not_measured(
    PAGE,
    Origin.SETTING,
    "among the best 30 % by the plain or by the repaired estimate",
    "with a repaired estimate (obs) above 85 % end",
    "had the full rate of 0.05",
    "among the best 30 % at -70 %",
)


def ranked(epochs: int) -> Any:
    """What repair_ranking.py found after trainings of this length."""
    return raw(f"repair_ranking_70_{epochs}_epochs.json")


@table(PAGE, "estimate, order of channels", "10 epochs")
def repaired_ranking() -> list[Row]:
    found = [ranked(epochs)["correlations"] for epochs in EPOCHS]
    rows = []
    for name in found[0]:
        cells = [name if "," in name else f"{name}, l1"]
        for row in (correlations[name] for correlations in found):
            above = "-" if name == "plain" else f"{row['above_plain']:+.2f} ± {row['deviation_above_plain']:.2f}"
            cells += [f"{row['spearman']:.2f} ± {row['deviation']:.2f}", above]
        rows.append(tuple(cells))
    return rows


@states(PAGE)
def trained_structures_end_close_to_each_other() -> Iterator[Claim]:
    said = ("{} for {} epochs (they end between {} and {} %)", *2 * ("{} for {} epochs ({} to {} %)",))
    for epochs, words in zip(EPOCHS, said, strict=True):
        found = ranked(epochs)
        outcomes = found["outcomes"].values()
        yield says("{} structures among the best 30 %", len(found["structures"]))
        yield says(words, len(outcomes), epochs, pct(min(outcomes)), pct(max(outcomes)))


@states(PAGE)
def structures_with_high_estimates_end_higher_after_100_epochs() -> Iterator[Claim]:
    found = ranked(100)
    estimates = found["estimates"]["repaired, obs"]
    high, others = (
        [score for index, score in found["outcomes"].items() if (estimates[int(index)] > 0.85) == is_high]
        for is_high in (True, False)
    )
    words = "the {} structures with a repaired estimate (obs) above 85 % end at {} %, the other {} at {} %"
    yield says(words, len(high), mean(high), len(others), mean(others))
    assert fmean(high) - stdev(high) > fmean(others)
    row = found["correlations"]["repaired, obs"]
    yield says("is {:.1f} standard deviations", row["above_plain"] / row["deviation_above_plain"])
    assert {ranked(epochs)["recipe"]["lr"] for epochs in EPOCHS} == {0.05}


@states(PAGE)
def plain_estimates_of_similar_structures_say_little() -> Iterator[Claim]:
    rows = [ranked(epochs) for epochs in (10, 100)]
    found = [row["correlations"]["plain"] for row in rows]
    shown = [f"{each['spearman']:.2f} ± {each['deviation']:.2f}" for each in found]
    words = "is {} after 10 epochs and {} after 100 ([above](#without-training), {} and {} structures)"
    yield says(words, *shown, *(len(row["outcomes"]) for row in rows))


@states(PAGE)
def short_trainings_do_not_tell_estimates_apart() -> Iterator[Claim]:
    repaired, plain = [], []
    for epochs in EPOCHS:
        found = ranked(epochs)["correlations"]
        plain.append(found.pop("plain")["spearman"])
        repaired.append(list(found.values()))
    assert plain == sorted(plain, reverse=True)
    for short, long in pairwise(repaired):
        assert all(one["spearman"] < other["spearman"] for one, other in zip(short, long, strict=True))
    assert all(row["above_plain"] < 0 for row in repaired[0])
    apart = [abs(row["above_plain"]) / row["deviation_above_plain"] for rows in repaired[:2] for row in rows]
    words = "After 10 and 30 epochs no difference to the plain estimate is larger than {:.1f} standard deviations"
    yield says(words, max(apart))


@states(PAGE)
def the_default_estimate_is_not_worse_after_long_trainings() -> Iterator[Claim]:
    for case, is_ahead in (("resnet56_70", True), ("vgg16_70", False)):
        longest = after_epochs(case, 100)
        assert (fmean(tests_of(longest, "repaired")) > fmean(tests_of(longest, "search"))) is is_ahead
        short, longer = (after_epochs(case, epochs, LOW) for epochs in (1, 10))
        assert min(tests_of(short, "repaired")) > max(tests_of(short, "search"))
        assert abs(fmean(tests_of(longer, "repaired")) - fmean(tests_of(longer, "search"))) < 0.001
        yield says("higher than those with the plain estimate after {} epoch at the default rate", short["epochs"])
