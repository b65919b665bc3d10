"""docs/reproduce.md: every command is parsed and validated up to its request, and some are run on tiny data."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from aacp.cli import main
from aacp.commands import repeat
from aacp.cost.budget import Budget
from aacp.errors import WorkerFailed
from aacp.pipeline import job
from aacp.pipeline.plan import Plan
from aacp.report.repeats import repetitions_in
from aacp.runs.folder import RunFolder
from aacp.train.job import TrainingJob
from report.pages import Page

TEXT = (Path(__file__).parent.parent / "docs" / "reproduce.md").read_text()


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every command of a page, in order; a backslash continues a line."""
    for block in re.findall(r"^```\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip():
                program, *arguments = shlex.split(line)
                assert program == "aacp", line
                yield arguments


COMMANDS = list(commands(TEXT))


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
    headings = re.findall(r"^## (Table \d|Figure \d)", TEXT, flags=re.MULTILINE)
    assert headings == ["Table 1", "Table 2", "Table 3", "Table 4", "Figure 3", "Figure 5", "Figure 6"]


# -- up to the request ------------------------------------------------------------------------------------------------


class Reached(Exception):
    """A command has built what it would run."""


@dataclass
class Jobs:
    """The jobs that commands have built, in place of carrying them out."""

    built: list[Any] = field(default_factory=list)

    def stop(self, built: Any) -> None:
        self.built.append(built)
        raise Reached

    def pruning_run(self, names: job.TaskNames, budget: Budget, plan: Plan, folder: RunFolder, **_: Any) -> None:
        """Leave the folder that a search leaves, for the trainings that follow."""
        folder.path.mkdir(parents=True, exist_ok=True)
        (folder.path / "run.json").write_text(json.dumps(request_of(names, budget, plan)))
        self.stop(names)


def request_of(task: job.TaskNames, budget: Budget, plan: Plan) -> dict[str, Any]:
    """The part of run.json that a later training reads."""
    limits = [limit.to_json() for limit in budget.limits]
    fixed = {"command": "aacp search", "versions": {}, "hardware": "", "started": "", "recipe": None}
    planned = {name: getattr(plan, name) for name in ("pruning_step", "method", "seed", "scope")}
    planned["evaluations"] = plan.evaluations or 1  # a run records the number that its method has
    names = {"model": task.model, "data": task.data, "data_source": task.data}
    return {**fixed, **planned, **names, "limits": limits}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    found = Jobs()
    monkeypatch.chdir(tmp_path)
    for kind in (job.TaskNames, job.TrainingNames):
        monkeypatch.setattr(kind, "load", lambda names, _: names)
    monkeypatch.setattr(job, "PruningRun", found.pruning_run)
    for place, name in ((job, "SweepRun"), (job.FinishingJob, "finish"), (TrainingJob, "run")):
        monkeypatch.setattr(place, name, lambda built, *_, **__: found.stop(built))
    monkeypatch.setattr(repeat, "_output", in_this_process)
    return found


def in_this_process(arguments: list[str]) -> Any:
    """What a command prints, without a process of its own."""
    result = CliRunner().invoke(main, arguments)
    if result.exit_code:
        raise WorkerFailed(f"{result.exception!r} {result.stderr}")
    return json.loads(result.stdout)


@pytest.mark.slow
def test_every_command_is_valid_up_to_what_it_would_run(jobs: Jobs) -> None:
    for arguments in COMMANDS:
        if arguments[0] in ("bench", "report"):
            name, *options = arguments[1:] if arguments[0] == "bench" else arguments
            group = main.commands["bench"] if arguments[0] == "bench" else main
            group.commands[name].make_context(name, options)  # raises an error for a wrong option
            continue
        before = len(jobs.built)
        result = CliRunner().invoke(main, arguments)
        runs = 5 if arguments[0] == "repeat" else 1
        assert len(jobs.built) == before + runs, (arguments, result.output, reasons())


def reasons() -> list[str]:
    """Why the seeds of a repetition did not reach their jobs; Reached is the reason of those that did."""
    found = [run.error for path in Path().glob("runs/*") for each in repetitions_in(path) for run in each.failed]
    return [reason for reason in found if "Reached" not in reason]


def test_a_wrong_option_is_noticed(jobs: Jobs) -> None:
    result = CliRunner().invoke(main, ["search", "vgg16", "--data", "cifar10:PATH", "--prune-mac", "0.5"])
    assert (result.exit_code, jobs.built) == (2, [])


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
