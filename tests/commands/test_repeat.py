"""aacp repeat: another command once for each seed, each in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aacp.cli import main
from aacp.commands import repeat as module
from aacp.errors import WorkerFailed

SMALL = ("--data", "digits", "--evaluations", "3", "--calibration", "64", "--device", "cpu")
PRUNE = ("prune", "digits_resnet", *SMALL, "--prune-macs", "0.5", "--no-export", "--epochs", "1")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would be started, one per seed; a command with the seed 13 fails."""
    commands: list[list[str]] = []

    def output(arguments: list[str]) -> Any:
        commands.append(arguments)
        seed = int(Path(arguments[-2]).name.removeprefix("seed-"))
        if seed == 13:
            raise WorkerFailed("aacp prune ended with exit code 1: Diverged: the loss is NaN")
        before = {"test": 0.9, "holdout": 0.9, "macs": 1000}
        return {"before": before, "after": {"test": 0.8 + seed / 100, "holdout": None, "macs": 500}}

    monkeypatch.setattr(module, "_output", output)
    return commands


def test_each_seed_is_the_ordinary_command_in_a_folder_of_its_own(started: list[list[str]], tmp_path: Path) -> None:
    weights = ("--weights", "base-{seed}.pt")
    code, out, err = run("repeat", "--seeds", "0,5", "--run", tmp_path, "--json", "--", *PRUNE, *weights)
    assert code == 0, err
    own = [(seed, ["--seed", str(seed), "--run", str(tmp_path / f"seed-{seed}"), "--json"]) for seed in (0, 5)]
    assert started == [[*PRUNE, "--weights", f"base-{seed}.pt", *last] for seed, last in own]
    assert f"{tmp_path}: seed 5, 2 of 2\n" in err
    found = json.loads(out)
    assert found["spreads"][""]["test accuracy after"]["values"] == pytest.approx([0.8, 0.85])
    assert [run["seed"] for run in found["runs"]] == [0, 5]
    assert (found["report"], found["no_report"]) == (str(tmp_path / "report.html"), "")
    assert (tmp_path / "report.html").is_file()


def test_a_failed_seed_is_named_and_the_exit_code_says_so(started: list[list[str]], tmp_path: Path) -> None:
    code, out, _ = run("repeat", "--seeds", "1,13,2", "--run", tmp_path, *PRUNE)
    assert code == 1
    assert "2 of 3 seeds finished" in out
    assert "seed 13 failed: WorkerFailed: aacp prune ended with exit code 1: Diverged: the loss is NaN" in out
    assert len(started) == 3
    assert out.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"


def test_without_a_finished_seed_there_is_no_report(started: list[list[str]], tmp_path: Path) -> None:
    _, out, _ = run("repeat", "--seeds", "13", "--run", tmp_path, *PRUNE)
    assert out.splitlines()[-1] == "no report: No seed finished."
    assert not (tmp_path / "report.html").exists()


def test_a_training_is_repeated_in_the_runs_that_are_there(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "seed-3").mkdir()
    code, _, err = run("repeat", "--seeds", "3", "--run", tmp_path, "--", "finetune", "--epochs", "2")
    assert code == 0, err
    assert started == [["finetune", "--epochs", "2", str(tmp_path / "seed-3"), "--json"]]


def test_named_trainings_have_results_of_their_own(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "seed-3").mkdir()
    repeated = ("repeat", "--seeds", "3", "--run", tmp_path, "--")
    assert run(*repeated, "finetune", "--as", "F", "--epochs", "2")[0] == 0
    assert run(*repeated, "scratch", "--as", "S", "--epochs", "2")[0] == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["repeat-F.json", "repeat-S.json"]
    code, _, err = run(*repeated, "finetune", "--as", "F", "--epochs", "3")
    assert (code, "epochs: 2 then, 3 now" in err) == (1, True)
    assert run(*repeated, "finetune", "--as", "F", "--epochs", "3", "--again")[0] == 0
    assert len(started) == 3


def test_other_options_order_and_circumstances_are_the_same_request(started: list[list[str]], tmp_path: Path) -> None:
    repeated = ("repeat", "--seeds", "1,2", "--run", tmp_path, "--")
    assert run(*repeated, *PRUNE)[0] == 0
    name, model, *options = PRUNE
    assert run(*repeated, name, *options, "--device", "cuda", model)[0] == 0
    code, _, err = run(*repeated, *PRUNE, "--evaluations", "4")
    assert code == 1
    assert "holds seeds of another request: evaluations: 3 then, 4 now. Repeat the earlier request" in err
    assert len(started) == 4


def test_a_training_that_needs_trust_is_repeated_with_it(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "seed-13").mkdir()  # whose command fails, as without trust
    repeated = ("repeat", "--seeds", "13", "--run", tmp_path, "--", "finetune", "--epochs", "2")
    assert run(*repeated)[0] == 1
    assert "holds seeds of another request" not in run(*repeated, "--trust")[2]
    assert started[1] == ["finetune", "--epochs", "2", "--trust", str(tmp_path / "seed-13"), "--json"]


def test_seeds_may_have_other_numbers_of_workers(started: list[list[str]], tmp_path: Path) -> None:
    repeated = ("repeat", "--seeds", "1", "--run", tmp_path, *PRUNE, "--proposals", "8")
    path = tmp_path / "repeat-prune.json"
    assert run(*repeated)[0] == 0
    found = json.loads(path.read_text())
    found["request"] |= {"workers": None, "trust": False}  # as an older version recorded them
    path.write_text(json.dumps(found))
    assert run(*repeated, "--workers", "4")[0] == 0
    assert len(started) == 2


def test_prune_continues_from_a_search_and_no_other_command_does(started: list[list[str]], tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "repeat-search.json").write_text(
        json.dumps({"name": "search", "runs": [], "request": {"command": "search", "prune_macs": "0.5"}})
    )
    assert run("repeat", "--seeds", "1", "--run", tmp_path, *PRUNE)[0] == 0
    code, _, err = run("repeat", "--seeds", "1", "--run", tmp_path, *PRUNE, "--prune-macs", "0.6")
    assert (code, "prune macs: 0.5 then, 0.6 now" in err) == (1, True)
    code, _, err = run("repeat", "--seeds", "1", "--run", tmp_path, "train", "digits_resnet", "--data", "digits")
    assert (code, "command: search then, train now" in err or "command: prune then, train now" in err) == (1, True)
    assert len(started) == 1


@pytest.mark.parametrize(
    ("seeds", "command", "words"),
    [
        ("0,1,0", PRUNE, "contains a seed more than once. Give each seed once."),
        ("0,x", PRUNE, "not a list of seeds"),
        ("0", (*PRUNE, "--seed", "0"), "The repeated command has --seed, but each seed gets its own."),
        ("0", (*PRUNE, "--run", "runs/x"), "The repeated command has --run"),
        ("0", ("evaluate", "digits_resnet"), "'evaluate' cannot be repeated with other seeds. Choose from prune,"),
        ("0", ("prune", "digits_resnet"), "Missing option '--data'"),
        ("0", (*PRUNE, "--no-such"), "No such option"),
        ("0", ("finetune",), "does not exist"),
    ],
)
def test_mistakes_are_reported_before_any_seed_is_run(
    seeds: str, command: tuple[str, ...], words: str, started: list[list[str]], tmp_path: Path
) -> None:
    code, out, err = run("repeat", "--seeds", seeds, "--run", tmp_path / "new", "--", *command)
    assert (code, out, started) == (2, "", [])
    assert words in err
    assert not (tmp_path / "new").exists()


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in place of Python."""
    path = tmp_path / "program"
    monkeypatch.setattr(sys, "executable", str(path))
    return path


def write(program: Path, *lines: str) -> None:
    program.write_text("\n".join(["#!/bin/sh", *lines]))
    program.chmod(0o755)


def test_a_command_gives_its_json_and_its_messages(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(program, 'echo "searching" >&2', 'echo \'{"given": "\'"$*"\'"}\'')
    assert module._output(["prune", "--json"]) == {"given": f"-m aacp.commands.seed {os.getpid()} prune --json"}
    assert capsys.readouterr().err == "searching\n"


def test_a_large_output_does_not_block(program: Path) -> None:
    write(program, "printf '\"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"'; echo done >&2")
    assert len(module._output(["prune"])) == 300_000


def test_a_command_that_fails_is_quoted(program: Path) -> None:
    write(program, "echo first >&2", "echo 'InvalidOption: nothing. Do this.' >&2", "echo >&2", "exit 3")
    with pytest.raises(WorkerFailed, match=r"aacp sweep ended with exit code 3: InvalidOption: nothing. Do this.$"):
        module._output(["sweep"])


def test_a_command_that_was_interrupted_interrupts_the_others(program: Path, tmp_path: Path) -> None:
    write(program, "exit 130")
    code, _, err = run("repeat", "--seeds", "0,1", "--run", tmp_path / "r", *PRUNE)
    assert code == 130
    assert "The same command resumes from" in err


@pytest.mark.slow
def test_a_real_run_has_its_seed_and_its_folder(tmp_path: Path) -> None:
    """Another call starts the same command in the same folder, and `aacp search` resumes there."""
    options = ("--run", tmp_path, "--json", "--", "search", "digits_resnet", *SMALL, "--prune-macs", "0.5")
    code, out, err = run("repeat", "--seeds", "5", *options)
    assert code == 0, err
    request = json.loads((tmp_path / "seed-5" / "run.json").read_text())
    assert request["seed"] == 5
    assert request["command"].startswith("aacp search digits_resnet ")
    assert len((tmp_path / "seed-5" / "history.jsonl").read_text().splitlines()) == 3
    assert [each["seed"] for each in json.loads(out)["runs"]] == [5]
