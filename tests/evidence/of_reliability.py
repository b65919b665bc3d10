"""docs/reliability.md: the faults that were tried, counted in the raw outcomes of `make faults`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import raw

PAGE = "docs/reliability.md"
GOOD = "as promised"


@table(PAGE, "fault", "where")
def faults() -> list[Row]:
    outcomes = raw("faults.json")["faults"]
    tried = Counter((row["kind"], row["where"]) for row in outcomes)
    good = Counter((row["kind"], row["where"]) for row in outcomes if row["outcome"] == GOOD)
    assert tried == good  # "Every outcome is as promised": the last column has no others
    rows: list[Row] = [(*group, str(tried[group]), str(good[group]), "-") for group in tried]
    return [*rows, ("all", "", str(tried.total()), str(good.total()), "-")]


@states(PAGE)
def all_faults_take() -> Iterator[Claim]:
    found = raw("faults.json")
    assert (found["command"], found["retried"]) == ("make faults", 0)
    yield says("and took {:.0f} minutes on two cores", found["seconds"] / 60)
