"""aacp repeat: another command with several seeds, and the mean and spread of its results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from aacp.commands.border import FAILED, INTERRUPTED
from aacp.commands.options import JSON
from aacp.commands.parameters import seeds
from aacp.commands.running import resumable, show
from aacp.errors import WorkerFailed
from aacp.user.options import advice

if TYPE_CHECKING:
    from aacp.runs.repeats import Groups

NEW_RUNS = ("prune", "search", "sweep", "train")  # commands that start a run and take --seed and --run
TRAININGS = ("finetune", "scratch")  # commands that train in a run folder that exists
# Options that do not change the results of a run, or that differ between the seeds.
CIRCUMSTANCES = (
    "seed",
    "folder",
    "as_json",
    "device",
    "no_export",
    "resources",
    "tensorboard",
    "cache",
    "again",
    "processes",
    "until",
    "workers",
    "trust",
)
PLACEHOLDER = "{seed}"
SECONDS_TO_STOP = 10  # for a command that was interrupted, before it is interrupted again


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--seeds", type=seeds, required=True, metavar="N,N,...", help="The seeds, such as 0,1,2.")
@click.option(
    "--run", "folder", type=click.Path(), required=True,
    help="Folder for a run folder of each seed and one report; the same command with the same folder resumes.",
)  # fmt: skip
@JSON
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [OPTIONS]")
@click.pass_context
def repeat(
    context: click.Context, seeds: tuple[int, ...], folder: str, as_json: bool, command: tuple[str, ...]
) -> None:
    """Run COMMAND once for each seed, and report the mean and standard deviation of its results.

    COMMAND is prune, search, sweep or train with its options, without --seed and --run, which it gets for each seed.
    Or it is finetune or scratch without RUN, which trains the runs of these seeds that are in the folder already. In
    its options, {seed} stands for the seed. Scores are those after the last epoch. A seed that fails does not stop the
    others; the exit code is then 1.

    \b
    Example:
        aacp repeat --seeds 0,1,2 --run runs/three -- prune resnet56 --weights runs/base/seed-{seed}/weights.safetensors
          --data cifar10:PATH --prune-macs 0.5
    """
    inner = RepeatedCommand.of(context, command, Path(folder) / f"seed-{seeds[0]}")
    from aacp.disk.writing import remove_file
    from aacp.pipeline.repeat import repeat_request
    from aacp.pipeline.reporting import report_line
    from aacp.report.page import FILE
    from aacp.runs.repeats import file_name

    if inner.name in NEW_RUNS:
        _check_other_commands(Path(folder), inner)
    if inner.replaces:
        remove_file(Path(folder) / file_name(inner.label))
    with resumable(folder):
        found, unreported = repeat_request(inner.run, seeds, folder, inner.label, inner.request)
    page = {"report": None if unreported else str(Path(folder) / FILE), "no_report": unreported}
    line = report_line(Path(folder), unreported)
    show(f"{found}\nfolder: {folder}\n{line}", {**found.to_json(), **page}, as_json)
    if found.failed:
        context.exit(FAILED)


@dataclass(frozen=True)
class RepeatedCommand:
    """A command to repeat: its name, its arguments as given, and the options that all seeds share."""

    name: str
    arguments: tuple[str, ...]
    request: dict[str, Any]
    replaces: bool = False  # whether --again replaces an earlier training

    @classmethod
    def of(cls, context: click.Context, command: tuple[str, ...], folder: Path) -> RepeatedCommand:
        """The command as given, parsed, so that mistakes are reported before any seed is run.

        Args:
            context: that of aacp repeat.
            command: the name of the command and its arguments.
            folder: the folder of the first seed.
        """
        name, *arguments = command
        group = context.find_root().command
        assert isinstance(group, click.Group)
        inner = group.get_command(context, name) if name in (*NEW_RUNS, *TRAININGS) else None
        if inner is None:
            known = advice(name, (*NEW_RUNS, *TRAININGS))
            raise click.UsageError(f"{name!r} cannot be repeated with other seeds. {known}")
        given = [*arguments, *([str(folder)] if name in TRAININGS else [])]
        parsed = inner.make_context(name, given, parent=context)
        _reject_own_options(parsed)
        request = {key: value for key, value in parsed.params.items() if key not in CIRCUMSTANCES}
        written = json.loads(json.dumps({"command": name, **request}))
        return cls(name, tuple(arguments), written, bool(parsed.params.get("again")))

    @property
    def label(self) -> str:
        """The name of the results in the folder: that of the training (--as), or else of the command."""
        is_named = self.name in TRAININGS and self.request["training"] is not None
        return str(self.request["training"]) if is_named else self.name

    def run(self, seed: int, folder: Path) -> Groups:
        """Run the command for one seed, in a process of its own, and return its metrics."""
        return groups_of(self.name, _output(self.command_line(seed, folder)), folder)

    def command_line(self, seed: int, folder: Path) -> list[str]:
        """The command of one seed, as it could be given without aacp repeat."""
        given = [argument.replace(PLACEHOLDER, str(seed)) for argument in self.arguments]
        own = [str(folder)] if self.name in TRAININGS else ["--seed", str(seed), "--run", str(folder)]
        return [self.name, *given, *own, "--json"]


def _check_other_commands(folder: Path, inner: RepeatedCommand) -> None:
    """Reject a folder whose runs another command started, except that aacp prune may continue from aacp search."""
    from aacp.pipeline.repeat import require_same_options
    from aacp.runs.folder import RunFolder
    from aacp.runs.repeats import Repetition, file_name

    for other in NEW_RUNS:
        known = None if other == inner.name else RunFolder(folder).read(file_name(other), Repetition.from_json)
        if known is None:
            continue
        names = set(known.request) & set(inner.request)
        if {other, inner.name} == {"prune", "search"}:
            names.remove("command")
        require_same_options(folder, known.request, inner.request, sorted(names))


def _reject_own_options(parsed: click.Context) -> None:
    """Reject --seed and --run of the repeated command."""
    options = {"seed": "--seed", "folder": "--run"}
    for parameter in parsed.command.params:
        is_given = parsed.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Option) and parameter.name in options and is_given:
            own = options[parameter.name]
            raise click.UsageError(
                f"The repeated command has {own}, but each seed gets its own. Leave it out after --, and give "
                "--seeds and --run before it."
            )


def _output(arguments: list[str]) -> Any:
    """What an aacp command prints as JSON; its messages are passed on to the standard error output."""
    command = [sys.executable, "-m", "aacp.commands.seed", str(os.getpid()), *arguments]
    messages: deque[str] = deque(maxlen=1)
    with tempfile.TemporaryFile("w+") as printed:
        with subprocess.Popen(command, stdout=printed, stderr=subprocess.PIPE, text=True) as process:
            reader = threading.Thread(target=_pass_on, args=(process.stderr, messages))
            reader.start()
            try:
                _wait_for(process)
            finally:
                reader.join()
        if process.returncode == INTERRUPTED:
            raise KeyboardInterrupt
        if process.returncode:
            reason = f": {messages[0]}" if messages else ""
            raise WorkerFailed(f"aacp {arguments[0]} ended with exit code {process.returncode}{reason}")
        printed.seek(0)
        return json.loads(printed.read())


def _pass_on(stream: IO[str], messages: deque[str]) -> None:
    """Copy the lines of a stream to the standard error output, and keep those that are not empty."""
    for line in stream:
        sys.stderr.write(line)
        if line.strip():
            messages.append(line.strip())


def _wait_for(process: subprocess.Popen[str]) -> None:
    """Wait until a process ends; after Ctrl-C too, so that it can save its state."""
    try:
        process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(SECONDS_TO_STOP)  # a terminal has sent Ctrl-C to that process as well
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
        raise


def groups_of(command: str, printed: Mapping[str, Any], folder: Path) -> Groups:
    """The metrics in what a command printed as JSON."""
    from aacp.pipeline.repeat import export_of, metric_of, sweep_groups
    from aacp.runs.chosen import ChosenStructure
    from aacp.runs.folder import RunFolder
    from aacp.runs.repeats import choice_metrics, evaluation_metrics
    from aacp.runs.scores import Evaluation

    if command == "train":
        return {"": {name: value for name, value in printed.items() if name.endswith("accuracy") and value is not None}}
    if command == "sweep":
        runs = [
            (
                RunFolder(run["folder"]),
                ChosenStructure.from_json(run["choice"]),
                Evaluation.from_json(run["evaluation"]) if run["evaluation"] else None,
            )
            for run in printed["runs"]
        ]
        return sweep_groups(runs)
    place = RunFolder(folder)
    if command == "search":
        return {"": choice_metrics(ChosenStructure.from_json(printed), metric_of(place))}
    evaluation = Evaluation.from_json(printed)
    return {"": evaluation_metrics(evaluation, export_of(place, evaluation), metric_of(place))}
