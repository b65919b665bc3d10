"""benchmarks/gpu.py: its plans, deadlines and what it keeps for the next machine."""

from __future__ import annotations

import argparse
import math
import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from aacp.cli import main

ROOT = Path(__file__).parent.parent


class _Parsed(Exception):
    """The options of a script were accepted."""


@pytest.mark.slow
@pytest.mark.usefixtures("among_scripts")
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


@pytest.mark.usefixtures("among_scripts")
def test_results_that_plans_continue_have_the_settings_of_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu
    import search_pays

    monkeypatch.chdir(ROOT)
    call = gpu.Call(tmp_path, tmp_path, tmp_path, 500)
    steps = [step for plan in gpu.PLANS.values() for step in plan.steps if "--known" in step.command]
    assert {step.name for step in steps} == {
        *("imagenette-0.3", "resnet110-40", "resnet110-65", "resnet56-50-200", "resnet56-paper", "vgg16-paper")
    }
    for step in steps:
        monkeypatch.setattr(sys, "argv", shlex.split(call.filled(step.command, step))[1:])
        options = search_pays.arguments()
        known = search_pays.known_rows(options)  # it rejects other settings
        assert {arm for arm, _ in known} & {*options.arms}
        assert {seed for _, seed in known} <= {*options.seeds}


@pytest.mark.usefixtures("among_scripts")
def test_plans_that_measure_latency_are_alone() -> None:
    import gpu

    measuring = {
        name
        for name, plan in gpu.PLANS.items()
        if any(re.search(r"latency-rate|latency_prediction|train_speed", step.command) for step in plan.steps)
    }
    assert measuring == {name for name, plan in gpu.PLANS.items() if plan.is_timed} == {"latency-limit", "speed"}


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
@pytest.mark.usefixtures("among_scripts")
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


@pytest.mark.usefixtures("among_scripts")
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
    monkeypatch.setattr(gpu, "PLANS", plans | {"timed": gpu.Plan((), is_timed=True)})
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)

    def call(*plans: str) -> object:
        words = ["gpu.py", *plans, "--together", "--state", str(tmp_path / "state"), "--limit", "60"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            gpu.main()
        return ended.value.code

    assert [gpu.plan_named(name).at_once for name in ("b+c", "b+timed")] == [2, 1]
    assert call("a", "b+timed") == 2
    assert "A plan that measures times needs the GPU for itself." in capsys.readouterr().err
    assert call("a", "b+d") == 2
    assert "Give one or more of these plans, or steps of them: a, b, c, timed." in capsys.readouterr().err
    assert call("a", "b+c") == 0
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines() if "begins" in line] == [
        ["one", "begins"], ["other", "begins"], ["c", "begins"],
    ]  # fmt: skip
    assert sorted(line.split()[0] for line in (tmp_path / "state/seconds").read_text().splitlines()) == [
        "c", "one", "other",
    ]  # fmt: skip


@pytest.mark.usefixtures("among_scripts")
def test_a_step_is_a_plan_with_the_steps_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    first, second, third, last, other = (
        gpu.Step(name, 1, "", after)
        for name, after in {"b": (), "c": ("b",), "d": ("b",), "e": ("c", "d"), "f": ()}.items()
    )
    plan = gpu.Plan((first, second, third, last, other), at_once=2, is_timed=True)
    monkeypatch.setattr(gpu, "PLANS", {"a": plan, "f": gpu.Plan((first, other))})
    assert gpu.plan_named("a") == gpu.Plan(plan.steps, at_once=1, is_timed=True)
    assert gpu.plan_named("d").steps == (first, third)
    assert gpu.plan_named("e") == gpu.Plan((first, second, third, last), at_once=1, is_timed=True)
    assert gpu.plan_named("d+c").steps == (first, third, second)
    assert gpu.plan_named("f").steps == (first, other)  # a plan has the name, too


def end_of_toy(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, *words: str) -> int | str | None:
    """How gpu.py ends with these words, if its only plan runs code with `folder / "own"` and the seeds."""
    import gpu

    step = gpu.Step("toy", 1, f"python -c {shlex.quote(code)} {folder / 'own'} '{{seeds}}'")
    monkeypatch.setattr(gpu, "PLANS", {"toy": gpu.Plan((step,))})
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words, "--state", str(folder / "state")])
    with pytest.raises(SystemExit) as end:
        gpu.main()
    return end.value.code


@pytest.mark.usefixtures("among_scripts")
def test_a_step_with_one_seed_is_not_done_with_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + '\\n')"
    for words in (["toy@1"], ["toy@1"], ["toy"], ["toy@0,1,2"], ["toy@0", "toy@0,1", "--together"]):
        assert end_of_toy(tmp_path, monkeypatch, code, *words) == 0
    assert (tmp_path / "own").read_text().splitlines() == ["1", "0 1 2", "0", "0 1"]
    assert end_of_toy(tmp_path, monkeypatch, code, "toy@0,3") == 2


@pytest.mark.usefixtures("among_scripts")
def test_a_step_does_not_run_twice_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, sys, time; os.mkdir(sys.argv[1]); time.sleep(0.5); os.rmdir(sys.argv[1])"
    assert end_of_toy(tmp_path, monkeypatch, code, "toy@0", "toy", "--together") == 0


@pytest.mark.usefixtures("among_scripts")
def test_seeds_belong_to_one_plan_and_to_steps_that_have_several(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    single, several = gpu.Step("single", 1, "echo"), gpu.Step("several", 1, "echo {seeds}")
    monkeypatch.setattr(gpu, "PLANS", {"a": gpu.Plan((single, several)), "b": gpu.Plan((several,))})
    assert [step.seeds for step in gpu.plan_named("a@0").steps] == [gpu.SEEDS, (0,)]
    assert [step.seeds for step in gpu.plan_named("single+b@1,2").steps] == [gpu.SEEDS, (1, 2)]
    assert [step.seeds for step in gpu.plan_named("b").steps] == [gpu.SEEDS]


@pytest.mark.usefixtures("among_scripts")
def test_plans_give_their_seeds_to_the_scripts_that_have_several() -> None:
    import gpu

    steps = [step for plan in gpu.PLANS.values() for step in plan.steps]
    repeated = [step for step in steps if re.search(r"search_pays\.py --network|fig6\.py", step.command)]
    assert len(repeated) > 20
    assert {step.command.count("--seeds {seeds} ") for step in repeated} == {1}


class Brief:
    """A process that ends when it is looked at for the third time."""

    def __init__(self) -> None:
        self.looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        return 0 if self.looks == 3 else None


@pytest.mark.usefixtures("among_scripts")
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
if [ "$1" = -d ]; then exit "$(cat "$0.status")"; fi
read asked; echo "$asked" >> "$0.log"
if [ "$asked" = get_server_list ]; then echo "no daemon" >&2; exit 4; fi
"""


@pytest.mark.usefixtures("among_scripts")
@pytest.mark.parametrize("status", [0, 3])
def test_a_plan_says_whether_mps_runs_and_ends_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    import gpu

    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(MPS)
    (tmp_path / f"{control.name}.status").write_text(str(status))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with gpu.sharing(is_shared=True):
        begun = capsys.readouterr().out
    assert begun == f"MPS: the daemon ended with {status}, get_server_list ended with 4: no daemon\n"
    assert capsys.readouterr().out == "MPS: get_server_list ended with 4: no daemon\n"
    asked = (tmp_path / f"{control.name}.log").read_text().split()
    assert asked == ["get_server_list", "get_server_list", *["quit"] * (status == 0)]


@pytest.mark.usefixtures("among_scripts")
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
    gpu.pack(tmp_path / "state", tmp_path / "small", most=100)
    gpu.unpack(tmp_path / "small", tmp_path / "other")
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["measured.tgz"]
    files = {str(path.relative_to(tmp_path / "other")) for path in (tmp_path / "other").rglob("*") if path.is_file()}
    assert files == {name for name in needed if not name.endswith(".safetensors")}


@pytest.mark.usefixtures("among_scripts")
def test_the_page_on_reproduction_has_the_minutes_of_plans() -> None:
    import gpu

    page = (ROOT / "docs" / "reproduce.md").read_text()
    found = dict(re.findall(r"`python benchmarks/gpu.py ([\w-]+)` \| (\d+) \|", page))
    minutes = {name: -(-sum(step.seconds for step in plan.steps) // 60) for name, plan in gpu.PLANS.items()}
    assert {name: int(said) for name, said in found.items()} == {name: minutes[name] for name in found}
    assert set(found) == set(gpu.PLANS) - {"tests", "speed", "prune", "recipes"}


@pytest.mark.usefixtures("among_scripts")
def test_the_page_on_reproduction_has_the_minutes_of_sets_of_steps() -> None:
    import gpu

    page = (ROOT / "docs" / "reproduce.md").read_text().partition("| words after ")[2]
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \|", page, re.MULTILINE)
    assert len(rows) > 5
    for words, said in rows:
        plans = [gpu.plan_named(word) for word in words.replace("--together", "").split()]
        seconds = sum(step.seconds * len(step.seeds) / len(gpu.SEEDS) for plan in plans for step in plan.steps)
        assert math.ceil(seconds / 60) == int(said), words
        assert "--together" not in words or not any(plan.is_timed for plan in plans)
