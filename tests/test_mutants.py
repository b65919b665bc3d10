"""The mutants of benchmarks/mutants.py can be made: hand-picked ones apply, and the tool knows its changes."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


HAND_PICKED = _benchmark("mutants_by_hand").HAND_PICKED
changes_of = _benchmark("mutants_by_tool").changes_of


@pytest.mark.parametrize("changed", sorted({mutant.file for mutant in HAND_PICKED}))
def test_hand_picked_mutants_of_a_file_apply_once_and_have_tests(changed: str) -> None:
    source = (ROOT / "src" / "aacp" / changed).read_text()
    for mutant in (each for each in HAND_PICKED if each.file == changed):
        assert source.count(mutant.old) == 1, f"follow the change of {changed} in mutants_by_hand.py: {mutant.name}"
        ast.parse(source.replace(mutant.old, mutant.new))
        for test in mutant.tests:
            file, _, name = test.partition("::")
            path = ROOT / "tests" / file
            assert path.exists(), mutant.name
            assert not name or f"def {name.partition('[')[0]}(" in path.read_text(), mutant.name


def test_all_that_the_issue_names_are_there_and_no_name_is_used_twice() -> None:
    assert sum(mutant.named_in_issue for mutant in HAND_PICKED) >= 9
    names = [(mutant.file, mutant.name) for mutant in HAND_PICKED]
    assert len(set(names)) == len(names) >= 60


SOURCE = '''
def chosen(values, limit=None):
    """The values below a limit."""
    if limit is None or not values:
        return sorted(values, key=abs)
    log(values)
    return [value for value in values if value < limit + 1]
'''


def test_the_tool_makes_every_kind_of_change_and_each_is_another_program() -> None:
    changes = changes_of(SOURCE)
    words = {change.words.split()[0] for change in changes}
    assert words == {"negate", "swap", "drop", "replace", "give", "return", "change"}
    whole = ast.dump(ast.parse(SOURCE))
    made = [ast.dump(ast.parse(change.applied(SOURCE))) for change in changes]
    assert whole not in made
    assert len(set(made)) == len(made) == 11
