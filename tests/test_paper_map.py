"""docs/paper_map.md names every item of the paper, and only places, tests, commands and options that exist."""

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import click
import pytest

from aacp.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "paper_map.md").read_text()
ITEMS = [
    line for line in (ROOT / "tests" / "paper_items.txt").read_text().splitlines() if line and not line.startswith("#")
]
MAP, DEPARTURES = TEXT.split("## Differences from the paper")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in MAP.splitlines()
    if line.startswith("| ") and not line.startswith("| in the paper")
]
PLACES = sorted(set(re.findall(r"`(aacp[\w.]*):([\w.]+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", TEXT)))
COMMANDS = sorted(set(re.findall(r"`(aacp [^`]+)`", TEXT)))
ABSENT = "Not here:"  # begins the reason of a row that has no place in the code


def missing_items(rows: list[list[str]]) -> list[str]:
    named = {row[0] for row in rows}
    return [item for item in ITEMS if item not in named]


def unsupported(rows: list[list[str]]) -> list[str]:
    """Items without a place, or without a test and a command, unless the page gives a reason."""
    found = []
    for item, _, where, shown in rows:
        has_place = "`aacp" in where
        has_evidence = "`tests/" in shown or "`aacp " in shown
        has_reason = where.startswith(ABSENT) and len(where) > len(ABSENT) + 20
        if not has_reason and not (has_place and has_evidence):
            found.append(item)
    return found


def problem_of(text: str) -> str | None:
    """Why a command as the page writes it cannot be given, or None."""
    outer, _, inner = text.removeprefix("aacp ").partition(" -- ")
    for part in (outer, inner) if inner else (outer,):
        words = part.split()
        command: click.Command = main
        while words and isinstance(command, click.Group):
            name = words.pop(0)
            if name not in command.commands:
                return f"there is no command {name}"
            command = command.commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        unknown = [word for word in words if word.startswith("--") and word not in options]
        if unknown:
            return f"{command.name} has no {unknown[0]}"
    return choice_problem(text)


def choice_problem(text: str) -> str | None:
    """Why a value is not one of the choices of its option, or None; only recipes and methods are named on the page."""
    from aacp.search.methods import METHODS
    from aacp.train.recipe import RECIPES

    for option, known in (("--recipe", RECIPES), ("--method", METHODS)):
        for value in re.findall(rf"{option} (\S+)", text):
            if value not in known:
                return f"{option} {value} is not known"
    return None


@cache
def functions_of(path: str) -> set[str]:
    file = ROOT / path
    if not file.exists():
        return set()
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


# -- the list ----------------------------------------------------------------------------------------------------------


def test_the_list_has_every_numbered_item_of_the_paper() -> None:
    """14 equations, 2 algorithms, 6 figures and 4 tables, numbered without gaps."""
    for kind, count in (("Eq.", 14), ("Alg.", 2), ("Fig.", 6), ("Table", 4)):
        expected = [f"{kind} {number}" for number in range(1, count + 1)]
        assert [item for item in ITEMS if re.fullmatch(rf"{re.escape(kind)} \d+", item)] == expected
    networks = ["VGG16, 13", "ResNet56, 27", "ResNet110, 54", "ResNet50, 16", "MobileNetV2, 24"]
    assert [item.removesuffix(" coordinates") for item in ITEMS if item.endswith(" coordinates")] == networks


def test_every_item_of_the_paper_is_on_the_map_once() -> None:
    assert missing_items(ROWS) == []
    assert [item for item, count in Counter(row[0] for row in ROWS).items() if count > 1] == []
    assert [row[0] for row in ROWS if row[0] not in ITEMS] == []


def test_every_row_has_a_place_and_evidence_or_a_reason() -> None:
    assert [row[0] for row in ROWS if len(row) != 4 or not all(row)] == []
    assert unsupported(ROWS) == []


def test_omissions_are_noticed() -> None:
    without = [row for row in ROWS if row[0] != "Table 3"]
    assert missing_items(without) == ["Table 3"]
    assert unsupported([["Eq. 1", "rates", "somewhere", "`aacp prune`"]]) == ["Eq. 1"]
    assert unsupported([["Eq. 1", "rates", "`aacp.cost.budget:Limit`", "believe it"]]) == ["Eq. 1"]
    assert unsupported([["Eq. 1", "rates", "Not here: no", "-"]]) == ["Eq. 1"]
    assert problem_of("aacp polish") == "there is no command polish"
    assert problem_of("aacp prune --prune-flops 0.5") == "prune has no --prune-flops"
    assert problem_of("aacp train --recipe magic") == "--recipe magic is not known"
    assert "test_that_nobody_wrote" not in functions_of("tests/test_paper_map.py")


# -- what the page names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_every_place_on_the_map_exists(module: str, name: str) -> None:
    found = importlib.import_module(module)
    for part in name.split("."):
        if part in getattr(found, "__annotations__", {}):  # a field of a dataclass
            return
        found = getattr(found, part)


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_every_test_on_the_map_exists(path: str, name: str) -> None:
    assert name in functions_of(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_on_the_map_can_be_given(command: str) -> None:
    assert problem_of(command) is None


def test_every_departure_is_a_comment_where_it_happens() -> None:
    modules = {module for module, _ in re.findall(r"`(aacp[\w.]*):([\w.]+)`", DEPARTURES)}
    sources = {module: Path(importlib.import_module(module).__file__ or "").read_text() for module in modules}
    assert [module for module, source in sources.items() if "# Paper:" not in source] == []
