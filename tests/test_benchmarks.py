"""The scripts in benchmarks start, and the options and names of aacp that they and the documents use exist."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import aacp
from aacp.cli import main

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
DOCUMENTS = "".join(path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*(?![\w{=-])")  # not those of other programs, which have a value after =
OPTIONS_OF_AACP = {
    option
    for command in main.commands.values()
    for parameter in command.params
    for option in (*parameter.opts, *parameter.secondary_opts)
}
SCRIPTS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.accelerated] * ("aacp.accelerate" in path.read_text()))
    for path in sorted(FOLDER.glob("*.py"))
]


@pytest.mark.usefixtures("among_scripts")
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_starts_and_knows_the_options_and_names_that_are_used(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script.read_text()
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    is_command = '__name__ == "__main__"' in text  # the others are only imported
    with pytest.raises(SystemExit, match=r"^0$") if is_command else nullcontext():
        runpy.run_path(str(script), run_name="__main__")
    own = set(OPTION.findall(capsys.readouterr().out))
    commands = re.findall(rf"python benchmarks/{script.name}((?:[^\n`]|\n {{8}})*)", text + DOCUMENTS)
    assert set(OPTION.findall(" ".join(commands))) <= own
    if is_command and script.name not in ("gpu.py", "lease.py"):  # test_gpu_plans.py and test_lease.py check theirs
        assert set(OPTION.findall(text)) <= own | OPTIONS_OF_AACP
    attributes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    names = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "aacp"}
    assert {name for name in names if not hasattr(aacp, name)} == set()


def test_every_script_that_a_document_names_exists() -> None:
    named = set(re.findall(r"benchmarks/(\w+\.py)", DOCUMENTS))
    assert named - {path.name for path in FOLDER.glob("*.py")} == set()
    assert len(named) > 30
