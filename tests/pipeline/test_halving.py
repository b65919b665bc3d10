"""Successive halving: who the finalists are, how they are compared, and that an interrupted comparison is resumed."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.utils.data import DataLoader

import aacp
from aacp.channels.structure import Structure
from aacp.cli import main
from aacp.cost.budget import Budget, Limit
from aacp.latency.runtimes.torch import torch_threads
from aacp.pipeline import finalists, halving
from aacp.pipeline.checking import check_folder
from aacp.pipeline.finalists import CUTS_STREAMS
from aacp.pipeline.halving import RungTraining
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.task import PruningTask
from aacp.user.progress import show_progress
from forks import CONTEXT
from glue import subjects
from pipeline import tiny_run
from workers.simulated import SimulatedEngine

# More than ten epochs, so that rungs have a lower learning rate.
RECIPE = aacp.Recipe(epochs=12, batch_size=8, lr=0.01)
PLAN = replace(tiny_run.PLAN, evaluations=4, finalists=3, rungs=(1, 2), recipe=RECIPE)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks as small as these lose more by a second thread than they gain."""
    with torch_threads(1):
        yield


def compared(folder: Path, plan: aacp.Plan = PLAN, **others: Any) -> tuple[int, ...]:
    """The structure that a run delivers, without the training that follows; other arguments are those of a task."""
    task = PruningTask.of(**{"model": tiny_run.network(), "data": tiny_run.data(), "name": None, **others, **ON_CPU})
    return PruningRun(task, Budget.of({"macs": 0.4}), plan, aacp.RunFolder(folder)).find()[1].counts


ON_CPU = {"device": torch.device("cpu")}


def finalists_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "finalists.json").read_text())["finalists"]
    return found


def counts_of(folder: Path) -> list[tuple[int, ...]]:
    return [tuple(each["choice"]["counts"]) for each in finalists_of(folder)]


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[int, ...]]]:
    """Trainings that only note their epochs and structure; the score is higher with a narrower first group."""
    seen: list[tuple[int, tuple[int, ...]]] = []

    def trained(self: RungTraining, structure: Structure) -> float:
        seen.append((self.epochs, structure.counts))
        return 1 - structure.counts[0] / 8

    monkeypatch.setattr(RungTraining, "__call__", trained)
    return seen


@pytest.mark.slow
def test_the_best_structures_of_the_history_and_the_uniform_one_are_finalists(
    untrained: list[tuple[int, tuple[int, ...]]], tmp_path: Path
) -> None:
    winner = compared(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    ranked = sorted(lines, key=lambda line: (-line["score"], line["number"]))
    uniform = compared(tmp_path / "uniform", replace(tiny_run.PLAN, method="uniform"))
    best = [tuple(line["counts"]) for line in ranked if tuple(line["counts"]) != uniform]
    assert counts_of(tmp_path) == [*best[:2], uniform]
    assert [each["is_uniform"] for each in finalists_of(tmp_path)] == [False, False, True]
    assert untrained[:3] == [(1, counts) for counts in counts_of(tmp_path)]
    narrowest = sorted(counts_of(tmp_path), key=lambda counts: counts[0])[:2]
    assert sorted(untrained[3:]) == sorted((2, counts) for counts in narrowest)
    assert winner == narrowest[0] != counts_of(tmp_path)[0]  # which is the choice of the search


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_a_cost_of_the_user_is_asked_for_whole_structures_where_streams_stay(tmp_path: Path) -> None:
    model = subjects.Tiny()
    graph = aacp.trace(model, next(iter(DataLoader(subjects.data().holdout, 1)))[0])
    groups, seen = len(graph.free), set()

    def energy(structure: Structure) -> float:
        seen.add(len(structure))
        return float(sum(structure))

    budget = Budget(Limit(aacp.cost_of(energy, graph, "energy", "nJ"), pruning_rate=0.3))
    task = PruningTask.of(model, subjects.data(), None, **ON_CPU)
    PruningRun(task, budget, PLAN, aacp.RunFolder(tmp_path)).find()
    assert seen == {groups}
    (uniform,) = (each["choice"]["counts"] for each in finalists_of(tmp_path) if each["is_uniform"])
    assert sum(uniform) <= 0.7 * sum(group.width for group in graph.free)


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_finalists_differ_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the distance the second finalist is the second of the history."""
    plan = replace(PLAN, evaluations=12)
    compared(tmp_path / "near", plan)
    monkeypatch.setattr(finalists, "APART", 0.3)
    compared(tmp_path / "apart", plan)
    graph = aacp.ChannelGraph.from_json(json.loads((tmp_path / "near" / "graph.json").read_text()))
    least = 0.3 * sum(group.width for group in graph.free)

    def gap(place: str) -> int:
        first, second, _ = counts_of(tmp_path / place)
        return sum(abs(a - b) for a, b in zip(first, second, strict=True))

    assert gap("near") < least <= gap("apart")
    assert counts_of(tmp_path / "near")[0] == counts_of(tmp_path / "apart")[0]


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(("rate", "leaves_stream"), [(0.4, True), (0.9, False)])
def test_uniform_widths_are_those_of_the_method_uniform(rate: float, leaves_stream: bool, tmp_path: Path) -> None:
    """Streams keep their widths as long as the limits allow it, and the notes say so if they do not."""
    model = subjects.Tiny()
    budget = {"macs": rate}
    task = PruningTask.of(model, subjects.data(), None, **ON_CPU)
    PruningRun(task, Budget.of(budget), replace(PLAN, evaluations=2), aacp.RunFolder(tmp_path)).find()
    (uniform,) = [each for each in finalists_of(tmp_path) if each["is_uniform"]]
    scope = "inner" if leaves_stream else "all"
    by_method = replace(tiny_run.PLAN, method="uniform", scope=scope)
    found = aacp.find(model, subjects.data(), budget, plan=by_method, device="cpu")
    expected = {group.name: group.width for group in found.graph.groups}
    expected |= dict(zip((group.name for group in found.graph.free), found.structure, strict=True))
    graph = aacp.ChannelGraph.from_json(json.loads((tmp_path / "graph.json").read_text()))
    assert uniform["choice"]["counts"] == [expected[group.name] for group in graph.free]
    notes = json.loads((tmp_path / "finalists.json").read_text())["notes"]
    assert (CUTS_STREAMS in notes) is not leaves_stream


@pytest.mark.usefixtures("untrained")
def test_fewer_structures_than_finalists_are_all_finalists(tmp_path: Path) -> None:
    compared(tmp_path, replace(PLAN, evaluations=1, finalists=16))
    assert len(finalists_of(tmp_path)) <= 2
    assert "1 finalist instead of 16" in json.loads((tmp_path / "finalists.json").read_text())["notes"][-1]


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_progress_and_events_name_the_rung(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[aacp.Event] = []
    with aacp.listen(events.append), show_progress():
        found = tiny_run.pruned(tmp_path, plan=PLAN)
    shown = capsys.readouterr().err
    assert "then 3 finalists in rungs of 1, 2 epochs, then 12 epochs of training" in shown
    assert "rung 1 of 2: 3 structures, 1 epoch; 0 of 3\n" in shown
    assert "rung 1 of 2: 3 structures, 1 epoch; 3 of 3: the uniform structure, " in shown
    assert "rung 2 of 2: 2 structures, 2 epochs; 2 of 2: " in shown
    stages = [event.name for event in events if event.kind == "stage"]
    assert stages.index("search") < stages.index("finalists") < stages.index("train")
    told = [event.values for event in events if event.name == "finalists" and event.kind == "evaluation"]
    assert [(values["rung"], values["epochs"]) for values in told] == [(1, 1)] * 3 + [(2, 2)] * 2
    assert "finalists: 3 in rungs of 1, 2 epochs; " in str(found)
    page = (tmp_path / "report.html").read_text()
    assert "Structures of the search that were compared by short trainings" in page
    assert "The uniform structure" in page


# -- real trainings ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted: three trainings of one epoch, and two of two epochs."""
    folder = tmp_path_factory.mktemp("whole")
    compared(folder)
    return folder


# In the second training of the first rung, and in the middle of a training of the second rung.
@pytest.mark.slow
@pytest.mark.parametrize("epochs", [2, 5])
def test_a_rung_that_was_killed_resumes_to_the_same_result(epochs: int, whole: Path, tmp_path: Path) -> None:
    process = CONTEXT.Process(target=tiny_run.killed, args=(tmp_path, epochs, PLAN))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "structure.json").exists()
    events: list[aacp.Event] = []
    with aacp.listen(events.append):
        compared(tmp_path)
    trained = [event for event in events if event.kind == "epoch"]
    # The epoch whose event killed the process was logged, but its state was not written yet: it is repeated.
    assert len(trained) == 3 * 1 + 2 * 2 - (epochs - 1)
    assert {Path(event.folder).parent.parent for event in trained} == {tmp_path / "finalists"}
    for name in ("finalists.json", "structure.json"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_a_finished_comparison_is_not_repeated(whole: Path) -> None:
    events: list[aacp.Event] = []
    with aacp.listen(events.append):
        compared(whole)
    assert not [event for event in events if event.kind in ("epoch", "evaluation")]


def test_the_weights_of_finished_trainings_are_removed_and_the_folder_is_whole(whole: Path) -> None:
    assert not list((whole / "finalists").rglob("*.safetensors"))
    assert len(list((whole / "finalists").glob("*/rung-1/log.jsonl"))) == 3
    assert len(list((whole / "finalists").glob("*/rung-2/log.jsonl"))) == 2
    assert check_folder(whole).is_whole


def test_a_rung_trains_anew_with_the_whole_recipe_scaled_to_its_epochs(whole: Path) -> None:
    for epochs, rung in ((1, "rung-1"), (2, "rung-2")):
        for file in (whole / "finalists").glob(f"*/{rung}/run.json"):
            request = json.loads(file.read_text())
            assert request["recipe"] == RECIPE.scaled(epochs, finetuning=True).to_json()
            first = json.loads((file.parent.parent / "rung-1" / "run.json").read_text())
            assert request["model"] == first["model"]  # the same starting weights


def test_damaged_finalists_are_restored(whole: Path) -> None:
    file = whole / "finalists.json"
    before = file.read_bytes()
    file.write_text("{}")
    compared(whole)
    assert file.read_bytes() == before


def test_finetune_does_not_take_the_choice_of_the_search_for_a_lost_winner(whole: Path, tmp_path: Path) -> None:
    """The files were changed together with their checksums, as in a folder of an older version."""
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    (tmp_path / "run" / "structure.json").write_text("{}")
    task = PruningTask.of(tiny_run.network(), tiny_run.data(), None, **ON_CPU)
    plan = replace(PLAN, finalists=None, rungs=())
    budget = Budget.of({"macs": 0.4})
    run = PruningRun(task, budget, plan, aacp.RunFolder(tmp_path / "run"), is_searched=True)
    with pytest.raises(aacp.RunMismatch, match="its finalists have to be compared again"):
        run.find()
    assert compared(tmp_path / "run") == compared(whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rungs": (1,)}, r"rungs: 1, 2 then, 1 now"),
        ({"finalists": 2}, r"finalists: 3 then, 2 now"),
        ({"finalists": None, "rungs": ()}, r"finalists: 3 then, none now"),
        ({"recipe": replace(PLAN.recipe, lr=0.02)}, r"finalist training recipe lr: 0.01 then, 0.02 now"),
        ({"from_scratch": True}, r"finalist training init: inherited then, he now"),
    ],
)
def test_another_comparison_is_rejected(change: dict[str, Any], words: str, whole: Path) -> None:
    with pytest.raises(aacp.RunMismatch, match=words):
        compared(whole, replace(PLAN, **change))


def test_another_teacher_is_rejected(tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    plan = replace(PLAN, recipe=replace(PLAN.recipe, distillation=0.5))
    task = PruningTask.of(tiny_run.network(), tiny_run.data(), None, **ON_CPU)
    PruningRun(task, Budget.of({"macs": 0.4}), plan, folder).register()
    folder.write_json("search.json", {})  # so that the folder holds a search
    taught = PruningRun(replace(task, teacher=tiny_run.network(7)), Budget.of({"macs": 0.4}), plan, folder)
    with pytest.raises(aacp.RunMismatch, match=r"finalist training teacher: none then, [0-9a-f]+ now"):
        taught.register()


@pytest.mark.slow
def test_the_hold_out_decides_and_not_the_test_data(tmp_path: Path) -> None:
    """On the hold-out narrow first layers score higher, on test data wide ones."""

    def score(network: nn.Module, batches: aacp.Batches) -> float:
        ((part, _), *_) = sorted(subjects.watermarks(next(batches.inputs())))
        share = network.conv1.out_channels / 8
        return share if part == "test" else 1 - share

    plan = replace(PLAN, evaluations=6, rungs=(1,), train_on_holdout=True)
    winner = compared(tmp_path, plan, model=subjects.Tiny(), data=subjects.data(), score=score)
    first = [counts[0] for counts in counts_of(tmp_path)]
    assert winner[0] == min(first) < max(first)


@pytest.mark.slow
def test_on_workers_the_same_structure_wins(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated workers run what would be sent to real ones; they see the run folder, and keep their states there."""
    made: list[SimulatedEngine] = []

    def engine(request: Any, work: Callable[[], Callable[[Structure], float]], *, uses_gpu: bool) -> SimulatedEngine:
        assert not uses_gpu
        made.append(SimulatedEngine(2, work()))
        return made[-1]

    monkeypatch.setattr("aacp.pipeline.shared_estimate.RayEngine", engine)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    compared(tmp_path, replace(PLAN, workers=2, proposals=1))
    assert len(made) == 3  # the search, and two rungs
    assert not any(each.alive for each in made)
    assert finalists_of(tmp_path) == finalists_of(whole)
    assert list((tmp_path / "finalists").glob("1/rung-1/log.jsonl"))


@pytest.mark.slow
def test_a_worker_elsewhere_trains_without_a_folder(tmp_path: Path) -> None:
    task = PruningTask.of(tiny_run.network(), tiny_run.data(), None, torch.device("cpu"))
    graph = aacp.trace(task.model, task.example())
    work = halving.RemoteTraining(task, PLAN, graph, 1, {(4, 4): tmp_path / "place"}, tmp_path, {"seed": 0})
    assert 0 <= work()(Structure([4, 4])) <= 1
    assert list(tmp_path.iterdir()) == []


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_compares_finalists_and_finetune_trains_the_winner_in_another_way(tmp_path: Path) -> None:
    given = ["--data", "glue.subjects:data", "--device", "cpu", "--prune-macs", "0.5", "--calibration", "16"]
    short = ["--evaluations", "4", "--epochs", "2", "--no-export", "--run", str(tmp_path)]
    options = ["--finalists", "3", "--rungs", "1,2"]
    result = CliRunner().invoke(main, ["prune", "glue.subjects:tiny", *given, *short, *options])
    assert result.exit_code == 0, result.output
    assert "finalists: 3 in rungs of 1, 2 epochs; " in result.output
    assert result.stderr.count("training: epochs=") == 1  # the epochs of short trainings are not reported
    request = json.loads((tmp_path / "run.json").read_text())
    assert (request["finalists"], request["rungs"]) == (3, [1, 2])
    winner = json.loads((tmp_path / "structure.json").read_text())["counts"]
    assert tuple(winner) in counts_of(tmp_path)
    again = ["finetune", str(tmp_path), "--epochs", "1", "--as", "short", "--no-export", "--device", "cpu", "--trust"]
    result = CliRunner().invoke(main, again)
    assert result.exit_code == 0, result.output
    assert f"kept: {winner}" in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rungs", "3"], "--rungs would be ignored: without --finalists the search decides"),
        (["--finalists", "4", "--no-training"], "--finalists would be ignored: with --no-training nothing is trained"),
        (["--finalists", "4", "--rungs", "3,x"], "is not a list of rungs"),
        (["--finalists", "1"], "1 is not in the range"),
    ],
)
def test_options_that_make_no_sense_are_rejected(options: list[str], words: str, tmp_path: Path) -> None:
    given = ["prune", "glue.subjects:tiny", "--data", "glue.subjects:data", "--prune-macs", "0.5"]
    result = CliRunner().invoke(main, [*given, "--run", str(tmp_path / "run"), *options])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
