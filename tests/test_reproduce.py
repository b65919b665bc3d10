"""docs/reproduce.md: it has a command for every network and training of the paper, and some are run on tiny data.

tests/test_shell_blocks.py validates every command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aacp.cli import main
from aacp.commands import repeat
from aacp.report.repeats import repetitions_in
from fenced_blocks import fenced_blocks
from report.pages import Page
from test_shell_blocks import SHELLS, commands, in_this_process

PAGE = Path(__file__).parent.parent / "docs" / "reproduce.md"
COMMANDS = commands(PAGE)


def inner(arguments: list[str]) -> list[str]:
    """The command itself, or the one that aacp repeat repeats."""
    return arguments[arguments.index("--") + 1 :] if arguments[0] == "repeat" else arguments


def test_the_page_has_every_network_method_and_training_of_the_paper() -> None:
    wanted = {
        "search": ["vgg16", "resnet56", "resnet110", "torchvision:resnet50", "torchvision:mobilenet_v2"],
        "train": ["vgg16", "resnet56", "resnet110", "torchvision:resnet50", "torchvision:mobilenet_v2"],
    }
    for name, networks in wanted.items():
        assert {given[1] for given in map(inner, COMMANDS) if given[0] == name} == set(networks)
    methods = {given[given.index("--method") + 1] for given in COMMANDS if "--method" in given}
    assert methods == {"released", "paper", "uniform"}
    recipes = {(given[0], given[given.index("--recipe") + 1]) for given in map(inner, COMMANDS) if "--recipe" in given}
    trained = {recipe for command, recipe in recipes if command in ("finetune", "scratch")}
    assert trained == {
        f"{data}-{how}" for data in ("cifar10", "imagenet", "mobilenet") for how in ("finetune", "scratch")
    }
    headings = re.findall(r"^## (Table \d|Figure \d)", PAGE.read_text(), flags=re.MULTILINE)
    assert headings == ["Table 1", "Table 2", "Table 3", "Table 4", "Figure 3", "Figure 5", "Figure 6"]


def test_the_page_has_no_commands_of_other_programs() -> None:
    lines = [line for _, code in fenced_blocks(PAGE, *SHELLS) for line in code.splitlines() if line]
    assert {line.split(" ")[0] for line in lines} == {"aacp", ""}  # "" is the indentation of a continued line


# -- to the end, on tiny data -----------------------------------------------------------------------------------------

TINY = {
    "train": ["--epochs", "1", "--batch-size", "16", "--device", "cpu"],
    "search": ["--evaluations", "2", "--calibration", "16", "--device", "cpu"],
    "finetune": ["--epochs", "1", "--batch-size", "16", "--device", "cpu", "--no-export", "--trust"],
    "scratch": ["--epochs", "1", "--batch-size", "16", "--device", "cpu", "--no-export", "--trust"],
    "sweep": ["--evaluations", "2", "--calibration", "16", "--epochs", "1", "--batch-size", "16", "--device", "cpu"],
    "report": [],
}
SHORTER = {
    "vgg16": "digits_resnet",
    "paper": "inner",  # the paper's coordinates are defined for its networks alone
    "cifar10:PATH": "tiny_data:digits",
    "0,1,2,3,4": "0,1",
    "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8": "0,0.5,0.7",
}


def tiny(arguments: list[str]) -> list[str]:
    """A command with a tiny network, tiny data, two seeds, three rates, two evaluations and one epoch."""
    shorter = [SHORTER.get(argument, argument) for argument in arguments]
    return [*shorter, *TINY[inner(arguments)[0]]]


def about(*folders: str) -> list[list[str]]:
    return [arguments for arguments in COMMANDS if any(folder in arguments for folder in folders)]


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks as small as these are slower with two
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
def test_the_commands_of_a_row_and_of_a_figure_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(repeat, "_output", in_this_process)
    chosen = about("runs/vgg16", "runs/vgg16-50", "runs/fig6/a")
    assert [inner(arguments)[0] for arguments in chosen] == [
        "train",
        "search",
        "finetune",
        "scratch",
        "sweep",
        "report",
    ]
    for arguments in chosen:
        shown = [given for given in tiny(arguments) if given != "runs/fig6/b"]
        result = CliRunner().invoke(main, shown)
        assert result.exit_code == 0, f"{shown} {result.output}"
    found = {repetition.name: repetition for repetition in repetitions_in("runs/vgg16-50")}
    assert set(found) == {"search", "F", "S"}
    for name in ("F", "S"):
        assert len(found[name].spreads[""]["test accuracy after"].values) == 2
        assert all(share <= 0.5 for share in found[name].spreads[""]["MACs, share of before"].values)
    figure = Page(Path("runs/fig6/report.html")).figures["all-rates"]
    assert figure["data"][0]["x"] == [0, 50, 70]
