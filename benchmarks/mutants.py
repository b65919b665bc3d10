"""Claim: no hand-picked mutant of the pipeline, the commands, the budgets and the run files survives the tests.

A mutant is the library with one fault put in. Each one is applied to a copy of the tree, and the tests that should
notice it run there. Hand-picked mutants are listed in mutants_by_hand.py; others are made by mutants_by_tool.py and
sampled. All 272 hand-picked ones are killed. Of the last sample of 40, three cannot be noticed and 12 survived; each of
these has a test that fails with it since. Numbers: results/mutants.json.

    python benchmarks/mutants.py [--by-tool 40] [--seed 0] [--workers 2] [--only PATTERN] [--log FILE] [--out FOLDER]

With --log an interrupted run resumes: a verdict is reused if the mutated file and the tests are the same.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mutants_by_hand import HAND_PICKED, HandPicked
from mutants_by_tool import Change, changes_of
from mutants_equivalent import EQUIVALENT

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 400.0  # seconds after which the tests of a mutant are stopped
TIMED_OUT = -9
NO_TEST = 5  # the exit status of pytest if it ran no test: none of the named ones is in the gate
# Imported once, before any mutant: these take most of the time of a short test. aacp itself is not imported.
PRELOADED = (
    "torch", "numpy", "pytest", "safetensors.torch", "click.testing", "lightning_fabric", "onnxruntime",
    "networkx", "torch.export", "torch._export", "torch._inductor", "torch._functorch", "torch.onnx", "plotly",
)  # fmt: skip
# The tests that run for mutants made by the tool, by the first folder of the file, after those of MIRRORS.
GLUE = {
    "pipeline": ("glue/test_delivery.py", "glue/test_who_reads_what.py", "glue/test_reuse.py", "glue/test_sweeps.py"),
    "commands": (
        "test_cli.py::test_every_option_says_what_it_is_for_and_shows_its_default",
        "test_cli.py::test_what_happens_without_an_option_is_stated",
        "glue/test_command_line_options.py",
    ),
}
MIRRORS = {
    "cli.py": ("test_cli.py", "train/test_job.py"),
    "commands/finish.py": ("commands/test_finish.py",),
    "commands/gathering.py": ("commands/test_options.py",),
    "commands/limits.py": ("commands/test_finish.py", "cost"),
    "commands/measure.py": ("commands/test_measure.py",),
    "commands/options.py": ("commands/test_options.py",),
    "commands/parameters.py": ("commands/test_measure.py", "commands/test_odd_values.py", "commands/test_options.py"),
    "commands/plan_options.py": ("commands/test_options.py",),
    "commands/prune.py": ("commands/test_options.py", "commands/test_finish.py"),
    "commands/recipes.py": ("commands/test_recipes.py",),
    "commands/running.py": ("commands/test_options.py",),
    "pipeline/checking.py": ("commands/test_check.py", "latency/devices/test_check_folder.py"),
    "pipeline/delivery.py": ("pipeline/test_delivery.py", "pipeline/test_resources_of_a_run.py"),
    "pipeline/evaluation.py": ("commands/test_finish.py",),
    "pipeline/functions.py": ("pipeline/test_own_parts.py",),
    "pipeline/latency_stage.py": (
        "glue/test_latency_verdict.py",
        "pipeline/test_latency_stage.py",
        "pipeline/test_fastest.py",
    ),
    "pipeline/ranks.py": ("loops/test_survival.py",),
    "pipeline/recovery.py": ("glue/test_recovery.py",),
    "pipeline/request.py": ("pipeline/test_request.py", "pipeline/test_own_parts.py"),
    "pipeline/searching.py": (
        "glue/test_latency_verdict.py",
        "pipeline/test_searching.py",
        "pipeline/test_fastest.py",
    ),
    "pipeline/training_request.py": ("glue/test_trainings.py", "pipeline/test_training.py"),
}


@dataclass(frozen=True)
class Mutant:
    """A mutated file and the tests to run against it."""

    name: str
    file: str
    source: str
    tests: tuple[str, ...]
    made_by: str
    is_named_in_issue: bool = False

    @property
    def key(self) -> str:
        """A digest of the mutated file and of the files of its tests."""
        found = hashlib.sha256(self.source.encode())
        for test in self.tests:
            path = ROOT / "tests" / test.partition("::")[0]
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                found.update(test.encode() + file.read_bytes())
        return found.hexdigest()


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    name: str
    file: str
    made_by: str
    is_named_in_issue: bool
    outcome: str  # killed, survived or timeout
    killed_by: str  # the first test that failed
    seconds: float


def by_hand(mutant: HandPicked) -> Mutant:
    source = (ROOT / "src" / "aacp" / mutant.file).read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name}: the text occurs {source.count(mutant.old)} times in {mutant.file}, not once. "
            "Follow the change of the file in mutants_by_hand.py."
        )
    source = source.replace(mutant.old, mutant.new)
    return Mutant(mutant.name, mutant.file, source, mutant.tests, "hand", mutant.named_in_issue)


def by_tool(number: int, seed: int) -> list[Mutant]:
    """A sample of all changes that the tool knows for the pipeline and the commands."""
    package = ROOT / "src" / "aacp"
    paths = [package / "cli.py", *sorted(package.glob("pipeline/*.py")), *sorted(package.glob("commands/*.py"))]
    files = {str(path.relative_to(package)): path.read_text() for path in paths}
    known = [(file, change) for file, source in files.items() for change in changes_of(source)]
    chosen = random.Random(seed).sample(known, min(number, len(known)))
    return [_made(file, files[file], change) for file, change in chosen]


def _made(file: str, source: str, change: Change) -> Mutant:
    mirrored = file.replace("/", "/test_")
    tests = MIRRORS.get(file, (mirrored,) if (ROOT / "tests" / mirrored).exists() else ())
    name = f"line {change.line}: {change.words}"
    glue = GLUE.get(file.partition("/")[0], ())
    return Mutant(name, file, change.applied(source), tuple(dict.fromkeys([*tests, *glue])), "tool")


class FirstFailure:
    """A pytest plugin that writes the first test that fails to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._note(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid or "collection")


def copy_of_tree() -> Path:
    """A copy of the library and its tests, compiled."""
    place = Path(tempfile.mkdtemp(prefix="mutants-"))
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    compileall.compile_dir(place / "src", quiet=1)
    return place


def judged(mutant: Mutant, place: Path) -> Verdict:
    """Apply a mutant to a copy of the tree, run its tests in a forked process, and undo it."""
    path = place / "src" / "aacp" / mutant.file
    original = path.read_text()
    path.write_text(mutant.source)
    _forget_compiled(path)
    failure = place / "failure.txt"
    failure.unlink(missing_ok=True)
    begun = time.perf_counter()
    try:
        status = _forked(partial(_test, place, mutant.tests, failure))
    finally:
        path.write_text(original)
        _forget_compiled(path)
    seconds = round(time.perf_counter() - begun, 1)
    killed_by = failure.read_text() if failure.exists() else ""
    outcome = {0: "survived", NO_TEST: "survived", TIMED_OUT: "timeout"}.get(status, "killed")
    if not killed_by and status != 0:  # tests that cannot even be imported
        killed_by = f"exit status {status}: {(place / 'log.txt').read_text()[-300:]}"
    return Verdict(
        mutant.name, mutant.file, mutant.made_by, mutant.is_named_in_issue, outcome, killed_by, seconds
    )  # fmt: skip


def _forget_compiled(path: Path) -> None:
    """Remove the compiled file, which Python may take for that of the new source if both are of the same second."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _forked(function: partial[int]) -> int:
    """The exit status of a function in a forked process, TIMED_OUT if it takes too long."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        status = 3
        try:
            status = function()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def _test(place: Path, tests: Sequence[str], failure: Path) -> int:
    """Run tests in this process, as a fresh interpreter would."""
    import pytest

    log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(place)
    paths = [str(place / "src"), str(place / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    here = str(ROOT / "benchmarks")
    # Processes that a test starts may import it as tests.*
    sys.path[:] = [*paths, str(place), *(path for path in sys.path if os.path.abspath(path) != here)]
    importlib.import_module("search")  # the folder of the tests, which benchmarks/search.py would hide
    sys.path.append(here)  # these processes import this module first
    sys.dont_write_bytecode = True
    names = [f"tests/{test}" for test in tests]
    # Modules imported before pytest cannot be rewritten by it, which is only a warning about plugins.
    options = ["-x", "-q", "--tb=short", "--show-capture=no", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += ["-m", "not timing and not extensive"]
    for plugin in ("cacheprovider", "hypothesispytest", "anyio"):
        options += ["-p", f"no:{plugin}"]
    return int(pytest.main([*options, *names], plugins=[FirstFailure(failure)]))


_place: list[Path] = []  # of a worker: its copy of the tree


def _start_worker() -> None:
    _place.append(copy_of_tree())


def _work(mutant: Mutant) -> tuple[str, Verdict]:
    return mutant.key, judged(mutant, _place[0])


def run(mutants: Sequence[Mutant], workers: int, log: Path | None = None) -> list[Verdict]:
    """The verdicts, in the order of the mutants; those in the log are not repeated."""
    known: dict[str, Verdict] = {}
    if log is not None and log.exists():
        lines = map(json.loads, log.read_text().splitlines())
        known = {line["key"]: Verdict(**line["verdict"]) for line in lines}
    new = [mutant for mutant in mutants if mutant.key not in known]
    # Workers of this kind, unlike those of a Pool, may have children, which some tests start.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _start_worker) as pool:
        for future in as_completed([pool.submit(_work, mutant) for mutant in new]):
            key, verdict = future.result()
            known[key] = verdict
            if log is not None:
                with log.open("a") as file:
                    file.write(json.dumps({"key": key, "verdict": asdict(verdict)}) + "\n")
            words = f"{verdict.outcome} {verdict.seconds} s: {verdict.file}: {verdict.name} [{verdict.killed_by}]"
            print(words, flush=True)
    return [known[mutant.key] for mutant in mutants]


def require_sound(tests: Sequence[str], workers: int) -> None:
    """Stop if a test fails without a fault: it would kill every mutant."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    source = (ROOT / "src" / "aacp" / "version.py").read_text()
    whole = [Mutant("no fault", "version.py", source, tuple(names), "nobody") for names in files.values()]
    if failed := [verdict.killed_by for verdict in run(whole, workers) if verdict.outcome == "killed"]:
        raise SystemExit(f"{', '.join(failed)} fails without a mutant. Repair it first.")


def summary(verdicts: Sequence[Verdict], equivalent: dict[str, str]) -> dict[str, Any]:
    survivors = [f"{each.file}: {each.name}" for each in verdicts if each.outcome == "survived"]
    return {
        "mutants": len(verdicts),
        "killed": sum(each.outcome == "killed" for each in verdicts),
        "timeout": [f"{each.file}: {each.name}" for each in verdicts if each.outcome == "timeout"],
        "survived": [name for name in survivors if name not in equivalent],
        "equivalent": {name: equivalent[name] for name in survivors if name in equivalent},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-tool", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="hand-picked mutants whose file and name match this")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    picked = [by_hand(each) for each in HAND_PICKED if re.search(options.only, f"{each.file} {each.name}")]
    mutants = [*picked, *by_tool(options.by_tool, options.seed)]
    for name in PRELOADED:
        importlib.import_module(name)
    _import_torchvision()
    assert "aacp" not in sys.modules
    require_sound([test for mutant in mutants for test in mutant.tests], options.workers)
    verdicts = run(mutants, options.workers, options.log)
    write(verdicts, options.seed, options.out)


_torchvision: list[Any] = []  # what declared its operators, which disappear with it


def _import_torchvision() -> None:
    """Import torchvision as aacp does, and forget aacp again."""
    sys.path.insert(0, str(ROOT / "src"))
    _torchvision.append(importlib.import_module("aacp.zoo._torchvision"))
    _torchvision[0].import_torchvision()
    for name in [name for name in sys.modules if name.partition(".")[0] == "aacp"]:
        del sys.modules[name]
    sys.path.pop(0)


def write(verdicts: Sequence[Verdict], seed: int, out: Path | None) -> None:
    """Print the rates, and write them with every verdict."""
    sys.path.insert(0, str(ROOT / "src"))
    from aacp.runs.provenance import Provenance  # only now: the tests of a mutant must import aacp themselves

    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    result |= {"seed": seed}
    for made_by in ("hand", "tool"):
        result[made_by] = summary([each for each in verdicts if each.made_by == made_by], EQUIVALENT)
        print(made_by, json.dumps(result[made_by], indent=1))
    result["verdicts"] = [asdict(each) for each in verdicts]
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "mutants.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
