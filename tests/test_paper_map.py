"""The map of the paper names things that exist, and names all it should."""

import importlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "paper_map.md").read_text()
PLACES = sorted(set(re.findall(r"`(aacp[\w.]*):([\w.]+)`", TEXT)))


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_every_place_on_the_map_exists(module: str, name: str) -> None:
    found = importlib.import_module(module)
    for part in name.split("."):
        if part in getattr(found, "__annotations__", {}):  # a field of a dataclass
            return
        found = getattr(found, part)


def test_every_departure_is_a_comment_where_it_happens() -> None:
    _, departures = TEXT.split("## Differences from the paper")
    modules = {module for module, _ in re.findall(r"`(aacp[\w.]*):([\w.]+)`", departures)}
    sources = {module: Path(importlib.import_module(module).__file__ or "").read_text() for module in modules}
    assert [module for module, source in sources.items() if "# Paper:" not in source] == []


def test_every_equation_and_algorithm_of_the_search_is_on_the_map() -> None:
    rows = [line.split("|")[1].strip() for line in TEXT.splitlines() if line.startswith("| ")]
    wanted = [f"Eq. {number}" for number in (1, 2, *range(5, 15))] + ["Alg. 1", "Alg. 2", "Fig. 3", "Fig. 6"]
    assert [item for item in wanted if item not in rows] == []
