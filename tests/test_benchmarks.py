"""The scripts in benchmarks start, and the options and names of aacp that they and the documents use exist."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

import aacp
from aacp.cli import main
from aacp.estimate.importance import unit_importance
from aacp.train.job import network_of

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


@pytest.fixture
def _among_scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let scripts import each other, and forget them after: some have the names of folders of tests."""
    monkeypatch.syspath_prepend(str(FOLDER))
    known = set(sys.modules)
    with patch.dict(os.environ):
        yield
    for name in {path.stem for path in FOLDER.glob("*.py")} - known:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_among_scripts")
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
    if is_command and script.name != "gpu.py":  # whose commands are checked below
        assert set(OPTION.findall(text)) <= own | OPTIONS_OF_AACP
    attributes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    names = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "aacp"}
    assert {name for name in names if not hasattr(aacp, name)} == set()


def test_every_script_that_a_document_names_exists() -> None:
    named = set(re.findall(r"benchmarks/(\w+\.py)", DOCUMENTS))
    assert named - {path.name for path in FOLDER.glob("*.py")} == set()
    assert len(named) > 30


LATENCY = ["--rate", "0", "--latency-rate", "0.3", "--runtime", "latency.simulator:SIMULATOR", "--runs-on", "npu"]


@pytest.mark.extensive
@pytest.mark.slow
@pytest.mark.usefixtures("_among_scripts")
def test_search_pays_under_a_limit_on_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simulated device, whose time for a batch is known: 0.1 ms, and 0.5 ns for each MAC with two threads."""
    import resumable
    import search_pays

    begun = []

    def run_here(_: object, words: list[str]) -> str:
        begun.append(words[3])
        main.main(words[3:], standalone_mode=False)
        return ""

    monkeypatch.setattr(resumable, "run_until_deadline", run_here)
    given = ["--smoke", "--arms", "uniform", "search", "--seeds", "0", *LATENCY, "--batch", "64", "--structures", "8"]
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["search_pays.py", *given, *places])
    with pytest.raises(SystemExit, match="False"):  # nothing is unfinished
        search_pays.main()
    assert begun == ["measure", "search", "search", "prune", "prune"]  # what is timed comes before all trainings
    result = json.loads((tmp_path / "search_pays_smoke.json").read_text())
    assert [row["arm"] for row in result["rows"]] == ["uniform", "search"]
    network = aacp.build_model("digits_resnet")
    full = 64 * aacp.macs(aacp.trace(network, torch.zeros(1, 1, 8, 8))).full
    for row in result["rows"]:
        seconds = [1e-4 + 0.5e-9 * share * full for share in (row["macs"], 1)]
        assert row["latency"] == pytest.approx(seconds[0] / seconds[1], rel=1e-6)
        assert 0.6 < row["latency"] <= 0.7
    assert [row["evaluations"] for row in result["rows"]] == [1, 6]


@pytest.mark.slow
@pytest.mark.usefixtures("_among_scripts")
def test_search_pays_trains_a_global_ranking_as_the_other_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resumable
    import search_pays

    begun = []

    def run_here(_: object, words: list[str]) -> str:
        begun.append(words)
        if words[1] == "-m":
            main.main(words[3:], standalone_mode=False)
        else:
            monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
        return ""

    monkeypatch.setattr(resumable, "run_until_deadline", run_here)
    given = ["--smoke", "--arms", "uniform", "global-l1", "--seeds", "1", "--epochs", "1", "--device", "cpu"]
    called = ["search_pays.py", *given, "--runs", str(tmp_path), "--out", str(tmp_path)]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", called)
        with pytest.raises(SystemExit, match="False"):  # nothing is unfinished
            search_pays.main()
    assert len(begun) == 2  # what is finished is not run again
    _, ranked = json.loads((tmp_path / "search_pays_smoke.json").read_text())["rows"]
    assert (ranked["arm"], ranked["evaluations"]) == ("global-l1", 1)
    assert tuple(ranked["counts"]) == _widest_ranked(network_of("digits_resnet", None, seed=1), 0.5)
    places = [tmp_path / "uniform-1", tmp_path / "global-l1-1"]
    searches = [json.loads((place / "run.json").read_text()) for place in places]
    same = ("weights", "limits", "holdout_size", "importance", "reconstruction", "calibration_images", "seed")
    assert [searches[0][name] for name in same] == [searches[1][name] for name in same]
    trainings = [json.loads((place / "trainings/finetuned/training.json").read_text()) for place in places]
    assert {name for name, value in trainings[0].items() if trainings[1][name] != value} == {"command", "started"}


@pytest.mark.usefixtures("_among_scripts")
def test_search_pays_gives_each_arm_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    import search_pays

    given = ["--arms", "released", "released-scratch", "--recipe", "cifar10-finetune", "--scratch-recipe", "base"]
    given += ["--teacher", "digits_resnet", "--teacher-weights", __file__]
    monkeypatch.setattr(sys, "argv", ["search_pays.py", "--smoke", *given, "--epochs", "160"])
    options = search_pays.arguments()
    shared = {"method": "released", "scope": "paper", "evaluations": None, "teacher": "digits_resnet"}
    tuned, new = (search_pays.command(options, arm, 0)[4:] for arm in options.arms)
    found = [main.commands["prune"].make_context("prune", words).params for words in (tuned, new)]
    assert [{name: each[name] for name in shared} for each in found] == [shared, shared]
    assert [(each["recipe"], each["epochs"], each["scratch"]) for each in found] == [
        ("cifar10-finetune", 160, False),
        ("base", 320, True),
    ]


def _widest_ranked(network: torch.nn.Module, rate: float) -> tuple[int, ...]:
    """Of all thresholds on the l1-norms relative to the mean of their group, the counts with most MACs in the limit."""
    graph = aacp.trace(network.eval(), torch.zeros(1, 1, 8, 8))
    norms = unit_importance(network, graph, "l1")
    parts = [norms[graph.slice_of(group)] for group in graph.free]
    parts = [part / part.mean() for part in parts]
    cost = aacp.macs(graph)
    found = [tuple(max(1, int((part > least).sum())) for part in parts) for least in np.concatenate(parts)]
    return max((counts for counts in found if cost(counts) <= (1 - rate) * cost.full), key=cost)


@pytest.mark.slow
@pytest.mark.usefixtures("_among_scripts")
def test_networks_of_search_pays_are_scored_before_their_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`aacp prune --no-training` with the same options delivers the same network and scores it."""
    import untrained

    weights = tmp_path / "base" / "weights.safetensors"
    digits = ["digits_resnet", "--data", "digits", "--seed", "1", "--device", "cpu"]
    main.main(["train", *digits, "--epochs", "1", "--run", str(weights.parent)], standalone_mode=False)
    expected = {}
    rows = []
    for arm, words in {"uniform": ["--method", "uniform"], "repaired": ["--importance", "obs"]}.items():
        run = tmp_path / arm
        words += ["--reconstruction", "repair" if arm == "repaired" else "none", "--evaluations", "2"]
        words += ["--calibration", "64", "--prune-macs", "0.5", "--weights", str(weights), "--run", str(run)]
        main.main(["prune", *digits, *words, "--no-training", "--no-export"], standalone_mode=False)
        found = json.loads((run / "structure.json").read_text())
        rows.append({"arm": arm, "seed": 1, "macs": 0.5, "params": 0.5, "estimate": found["score"]})
        rows[-1]["counts"] = found["counts"]
        after = json.loads((run / "trainings/untrained/evaluation.json").read_text())["after"]
        expected[arm] = (after["holdout"], after["test"])
    others = [{"arm": arm, "seed": 1} for arm in ("scratch", "modelopt")]
    result = tmp_path / "search_pays_digits_resnet_50_10_epochs.json"
    result.write_text(json.dumps({"network": "digits_resnet", "rows": [*rows, *others]}))
    words = [str(result), "--weights", str(weights), "--data", "digits", "--images", "64", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["untrained.py", *words, "--out", str(tmp_path)])
    untrained.main()
    written = json.loads((tmp_path / "untrained_digits_resnet_50.json").read_text())
    assert {row["arm"]: (row["holdout"], row["test"]) for row in written["rows"]} == expected
    uniform, repaired = (expected[arm][1] for arm in ("uniform", "repaired"))
    assert written["summary"]["repaired"] == {"test": [repaired], "above_uniform": [repaired - uniform]}


@pytest.mark.extensive
def test_search_pays_resumes_a_training_after_a_kill(tmp_path: Path) -> None:
    words = [sys.executable, str(FOLDER / "search_pays.py"), "--smoke", "--arms", "uniform", "--seeds", "0"]
    words += ["--epochs", "8", "--device", "cpu", "--runs", str(tmp_path), "--out", str(tmp_path)]
    log = tmp_path / "uniform-0" / "trainings" / "finetuned" / "training" / "log.jsonl"
    killed = subprocess.Popen(words, start_new_session=True)
    while killed.poll() is None and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)  # the benchmark and its command, as when a machine is taken away
    killed.wait()
    before = log.read_text().splitlines()
    assert 3 <= len(before) < 8
    subprocess.run(words, check=True)
    lines = log.read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 9))
    assert lines[: len(before) - 1] == before[:-1]  # the last epoch may have been logged but not saved
    (row,) = json.loads((tmp_path / "search_pays_smoke.json").read_text())["rows"]
    assert row["training_seconds"] == pytest.approx(sum(json.loads(line)["seconds"] for line in lines), abs=0.06)


@pytest.mark.usefixtures("_among_scripts")
@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_command_that_fails_is_given_once_more(
    failures: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from resumable import run_once, seconds_of

    place = tmp_path / "command"
    code = "import pathlib, sys\nplace = pathlib.Path(sys.argv[1])\nplace.mkdir(exist_ok=True)\n"
    code += "number = len(list(place.iterdir()))\n(place / str(number)).touch()\n"
    code += f"if number < {failures}: raise SystemExit('too little memory')\n(place / 'end').touch()"
    options = argparse.Namespace(deadline=time.monotonic() + 100, at_once=1)
    run_once(options, place, place / "end", [sys.executable, "-c", code, str(place)])
    names = {0: {"0", "end"}, 1: {"0", "1", "end"}, 3: {"0", "1"}}
    assert {path.name for path in place.iterdir()} == names[failures]
    assert capsys.readouterr().out.count("failed:\ntoo little memory") == min(failures, 2)
    assert float(seconds_of(place).read_text()) > 0


# -- gpu.py -----------------------------------------------------------------------------------------------------------


class _Parsed(Exception):
    """The options of a script were accepted."""


@pytest.mark.slow
@pytest.mark.usefixtures("_among_scripts")
def test_every_command_of_a_plan_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    call = gpu.Call(tmp_path / "data", tmp_path / "small", tmp_path / "state", 500)
    names: dict[str, gpu.Step] = {}
    for step in (step for plan in gpu.PLANS.values() for step in plan.steps):
        assert names.setdefault(step.name, step) == step  # runs, logs and what is done are found by the name
        python, script, *words = shlex.split(call.filled(step.command, step))
        assert python == "python"
        used = [word for word in words if word.startswith("benchmarks/")]
        assert [word for word in used if not (ROOT / word).exists()] == []
        if script == "-m":
            if words[0] == "aacp.cli":
                main.commands[words[1]].make_context(words[1], words[2:])
            continue
        monkeypatch.setattr(sys, "argv", [script, *words])
        with pytest.raises(_Parsed):
            runpy.run_path(str(ROOT / script), run_name="__main__")
    tests = set((ROOT / "tests").rglob("test_*.py")) - {Path(__file__)}
    marked = {path for path in tests if "pytest.mark.gpu" in path.read_text()}
    folders = [ROOT / word for word in shlex.split(names["tests"].command) if word.startswith("tests/")]
    assert {path for path in marked if not any(folder in path.parents for folder in folders)} == set()
    assert len(marked) > 5


APPEND = "import sys; open(sys.argv[1], 'a').write('x')"
UNTIL_INTERRUPTED = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[1])
try:
    if not file.exists():
        file.write_text("begun")
        time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.5)
    file.write_text("interrupted")
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("_among_scripts")
def test_a_plan_is_interrupted_at_its_deadline_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    def step(name: str, code: str, *after: str, **others: object) -> gpu.Step:
        return gpu.Step(name, 1, f"python -c {shlex.quote(code)} {tmp_path}/{name}", after, **others)

    long = step("long", UNTIL_INTERRUPTED)
    steps = (
        step("made", APPEND, makes=f"{tmp_path}/is-there"),
        step("first", APPEND),
        long,
        step("second", APPEND, "first", "made"),
        step("fails", "raise SystemExit(3)"),
        step("last", APPEND, "long"),
        gpu.Step("tests", 9999, "python -c 0", resumes=False),
    )
    (tmp_path / "is-there").touch()
    monkeypatch.setattr(gpu, "PLANS", {"toy": gpu.Plan(steps, at_once=2, is_shared=False)})
    monkeypatch.setattr(gpu, "LEAST", 0)
    monkeypatch.setattr(gpu.Call, "left", property(lambda call: 1e3 * (not waits_alone()) - 1e-3))
    state = tmp_path / "state"

    def waits_alone() -> bool:
        """Whether all has ended but the step that lasts; the deadline comes then, however busy this machine is."""
        ended = (state / "seconds").read_text() if (state / "seconds").exists() else ""
        return "second" in ended and "fails" in ended and (tmp_path / "long").exists() and "long" not in ended

    def call() -> str:
        monkeypatch.setattr(sys, "argv", ["gpu.py", "toy", "--state", str(state), "--out", str(tmp_path / "out")])
        with pytest.raises(SystemExit) as ended:
            gpu.main()
        return str(ended.value)

    assert call().startswith("Not done yet: long, fails, last, tests.")
    assert (tmp_path / "long").read_text() == "interrupted"  # it was waited for
    assert [(tmp_path / name).exists() for name in ("made", "first", "second", "last")] == [False, True, True, False]
    assert call().startswith("Not done yet: fails, tests.")
    assert [(tmp_path / name).read_text() for name in ("first", "second", "last")] == ["x", "x", "x"]
    assert [line.split()[::2] for line in (state / "seconds").read_text().splitlines() if "long" in line] == [
        ["long", "130"],
        ["long", "0"],
    ]
    assert {path.stem for path in (state / "logs").iterdir()} == {"first", "long", "second", "fails", "last"}


@pytest.mark.usefixtures("_among_scripts")
def test_plans_run_together_if_none_of_them_measures_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu

    def waiting(name: str, other: str) -> gpu.Step:
        """A step that ends only if another one runs at the same time."""
        code = "import sys, time\nfrom pathlib import Path\nhere, there = map(Path, sys.argv[1:])\nhere.touch()\n"
        code += "while not there.exists(): time.sleep(0.01)"
        return gpu.Step(name, 1, f"python -c {shlex.quote(code)} {tmp_path}/{name} {tmp_path}/{other}")

    both = (waiting("one", "other"), waiting("other", "one"))
    plans = {"a": gpu.Plan(both[:1]), "b": gpu.Plan(both[::-1], at_once=2), "c": gpu.Plan((waiting("c", "one"),))}
    monkeypatch.setattr(gpu, "PLANS", plans | {"timed": gpu.Plan((), is_shared=False)})
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)

    def call(*plans: str) -> object:
        words = ["gpu.py", *plans, "--together", "--state", str(tmp_path / "state"), "--limit", "60"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            gpu.main()
        return ended.value.code

    assert call("a", "b+timed") == 2
    assert "A plan that measures times needs the GPU for itself." in capsys.readouterr().err
    assert call("a", "b+d") == 2
    assert "Give one or more of these plans: a, b, c, timed." in capsys.readouterr().err
    assert call("a", "b+c") == 0
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines() if "begins" in line] == [
        ["one", "begins"], ["other", "begins"], ["c", "begins"],
    ]  # fmt: skip
    assert sorted(line.split()[0] for line in (tmp_path / "state/seconds").read_text().splitlines()) == [
        "c", "one", "other",
    ]  # fmt: skip


class Brief:
    """A process that ends when it is looked at for the third time."""

    def __init__(self) -> None:
        self.looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        return 0 if self.looks == 3 else None


@pytest.mark.usefixtures("_among_scripts")
def test_a_plan_waits_for_steps_of_its_own_that_another_plan_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu

    log = []

    def begin(_: object, step: gpu.Step) -> Brief:
        log.append(step.name)
        return Brief()

    monkeypatch.setattr(gpu.Call, "start", begin)
    monkeypatch.setattr(gpu.Call, "end", lambda _, step, *others: log.append(f"{step.name} ended"))
    steps = tuple(gpu.Step(name, 1, "") for name in "abcd")
    gpu.Call(tmp_path, tmp_path, tmp_path, 60).run([gpu.Plan(steps), gpu.Plan(steps[:2], at_once=2)])
    assert log == ["a", "b", "a ended", "b ended", "c", "c ended", "d", "d ended"]


MPS = """#!/bin/sh
if [ "$1" = -d ]; then exit 3; fi
read asked; echo "$asked" >> "$0.log"
if [ "$asked" = get_server_list ]; then echo "no daemon" >&2; exit 4; fi
"""


@pytest.mark.usefixtures("_among_scripts")
def test_a_plan_says_whether_mps_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu

    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(MPS)
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with gpu.sharing(is_shared=True):
        begun = capsys.readouterr().out
    assert begun == "MPS: the daemon ended with 3, get_server_list ended with 4: no daemon\n"
    assert capsys.readouterr().out == "MPS: get_server_list ended with 4: no daemon\n"
    assert (tmp_path / f"{control.name}.log").read_text().split() == ["get_server_list", "get_server_list", "quit"]


@pytest.mark.usefixtures("_among_scripts")
def test_another_machine_gets_results_and_the_weights_that_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu

    monkeypatch.setattr(gpu, "PART", 40)
    needed = {
        "results/table.json": "{}",
        "done/base": "",
        "bases/vgg16/weights.safetensors": "base" * 50,
        "runs/table/search-0/trainings/finetuned/training/training.safetensors": "in the middle",
        "runs/table/search-1/trainings/finetuned/evaluation.json": "{}",
    }
    others = {
        "bases/vgg16/training.safetensors": "at the end",
        "runs/table/search-1/trainings/finetuned/pruned.safetensors": "trained",
        "runs/table/search-1/trainings/finetuned/pruned.onnx": "exported",
        "runs/table/search-1/report.html": "drawn",
    }
    for name, text in (needed | others).items():
        path = tmp_path / "state" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    gpu.pack(tmp_path / "state", tmp_path / "out")
    assert max(path.stat().st_size for path in (tmp_path / "out").glob("weights.*")) == 40
    there = tmp_path / "there"
    gpu.unpack(tmp_path / "out", there)
    assert {str(path.relative_to(there)): path.read_text() for path in there.rglob("*") if path.is_file()} == needed
    (there / "done" / "base").write_text("newer")
    gpu.unpack(tmp_path / "out", there)
    assert (there / "done" / "base").read_text() == "newer"


@pytest.mark.usefixtures("_among_scripts")
def test_the_page_on_reproduction_has_the_minutes_of_plans() -> None:
    import gpu

    page = (ROOT / "docs" / "reproduce.md").read_text()
    found = dict(re.findall(r"`python benchmarks/gpu.py ([\w-]+)` \| (\d+) \|", page))
    minutes = {name: -(-sum(step.seconds for step in plan.steps) // 60) for name, plan in gpu.PLANS.items()}
    assert {name: int(said) for name, said in found.items()} == {name: minutes[name] for name in found}
    assert set(found) == set(gpu.PLANS) - {"tests", "speed", "prune", "recipes"}
