"""Every option of the commands that prune has an effect: it is written down in run.json, or is seen elsewhere.

The options are those that each command declares, so that a new one without a check fails here. A run is stopped as soon
as its request is written down. What a request does to a run is tested in the other files of this folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import nn

import aacp
from aacp.cli import main
from glue import subjects
from glue.subjects import Stopping
from latency_bench import save_table_of_here
from sampling import sampled

pytestmark = pytest.mark.slow

MODEL = "glue.subjects:stopping"
DATA = ("--data", "glue.subjects:data", "--device", "cpu")
LIMIT = ("--prune-macs", "0.5")
CIRCUMSTANCES = ("command", "started", "versions", "hardware")
INTERRUPTED = 130


GONE = "gone"  # a setting that is not written down any more


class Another:
    """Equal to whatever is there: a setting whose value only has to differ."""

    def __eq__(self, other: object) -> bool:
        return other != GONE

    __hash__ = None


@dataclass(frozen=True)
class Check:
    """An option as it is given, beside others that it needs, and all that it changes in the request."""

    given: tuple[str, ...]
    changes: dict[str, Any]
    limit: tuple[str, ...] = LIMIT


def limited(cost: str, rate: float | None = None, at_most: float | None = None) -> dict[str, Any]:
    """The change that puts another limit in the place of the one on MACs."""
    changes = {} if cost == "macs" else {"limits.macs": GONE}
    return {**changes, f"limits.{cost}": (rate, at_most)}


MAX_DROP = ("--max-drop", "2", "--shrink", "params")
DROPPED = {"max_drop": 0.02, "shrink": "params"}
LATENCY = ("--prune-latency", "0.3")

CHECKS = {
    # -- what is pruned
    "model": Check((), {"model": "glue.subjects:stopping_too"}),  # see `arguments_of`
    "data": Check(
        ("--data", "glue.subjects:other_data"),
        {"data": "other digits", "data_source": "glue.subjects:other_data"},
    ),
    "weights": Check(("--weights", "FILE"), {"weights": Another(), "weights_file": Another()}),
    "metric": Check(
        ("--metric", "glue.subjects:metric"), {"metric": "metric", "metric_source": "glue.subjects:metric"}
    ),
    "loss": Check(("--loss", "glue.subjects:loss"), {"loss": "loss", "loss_source": "glue.subjects:loss"}),
    # -- limits
    "prune_macs": Check((), limited("macs", 0.4), ("--prune-macs", "0.4")),
    "prune_params": Check((), limited("params", 0.4), ("--prune-params", "0.4")),
    "prune_channels": Check((), limited("channel_count", 0.4), ("--prune-channels", "0.4")),
    "prune_size": Check((), limited("file_size", 0.1), ("--prune-size", "0.1")),
    "prune_memory": Check((), limited("activation_bytes", 0.4), ("--prune-memory", "0.4")),
    "prune_latency": Check((), limited("latency", 0.4), ("--prune-latency", "0.4")),
    "max_macs": Check((), limited("macs", None, 60e3), ("--max-macs", "60k")),
    "max_params": Check((), limited("params", None, 3000.0), ("--max-params", "3k")),
    "max_channels": Check((), limited("channel_count", None, 30.0), ("--max-channels", "30")),
    "max_size": Check((), limited("file_size", None, 30000.0), ("--max-size", "30kB")),
    "max_memory": Check((), limited("activation_bytes", None, 2000.0), ("--max-memory", "2kB")),
    "max_latency": Check((), limited("latency", None, 0.003), ("--max-latency", "3ms")),
    # -- the search
    "pruning_step": Check(("--step", "4"), {"pruning_step": 4}),
    "method": Check(("--method", "de"), {"method": "de", "evaluations": 2000}),  # its own default
    "evaluations": Check(("--evaluations", "7"), {"evaluations": 7}),
    "proposals": Check(("--proposals", "5"), {"proposals": 5}),
    "workers": Check(("--workers", "2"), {"proposals": 8}),  # a constant, whatever the number of workers
    "screening": Check(("--screening", "0.2"), {"screening": 0.2}),
    "importance": Check(("--importance", "random"), {"importance": "random"}),
    "reconstruction": Check(("--reconstruction", "repair"), {"reconstruction": "repair"}),
    "calibration_images": Check(("--calibration", "33"), {"calibration_images": 33}),
    "frozen": Check(("--frozen", "conv1", "--frozen", "conv3"), {"frozen": ["conv1", "conv3"]}),
    "scope": Check(("--scope", "inner"), {"scope": "inner"}),
    "parts": Check(
        ("--part", "body"), {"parts": ["body"], "model": "glue.subjects:with_body", "weights": Another()}
    ),  # see `arguments_of`
    "tie": Check(("--tie", "conv1, conv3"), {"tie": [["conv1", "conv3"]]}),
    "seed": Check(("--seed", "5"), {"seed": 5, "recipe.seed": 5, "weights": Another()}),  # weights are drawn by it
    "max_drop": Check(("--max-drop", "2"), {"max_drop": 0.02, "limits.macs": GONE}, ()),
    "shrink": Check(("--max-drop", "2", "--shrink", "size"), {"max_drop": 0.02, "shrink": "file_size"}),
    "probe_epochs": Check(
        (*MAX_DROP, "--probe-epochs", "3"), {**DROPPED, "probe_epochs": 3, "probe_recipe": Another()}
    ),
    "finalists": Check(("--finalists", "4"), {"finalists": 4, "rungs": [3, 10, 30], "finalist_training": Another()}),
    "rungs": Check(
        ("--finalists", "4", "--rungs", "2,5"), {"finalists": 4, "rungs": [2, 5], "finalist_training": Another()}
    ),
    # -- where it will run
    "runtime": Check(("--runtime", "torch"), {"deployment.runtime": "torch"}),
    "runs_on": Check(
        ("--runs-on", "cuda", "--runtime", "torch", "--no-export"),
        {"deployment.device": "cuda", "deployment.runtime": "torch", "export": False},
    ),
    "batch": Check(("--batch", "16"), {"deployment.batch": 16}),
    "threads": Check(("--threads", "1"), {"deployment.threads": 1}),
    "precision": Check(
        ("--precision", "int8", "--runtime", "latency.own_int8:OWN"),
        {"deployment.precision": "int8", "deployment.runtime": "latency.own_int8:OWN"},
    ),
    "latency_table": Check(("--table", "TABLE"), {**limited("latency", 0.3), "latency_table": Another()}, LATENCY),
    # -- training
    "recipe": Check(("--recipe", "base"), {"recipe.lr": 0.1, "recipe.distillation": 0.0}),
    "epochs": Check(("--epochs", "50"), {"recipe.epochs": 50, "recipe.warmup_epochs": 1.0, "recipe.lr": 0.025}),
    "lr": Check(("--lr", "0.007"), {"recipe.lr": 0.007}),
    "batch_size": Check(("--batch-size", "24"), {"recipe.batch_size": 24}),
    "train_on_holdout": Check(("--train-on-holdout",), {"train_on_holdout": True}),
    "scratch": Check(
        ("--scratch",),
        {
            "from_scratch": True,
            "init": "network",
            "training": "scratch",
            "recipe.lr": 0.1,
            "recipe.distillation": 0.0,
        },
    ),
    "init": Check(
        ("--scratch", "--init", "he"),
        {"from_scratch": True, "init": "he", "training": "scratch", "recipe.lr": 0.1, "recipe.distillation": 0.0},
    ),
    "training": Check(("--as", "mine"), {"training": "mine"}),
    "teacher": Check(("--teacher", "glue.subjects:tiny", "--teacher-weights", "FILE"), {"teacher": Another()}),
    "teacher_weights": Check(("--teacher", "glue.subjects:tiny", "--teacher-weights", "FILE"), {"teacher": Another()}),
    "no_training": Check(("--no-training",), {"recipe": None, "training": "untrained", "reconstruction": "repair"}),
    "mimic": Check(
        ("--no-training", "--mimic", "7"),
        {"recipe": None, "training": "mimicked", "mimic": 7, "reconstruction": "repair"},
    ),
    "no_export": Check(("--no-export",), {"export": False}),
    "resources": Check(("--resources",), {"resources": True}),
}


# -- a command that stops once its request is written down -------------------------------------------------------------


@pytest.fixture(autouse=True)
def _never_stopped_afterwards() -> Iterator[None]:
    yield
    Stopping.is_due = staticmethod(lambda: False)


def invoke(*arguments: str | Path) -> click.testing.Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def requested(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """What a command writes down, of the search and of the training, stopped then."""
    last = "training.json" if arguments[0] in ("prune", "finetune", "scratch") or "--train" in arguments else "run.json"

    def is_written() -> bool:
        return any(folder.rglob(last)) and any(folder.rglob("run.json"))

    Stopping.is_due = staticmethod(is_written)
    result = invoke(*arguments)
    assert result.exit_code == INTERRUPTED, result.output
    (file,) = [path for path in folder.rglob("run.json") if path.parent.name != "training"]
    search = settings(json.loads(file.read_text()))
    trained = list(folder.rglob("training.json"))
    if not trained:
        return search
    (file,) = trained
    return {**search, **settings(json.loads(file.read_text())), "training": file.parent.name}


def settings(request: dict[str, Any]) -> dict[str, Any]:
    """A request as settings by name: those of recipe and deployment one by one, limits by their costs."""
    found = {name: value for name, value in request.items() if name not in CIRCUMSTANCES}
    limits = found.pop("limits", ())
    found |= {f"limits.{limit['cost']}": (limit["pruning_rate"], limit["at_most"]) for limit in limits}
    for name in ("recipe", "deployment"):
        if name not in found:
            continue
        inner = found.pop(name)
        found |= {name: None} if inner is None else {f"{name}.{key}": value for key, value in inner.items()}
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ, as they are afterwards; a recipe that is left out differs as a whole."""
    pairs = {name: (before.get(name, GONE), after.get(name, GONE)) for name in {**before, **after}}
    found = {name: new for name, (old, new) in pairs.items() if old != new}
    has_recipe = after.get("recipe", GONE) is not None
    return {name: value for name, value in found.items() if has_recipe or not name.startswith("recipe.")}


def arguments_of(command: str, name: str, folder: Path, file: Path) -> list[str | Path]:
    """A command with an option in the place of its default, and with what else the option needs."""
    check = CHECKS[name]
    model = {"model": "glue.subjects:stopping_too", "parts": "glue.subjects:with_body"}.get(name, MODEL)
    limit = check.limit
    always = ("--train",) if command == "sweep" else ()
    files = {"FILE": file, "TABLE": file.with_name("table.json")}
    given = [files.get(argument, argument) for argument in check.given]
    return [command, model, *DATA, *limit, *always, "--run", folder, *given]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, beside a latency table."""
    path = tmp_path_factory.mktemp("files") / "weights.safetensors"
    save_table_of_here(path.with_name("table.json"))
    save_file(nn.Module.state_dict(Stopping()), path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is written down without any option, by command."""
    found = {}
    for command in ("prune", "search", "sweep"):
        folder = tmp_path_factory.mktemp(command)
        always = ("--train",) if command == "sweep" else ()
        found[command] = requested(folder, command, MODEL, *DATA, *LIMIT, *always, "--run", folder)
    return found


def options_of(*commands: str) -> list[tuple[str, str]]:
    """Every option and argument of commands, as they declare them."""
    return [(command, parameter.name) for command in commands for parameter in main.commands[command].params]


# The commands share their options: those of `prune` are all checked in `make test`, and of the others a sample and
# those that each command passes on by itself.
OWN = [("search", "known_from"), ("sweep", "known_from")]
SHARED = [option for option in options_of("search", "sweep") if option not in OWN]


@pytest.mark.parametrize(("command", "name"), [*options_of("prune"), *OWN, *sampled(SHARED, 3)])
def test_every_option_has_an_effect(command: str, name: str, plain, file: Path, tmp_path: Path) -> None:
    if (command, name) in ELSEWHERE or name in ELSEWHERE:
        ELSEWHERE.get((command, name), ELSEWHERE.get(name))(command, tmp_path)
        return
    assert name in CHECKS, f"{name} of aacp {command} is new: add what it changes in run.json to CHECKS"
    after = requested(tmp_path, *arguments_of(command, name, tmp_path, file))
    assert changes(plain[command], after) == expected(command, name)


def expected(command: str, name: str) -> dict[str, Any]:
    """What an option changes with a command."""
    given = dict(CHECKS[name].changes)
    if command == "search":  # which does not train
        given = {setting: value for setting, value in given.items() if not setting.startswith("recipe.")}
    return given


def test_the_defaults_are_those_of_the_library(plain: dict[str, dict[str, Any]]) -> None:
    defaults = aacp.Plan()
    for command in ("prune", "search", "sweep"):
        written = plain[command]
        assert written["evaluations"] == defaults.search_length
        for name in ("pruning_step", "method", "importance", "calibration_images", "seed"):
            assert written[name] == getattr(defaults, name), (command, name)
        assert written["scope"] == "all"
        assert written["deployment.runtime"] == defaults.deployment.runtime
        assert written["limits.macs"] == (0.5, None)
    assert plain["prune"]["recipe.lr"] == defaults.recipe.lr
    assert "recipe" not in plain["search"]


def test_with_a_metric_the_drop_is_in_its_own_unit(tmp_path: Path) -> None:
    given = ("--max-drop", "2", "--metric", "glue.subjects:metric")
    assert requested(tmp_path, "prune", MODEL, *DATA, "--run", tmp_path, *given)["max_drop"] == 2.0


@pytest.mark.parametrize("command", ["prune", "sweep"])
def test_the_hold_out_does_not_depend_on_the_seed(command: str, tmp_path: Path) -> None:
    """A network that `aacp train` trained with one seed may be pruned with others."""
    held_out = []
    for seed in ("0", "2"):
        folder = tmp_path / seed
        subjects.judged_by.clear()
        given = ("--data", "glue.subjects:pair", "--metric", "glue.subjects:metric", "--seed", seed)
        always = ("--train",) if command == "sweep" else ()
        requested(folder, command, MODEL, *DATA, *LIMIT, *always, *given, "--run", folder)
        held_out.append(subjects.judged_by[0])
    assert {part for part, _ in held_out[0]} == {"train"}
    assert held_out[0] == held_out[1]
    data = subjects.pair()
    assert len(held_out[0]) == len(aacp.Data.of(*data).holdout) < len(data[0])


# -- what is not written down ------------------------------------------------------------------------------------------


def device_is_used(command: str, folder: Path) -> None:
    """A device that does not exist is rejected."""
    result = invoke(command, MODEL, *DATA, *LIMIT, "--run", folder / "run", "--device", "cuda:77")
    assert (result.exit_code, result.stderr.startswith("InvalidOption: ")) == (1, True)
    assert "CUDA device" in result.stderr


def folder_is_used(command: str, folder: Path) -> None:
    requested(folder / "a" / "b", command, MODEL, *DATA, *LIMIT, "--run", folder / "a" / "b")
    assert list((folder / "a" / "b").rglob("run.json"))


def json_is_printed(command: str, folder: Path) -> None:
    """A whole run, and the same command again for people."""
    short = ("--evaluations", "2", "--calibration", "16", "--run", folder)
    lean = {"prune": ("--no-training", "--no-export"), "search": (), "sweep": ()}[command]
    arguments = (command, "glue.subjects:tiny", *DATA, *LIMIT, *short, *lean)
    found = invoke(*arguments, "--json")
    assert found.exit_code == 0, found.output
    assert isinstance(json.loads(found.stdout), dict)
    with pytest.raises(json.JSONDecodeError):
        json.loads(invoke(*arguments).stdout)


def training_is_optional(command: str, folder: Path) -> None:
    """--train of a sweep: without it the request has no recipe."""
    written = requested(folder, command, MODEL, *DATA, *LIMIT, "--run", folder)
    assert "recipe" not in written


def again_is_used(command: str, folder: Path) -> None:
    """A finished training is kept unless it is requested again."""
    short = ("--evaluations", "2", "--calibration", "16", "--run", folder, "--no-export")
    lean = {"prune": ("--no-training",), "sweep": ("--train", "--epochs", "1")}[command]
    arguments = (command, "glue.subjects:tiny", *DATA, *LIMIT, *short, *lean)
    times = []
    for again in ((), (), ("--again",)):
        result = invoke(*arguments, *again)
        assert result.exit_code == 0, result.output
        (file,) = folder.rglob("pruned.safetensors")
        times.append(file.stat().st_mtime_ns)
    assert times[0] == times[1] != times[2]


def processes_are_used(command: str, folder: Path) -> None:
    """Three processes cannot share a batch of 128; that is found before the search."""
    always = ("--train",) if command == "sweep" else ()
    result = invoke(command, MODEL, *DATA, *LIMIT, *always, "--processes", "3", "--run", folder)
    assert result.exit_code == 1
    assert "A batch of 128 cannot be divided among 3 processes" in result.stderr


def runs_on_is_used(command: str, folder: Path) -> None:
    """A search promises an export for later, whose device has to exist."""
    result = invoke(command, MODEL, *DATA, *LIMIT, "--runtime", "torch", "--runs-on", "tpu", "--run", folder)
    assert (result.exit_code, "'tpu'" in result.stderr) == (1, True)


def most_latency_is_used(command: str, folder: Path) -> None:
    """A sweep measures before it writes requests down, and rejects what is out of reach."""
    result = invoke(command, MODEL, *DATA, "--max-latency", "1us", "--runtime", "torch", "--run", folder)
    assert result.exit_code == 1
    assert "InfeasibleBudget: latency: at most 1us" in result.stderr


def share_of_latency_is_used(command: str, folder: Path) -> None:
    result = invoke(command, MODEL, *DATA, "--prune-latency", "0.99", "--runtime", "torch", "--run", folder)
    assert result.exit_code == 1
    assert "InfeasibleBudget: latency: 99 % less" in result.stderr


def table_is_used(command: str, folder: Path) -> None:
    """A sweep reads the table before it writes requests down."""
    file = folder / "table.json"
    file.write_text("{}")
    result = invoke(command, MODEL, *DATA, *LATENCY, "--table", file, "--run", folder / "run")
    assert result.exit_code == 1
    assert f"GraphMismatch: {file}" in result.stderr


def holdout_is_used(command: str, folder: Path) -> None:
    """A number of examples is held out, and written down."""
    subjects.judged_by.clear()
    given = ("--data", "glue.subjects:pair", "--metric", "glue.subjects:metric", "--holdout", "30")
    written = requested(folder, command, MODEL, *DATA, *LIMIT, *given, "--run", folder)
    assert written["holdout"] == 30
    assert not subjects.judged_by or len(subjects.judged_by[0]) == 30  # a search is stopped before it judges


def cache_is_used(command: str, folder: Path) -> None:
    """Data that is not decoded cannot be cached."""
    result = invoke(command, MODEL, *DATA, *LIMIT, "--run", folder, "--cache", folder / "pixels")
    assert (result.exit_code, "would ignore it" in result.stderr) == (1, True)


def earlier_runs_are_used(command: str, folder: Path) -> None:
    """Folders of other runs are written down, in their order."""
    task = (MODEL, *DATA, *LIMIT)
    earlier = [folder / "a", folder / "b"]
    for place in earlier:
        requested(place, "search", *task, "--run", place)
    given = [argument for place in earlier for argument in ("--from", place)]
    written = requested(folder / "run", command, *task, "--run", folder / "run", *given)
    assert written["known_from"] == [str(place) for place in earlier]


ELSEWHERE: dict[str | tuple[str, str], Callable[[str, Path], None]] = {
    "device": device_is_used,
    "holdout": holdout_is_used,
    "cache": cache_is_used,
    "known_from": earlier_runs_are_used,
    "folder": folder_is_used,
    "as_json": json_is_printed,
    "train": training_is_optional,
    "again": again_is_used,
    "processes": processes_are_used,
    ("search", "runs_on"): runs_on_is_used,
    ("sweep", "max_latency"): most_latency_is_used,
    ("sweep", "prune_latency"): share_of_latency_is_used,
    ("sweep", "latency_table"): table_is_used,
}


# -- finetune and scratch ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search that has ended."""
    folder = tmp_path_factory.mktemp("searched")
    short = ("--evaluations", "2", "--calibration", "16", "--seed", "3", "--run", folder)
    result = invoke("search", MODEL, *DATA, *LIMIT, *short)
    assert result.exit_code == 0, result.output
    return folder


FINISHING = (
    "recipe", "epochs", "lr", "batch_size", "train_on_holdout", "no_export", "resources", "data", "cache", "metric",
    "loss", "seed", "training", "init", "teacher", "teacher_weights",
)  # fmt: skip
NAMED = ("model", "weights", "device", "folder", "as_json", "again", "processes", "trust")  # seen elsewhere
# The options that mean something else than in a command that searches too.
LATER = {
    "recipe": Check(("--recipe", "digits"), {}),
    "seed": Check(("--seed", "5"), {"recipe.seed": 5}),
    "init": Check(("--init", "he"), {"init": "he"}),
}


OF_SCRATCH_ALONE = ("scratch", "init")
SHARED_BY_SCRATCH = [option for option in options_of("scratch") if option != OF_SCRATCH_ALONE]


@pytest.mark.parametrize(
    ("command", "name"), [*options_of("finetune"), OF_SCRATCH_ALONE, *sampled(SHARED_BY_SCRATCH, 3)]
)
def test_every_option_of_what_follows_a_search_has_an_effect(
    command: str, name: str, searched: Path, file: Path, tmp_path: Path
) -> None:
    if name in NAMED:
        return
    assert name in FINISHING, f"{name} of aacp {command} is new: add it to FINISHING"
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        shutil.copytree(searched, folder)
    plain = requested(before, command, before, "--device", "cpu", "--trust")
    assert plain["from_scratch"] is (command == "scratch")
    assert plain["recipe.seed"] == 3
    if name == "cache":
        result = invoke(command, after, "--cache", tmp_path / "pixels", "--trust")
        assert (result.exit_code, "would ignore it" in result.stderr) == (1, True)
        return
    if name in ("data", "metric"):  # other than the search's, they are rejected
        Stopping.is_due = staticmethod(lambda: False)
        result = invoke(command, after, *CHECKS[name].given, "--device", "cpu", "--trust")
        assert (result.exit_code, "RunMismatch" in result.stderr) == (1, True)
        return
    check = LATER.get(name, CHECKS[name])
    given = [file if argument == "FILE" else argument for argument in check.given]
    found = changes(plain, requested(after, command, after, "--device", "cpu", "--trust", *given))
    if name == "recipe":
        assert found["recipe.label_smoothing"] == 0.1
    elif name == "loss":
        assert found["loss"] == "loss"
    elif (command, name) == ("scratch", "epochs"):  # few epochs lower the rate of fine-tuning alone
        assert found == {"recipe.epochs": 50, "recipe.warmup_epochs": 1.0}
    else:
        assert found == check.changes


def test_a_search_that_took_over_evaluations_can_be_finished(searched: Path, tmp_path: Path) -> None:
    short = ("--evaluations", "2", "--calibration", "16", "--seed", "3", "--from", searched, "--run", tmp_path)
    assert invoke("search", MODEL, *DATA, "--prune-macs", "0.4", *short).exit_code == 0
    found = requested(tmp_path, "finetune", tmp_path, "--device", "cpu", "--trust")
    assert found["known_from"] == [str(searched)]
