"""Raw output of benchmarks, and numbers in the form in which the pages show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def raw(name: str) -> Any:
    """A JSON file of benchmarks/results."""
    return json.loads((RESULTS / name).read_text())


def records(path: Path) -> list[Any]:
    """The records of a file that holds one in each line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def pct(share: float, digits: int = 2) -> str:
    """A share in per cent, without the sign."""
    return f"{100 * share:.{digits}f}"


def mean(values: Sequence[float]) -> str:
    """Accuracies in per cent as mean ± deviation, without the sign."""
    return f"{pct(fmean(values))} ± {pct(stdev(values))}"


def spread(values: Sequence[float]) -> str:
    """Accuracies as mean ± deviation (values); the only one as it is."""
    if len(values) == 1:
        return f"{pct(values[0])} %, one seed"
    both = ", ".join(pct(value) for value in values)
    return f"{mean(values)} % ({both})"


def points_above(values: Sequence[float], others: Sequence[float]) -> str:
    """The mean difference in points, paired, and its deviation, with a sign."""
    points = [100 * (value - other) for value, other in zip(values, others, strict=True)]
    return f"{fmean(points):+.2f} ± {stdev(points):.2f}"


def unsigned(difference: str) -> str:
    """A positive difference without its sign."""
    assert difference.startswith("+")
    return difference[1:]


def with_error(differences: Sequence[float]) -> str:
    """The mean of differences in points with a sign, and its standard error."""
    return f"{fmean(differences):+.2f} ± {stdev(differences) / len(differences) ** 0.5:.2f}"


def in_words(count: int) -> str:
    """A number up to ten as a word."""
    return "no one two three four five six seven eight nine ten".split()[count]
