"""Every `aacp` command in the blocks of README.md and docs/ is valid up to what it would run.

The commands of a page are given in their order, in an empty folder: the run folder that one leaves is there for the
next. Networks, data and results of devices are not loaded, and nothing is computed.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aacp.bench import fig3
from aacp.cli import main
from aacp.commands import repeat
from aacp.cost.budget import Budget
from aacp.errors import WorkerFailed
from aacp.latency.devices import results
from aacp.latency.job import MeasurementJob
from aacp.pipeline import device_check, job
from aacp.pipeline.plan import Plan
from aacp.report import page as report_page
from aacp.report.repeats import repetitions_in
from aacp.runs.folder import RunFolder
from aacp.train.job import TrainingJob
from fenced_blocks import fenced_blocks

ROOT = Path(__file__).parent.parent
SHELLS = ("", "bash", "sh", "shell", "console")
COMMAND = re.compile(r"(?:\$ )?(?:\w+=\S+ )*aacp (.*)")  # after a prompt and variables of the environment


def commands(page: Path) -> list[list[str]]:
    """The arguments of every aacp command of a page, in order; a backslash continues a line, and # begins a comment."""
    blocks = [code.replace("\\\n", " ") for _, code in fenced_blocks(page, *SHELLS)]
    found = [COMMAND.fullmatch(line) for block in blocks for line in block.splitlines()]
    return [shlex.split(command[1], comments=True) for command in found if command]


WITH_COMMANDS = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if commands(page)]


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
        request = json.dumps(request_of(names, budget, plan))
        file = folder.path / "run.json"
        assert not file.exists() or file.read_text() == request, "the folder holds another run"
        folder.path.mkdir(parents=True, exist_ok=True)
        file.write_text(request)
        self.stop(names)


def request_of(task: job.TaskNames, budget: Budget, plan: Plan) -> dict[str, Any]:
    """The part of run.json that a later training reads, or that a later search in the same folder must repeat."""
    limits = [limit.to_json() for limit in budget.limits]
    fixed = {"command": "aacp search", "versions": {}, "hardware": "", "started": "", "recipe": None}
    planned = {name: getattr(plan, name) for name in ("pruning_step", "method", "seed", "scope", "finalists", "rungs")}
    planned["evaluations"] = plan.evaluations or 1  # a run records the number that its method has
    names = {"model": task.model, "data": task.data, "data_source": task.data}
    return {**fixed, **planned, **names, "limits": limits}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    found = Jobs()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job.TaskNames, "load", lambda names, _: names)
    monkeypatch.setattr(job, "PruningRun", found.pruning_run)
    monkeypatch.setattr(job, "check_table", lambda *_: None)  # no page has measured its table
    monkeypatch.setattr(job, "known_runs", lambda given, _: given)  # a sweep that ends here leaves no runs
    last_steps = (
        (job, "SweepRun"),
        (job.FinishingJob, "finish"),
        (TrainingJob, "run"),
        (MeasurementJob, "run"),
        (MeasurementJob, "export"),
        (results, "table_from_results"),
        (device_check, "check_from_results"),
        (report_page, "write_report"),
        (fig3, "measure"),
    )
    for place, name in last_steps:
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
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_valid_up_to_what_it_would_run(page: Path, jobs: Jobs) -> None:
    for arguments in commands(page):
        before = len(jobs.built)
        result = CliRunner().invoke(main, arguments)
        runs = len(arguments[arguments.index("--seeds") + 1].split(",")) if arguments[0] == "repeat" else 1
        assert len(jobs.built) == before + runs, (arguments, result.exception, result.output, reasons())


def reasons() -> list[str]:
    """Why the seeds of a repetition did not reach their jobs; Reached is the reason of those that did."""
    found = [run.error for path in Path().glob("runs/*") for each in repetitions_in(path) for run in each.failed]
    return [reason for reason in found if "Reached" not in reason]


def test_a_wrong_option_is_noticed(jobs: Jobs) -> None:
    result = CliRunner().invoke(main, ["search", "vgg16", "--data", "cifar10:PATH", "--prune-mac", "0.5"])
    assert (result.exit_code, jobs.built) == (2, [])
