"""prune: stages write their results, finished stages are skipped, and interrupted runs give the same result."""

from __future__ import annotations

import copy
import json
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode

import aacp
from aacp.cli import main
from aacp.pipeline import pruning, training
from aacp.pipeline.plan import Plan
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.pruning import PruningRun, prune
from aacp.pipeline.task import PruningTask
from aacp.pipeline.training import TrainingRun
from aacp.runs.folder import RunFolder
from aacp.train.recipe import DIGITS, DIGITS_FINETUNE
from aacp.user.progress import show_progress
from forks import started
from latency_bench import save_table_of_here

pytestmark = pytest.mark.slow

RECIPE = replace(DIGITS.scaled(2), distillation=0.5)
PLAN = Plan(evaluations=14, recipe=RECIPE, calibration_images=128)
BUDGET = {"macs": 0.5, "params": 0.33}


@pytest.fixture(scope="module")
def whole(model: torch.nn.Module, data: aacp.Data, tmp_path_factory: pytest.TempPathFactory) -> Pruned:
    return prune(model, data, BUDGET, tmp_path_factory.mktemp("whole"), plan=PLAN, name="digits_resnet")


@pytest.fixture
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting takes most of the time of so short a run; `whole` has it."""
    monkeypatch.setattr(TrainingRun, "export", lambda *_: (None, ""))


def weights(folder: RunFolder) -> bytes:
    return (folder.path / "trainings" / "finetuned" / "pruned.safetensors").read_bytes()


def test_every_limit_is_met_by_the_network_that_is_delivered(model, whole: Pruned) -> None:
    assert sum(p.numel() for p in whole.network.parameters()) == whole.evaluation.after.params
    assert whole.evaluation.before.params == sum(p.numel() for p in model.parameters())
    assert all(limit.holds for limit in whole.choice.limits)
    assert whole.evaluation.after.macs <= 0.5 * whole.evaluation.before.macs
    assert whole.evaluation.after.params <= 0.67 * whole.evaluation.before.params


UNEXPORTED = replace(PLAN, recipe=None, reconstruction=None, evaluations=10, export=False)


def test_the_model_is_not_touched(model, data, tmp_path: Path) -> None:
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    prune(model, data, BUDGET, tmp_path, plan=UNEXPORTED)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes


def test_an_export_is_left_out_on_demand_and_made_up_for(model, data, whole, tmp_path: Path, monkeypatch) -> None:
    pruned = prune(model, data, BUDGET, tmp_path, plan=UNEXPORTED)
    assert pruned.exported is None
    assert not [*tmp_path.rglob("*.onnx"), *tmp_path.rglob("export.json")]
    assert "ONNX file" not in pruned.report.read_text()
    assert "test score" in str(pruned)
    monkeypatch.setattr(training, "export_both", lambda *_: whole.exported)
    assert prune(model, data, BUDGET, tmp_path, plan=replace(UNEXPORTED, export=True)).exported == whole.exported
    assert pruned.training.read_json("training.json")["export"] is True


def test_scores_are_those_of_the_networks_on_the_data(data, model, whole: Pruned) -> None:
    for network, measured in ((model, whole.evaluation.before), (whole.network, whole.evaluation.after)):
        twin = copy.deepcopy(network).eval()
        assert measured.test == aacp.accuracy(twin, aacp.Batches.of(data.test))
        assert measured.holdout == aacp.accuracy(twin, aacp.Batches.of(data.holdout))


class Stopped(Exception):
    """What a test stops a run with."""


STAGES = {
    "search": (PruningRun, "search"),
    "train": (TrainingRun, "train"),
    "save": (TrainingRun, "save"),
    "evaluate": (TrainingRun, "evaluate"),
    "report": (pruning, "write_report_or_reason"),
}


@pytest.mark.usefixtures("no_onnx")
def test_stopped_before_every_stage_the_same_call_comes_to_the_same_end(
    model, data, whole: Pruned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    for stage in STAGES:  # in their order: each call does one stage more than the one before
        with monkeypatch.context() as patch:
            patch.setattr(*STAGES[stage], stop)
            with pytest.raises(Stopped):
                prune(model, data, BUDGET, tmp_path, plan=PLAN, name="digits_resnet")
    again = prune(model, data, BUDGET, tmp_path, plan=PLAN, name="digits_resnet")
    assert again.choice == whole.choice
    assert again.evaluation == whole.evaluation
    assert weights(again.folder) == weights(whole.folder)


def test_what_is_delivered_loads_by_name_and_in_onnx_runtime(data, whole: Pruned) -> None:
    loaded = aacp.load(whole.folder.path)
    inputs = next(aacp.Batches.of(data.test).inputs())
    with torch.no_grad():
        expected = whole.network(inputs)
        assert torch.equal(loaded(inputs), expected)
    session = onnxruntime.InferenceSession(whole.training.path / "pruned.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    assert abs(found - expected.numpy()).max() < 1e-4 * abs(expected).max()


def test_the_report_shows_what_was_reached(whole: Pruned) -> None:
    page = whole.report.read_text()
    assert f"{100 * whole.evaluation.after.test:.2f}" in page
    assert "ONNX Runtime" in page


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(model, tmp_path: Path) -> None:
    base, once, killed = tmp_path / "base.safetensors", tmp_path / "once", tmp_path / "killed"
    save_file(model.state_dict(), base)
    command = ["prune", "digits_resnet", "--weights", str(base), "--data", "digits", "--prune-macs", "0.5"]
    command += ["--evaluations", "12", "--epochs", "2", "--calibration", "128", "--no-export", "--device", "cpu"]
    for log, lines in (
        ("history.jsonl", 5),
        ("trainings/finetuned/training/log.jsonl", 1),
    ):  # in the search, then in training
        process = started(*command, "--run", killed)
        while process.is_alive() and not lines_of(killed / log) >= lines:
            time.sleep(0.01)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    for folder in (once, killed):
        process = started(*command, "--run", folder)
        process.join()
        assert process.exitcode == 0
    assert weights(RunFolder(killed)) == weights(RunFolder(once))


def lines_of(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_finished_run_does_nothing_again(model, data, whole: Pruned, monkeypatch) -> None:
    for place, stage in ((pruning, "trace"), (pruning, "Search"), (PruningTask, "measure")):
        monkeypatch.setattr(place, stage, None)
    again = prune(model, data, BUDGET, whole.folder.path, plan=PLAN, name="digits_resnet")
    assert again.choice == whole.choice
    for one, other in zip(again.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"evaluations": 20, "seed": 1},
            r"other settings: evaluations: 14 then, 20 now; seed: 0 then, 1 now. Repeat .* folder\.$",
        ),
        ({"evaluations": 20}, r"another folder, which may reuse the scores of this one \(--from, known_from\)\.$"),
        (
            {"recipe": replace(RECIPE, lr=0.2, nesterov=False)},
            "finetuned holds a training with other settings: recipe lr: 0.1 then, 0.2 now; recipe nesterov: yes then, "
            "no now. Give this one another name",
        ),
        ({"train_on_holdout": True}, "train on holdout: no then, yes now"),
        ({"pruning_step": 2, "frozen": ("a", "b")}, "step: 0.125 then, 2 now; frozen: none then, a, b now"),
        ({"deployment": aacp.Deployment(threads=1)}, "other settings: deployment threads: 2 then, 1 now"),
    ],
)
def test_a_folder_of_another_request_is_rejected_by_name(model, data, whole, change, words) -> None:
    with pytest.raises(aacp.RunMismatch, match=words):
        prune(model, data, BUDGET, whole.folder.path, plan=replace(PLAN, **change), name="digits_resnet")


def test_other_weights_and_other_limits_are_another_request(model, data, whole) -> None:
    with pytest.raises(aacp.RunMismatch, match="weights"):
        prune(aacp.build_model("digits_resnet"), data, BUDGET, whole.folder.path, plan=PLAN, name="digits_resnet")
    words = "limit on macs: 50 % less then, at most 1.5M now; limit on params: 33 % less then, none now"
    with pytest.raises(aacp.RunMismatch, match=words):
        prune(model, data, {"macs": "1.5M"}, whole.folder.path, plan=PLAN, name="digits_resnet")


def test_a_request_without_results_can_be_replaced(model, data, graph, tmp_path: Path, monkeypatch) -> None:
    for wrong in ({"macs": 0.9999}, {"params": 0.9999}):
        with pytest.raises(aacp.InfeasibleBudget):
            prune(model, data, wrong, tmp_path, plan=PLAN)
    assert (tmp_path / "graph.json").exists()
    frozen = replace(PLAN, frozen=("layer1.*",), recipe=None, evaluations=2, export=False)
    found = prune(model, data, {"macs": 0.3}, tmp_path, plan=frozen)
    assert len(found.graph.free) < len(graph.free)  # nothing of the other requests was reused
    with pytest.raises(aacp.RunMismatch, match="macs: 30 % less then, 40 % less now"):
        prune(model, data, {"macs": 0.4}, tmp_path, plan=frozen)


def test_a_network_that_cannot_be_exported_is_delivered_all_the_same(model, data, tmp_path: Path, monkeypatch) -> None:
    def failing(*_: object) -> None:
        raise aacp.ExportFailed("ONNX has no such operator. Use another.")

    monkeypatch.setattr(training, "export_both", failing)
    pruned = prune(model, data, BUDGET, tmp_path, plan=replace(UNEXPORTED, export=True))
    assert pruned.exported is None
    assert "export failed: ONNX has no such operator. Use another." in str(pruned)
    assert pruned.file.exists()
    assert pruned.report.exists()


@pytest.mark.parametrize("budget", [{"macs": 0.0}, {"macs": "1G", "params": "10M"}])
def test_limits_that_remove_nothing_are_rejected(model, data, tmp_path: Path, budget) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"The unpruned network already meets macs .* nothing to remove"):
        prune(model, data, budget, tmp_path, plan=PLAN)
    assert not (tmp_path / "history.jsonl").exists()


def test_a_folder_in_use_is_rejected(model, data, tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(aacp.RunLocked):
        prune(model, data, BUDGET, tmp_path, plan=PLAN)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({}, "without limits"),
        ({"flops": 0.5}, "no cost 'flops'"),
        ({"macs": 60_000_000}, "60000000 is not a share"),
        ({"macs": "60 mega"}, "'60 mega' is not a quantity"),
        ({"weight_bytes": "2MB", "macs": 1.0}, "1.0 is not a share"),
        ({"params": 0.99}, "pruning rate of 0.99"),
    ],
)
def test_a_budget_that_cannot_be_is_rejected(model, data, tmp_path: Path, budget, words) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        prune(model, data, budget, tmp_path, plan=PLAN)


@pytest.mark.parametrize("given", ["teacher", "loss"])
def test_what_only_training_has_a_use_for_is_rejected_without_it(model, data, tmp_path: Path, given: str) -> None:
    for_training = {given: {"teacher": model, "loss": torch.nn.functional.cross_entropy}[given]}
    with pytest.raises(aacp.InvalidOption, match=f"A {given} is for training"):
        prune(model, data, BUDGET, tmp_path / "run", plan=UNEXPORTED, **for_training)
    assert not (tmp_path / "run").exists()


def test_costs_are_those_of_one_input(model, data, whole: Pruned) -> None:
    counter = FlopCounterMode(display=False)
    with counter:
        copy.deepcopy(model).eval()(torch.zeros(1, 1, 8, 8))
    assert whole.evaluation.before.macs == counter.get_total_flops() // 2


@pytest.mark.usefixtures("no_onnx")
def test_what_an_earlier_run_evaluated_is_taken_over(model, data, whole, tmp_path: Path) -> None:
    plan = replace(PLAN, recipe=None, reconstruction=None)
    found = prune(model, data, {"macs": 0.4}, tmp_path, plan=plan, known_from=[whole.folder.path])
    earlier = max(json.loads(line)["score"] for line in (whole.folder.path / "history.jsonl").read_text().splitlines())
    assert found.choice.score >= earlier  # it begins from the best of that run, and may keep more
    assert json.loads((tmp_path / "search.json").read_text())["lessons"]
    again = prune(model, data, {"macs": 0.4}, tmp_path, plan=plan)  # nothing is searched any more
    assert again.choice == found.choice
    (tmp_path / "structure.json").unlink()
    (tmp_path / "manifest.json").unlink()  # which holds a copy
    with pytest.raises(aacp.RunMismatch, match=r"known from: .* then, none now"):
        prune(model, data, {"macs": 0.4}, tmp_path, plan=plan)


def test_scores_of_another_network_are_not_taken_over(data, whole, tmp_path: Path) -> None:
    other = aacp.build_model("digits_resnet")
    with pytest.raises(aacp.RunMismatch, match="weights"):
        prune(other, data, {"macs": 0.4}, tmp_path / "a", plan=PLAN, known_from=[whole.folder.path])


def test_folders_without_a_run_to_take_over_are_found_before_anything_else(model, data, whole, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    message = re.escape(f"{nowhere} does not hold a run. Give the folder of a run")
    earlier = {"known_from": [whole.folder.path, nowhere], "score": never_called}
    for budgets, call in (({"macs": 0.4}, prune), ({"macs": 0.4}, aacp.find), ([{"macs": 0.4}], aacp.sweep)):
        with pytest.raises(aacp.RunMismatch, match=message):
            call(model, data, budgets, tmp_path / "run", plan=PLAN, **earlier)
    with pytest.raises(aacp.RunMismatch, match=message):
        aacp.find(model, data, {"macs": 0.4}, plan=PLAN, **earlier)
    for command in ("prune", "search", "sweep"):
        given = [command, "no.such.module:network", "--data", "digits", "--prune-macs", "0.4", "--from", str(nowhere)]
        result = CliRunner().invoke(main, [*given, "--run", str(tmp_path / "run")])
        assert (result.exit_code, f"{nowhere} does not hold a run" in result.stderr) == (1, True), result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_onnx")
def test_a_finished_run_does_not_need_the_folders_that_it_took_over(model, data, whole, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(whole.folder.path, earlier)
    plan = replace(PLAN, recipe=None, reconstruction=None)
    call = {"plan": plan, "known_from": [earlier]}
    first = prune(model, data, {"macs": 0.4}, tmp_path / "run", **call)
    shutil.rmtree(earlier)
    assert prune(model, data, {"macs": 0.4}, tmp_path / "run", **call).choice == first.choice


def never_called(network: torch.nn.Module, batches: aacp.Batches) -> float:
    raise AssertionError("a network was scored")


def test_a_loader_alone_is_not_taken_for_data(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidData, match=r"does not say what to train.* aacp.Data.of"):
        prune(model, data.train, BUDGET, tmp_path, plan=PLAN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"latency_table": "gone.json"}, r"no latency table gone\.json\. Make it"),
        ({"deployment": aacp.Deployment("torch", "cuda:99"), "export": True}, r"no device 'cuda:99'\. Use"),
    ],
)
def test_missing_tables_and_devices_are_rejected_before_the_run_starts(
    model, data, tmp_path: Path, change, words: str
) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        prune(model, data, {"latency": 0.4}, tmp_path, plan=replace(PLAN, **change))
    assert not (tmp_path / "run.json").exists()


def test_a_table_for_other_numbers_than_the_network_has_is_rejected_before_the_run_starts(
    model, data, tmp_path: Path
) -> None:
    plan = replace(PLAN, latency_table=str(save_table_of_here(tmp_path / "table.json", "float16")))
    with pytest.raises(aacp.DeviceMismatch, match="precision 'float16', but precision 'float32' is requested"):
        prune(model, data, {"latency": 0.4}, tmp_path / "run", plan=plan)
    assert not (tmp_path / "run").exists()


def test_without_plotly_a_run_ends_without_a_report_and_says_so_once(model, data, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with show_progress():
        prune(model, data, BUDGET, tmp_path, plan=UNEXPORTED)
    assert (
        capsys.readouterr().err.count("no report. plotly is not installed. Install it with: pip install 'aacp[report]'")
        == 1
    )
    assert not (tmp_path / "report.html").exists()


def test_the_file_records_which_channels_were_kept(model, whole: Pruned) -> None:
    (cut,) = aacp.Artefact.read(whole.file).cuts
    weights = dict(model.named_parameters())
    assert cut.channels is not None
    assert [len(channels) for channels in cut.channels] == list(whole.choice.counts)
    names = [group.name for group in whole.graph.free]
    inner = names.index("layer1.0.conv1")  # produced by one layer: l1 keeps its largest filters
    norms = weights["layer1.0.conv1.weight"].abs().sum((1, 2, 3))
    assert sorted(cut.channels[inner]) == sorted(norms.argsort(descending=True)[: len(cut.channels[inner])].tolist())


def test_only_a_network_with_a_name_is_loaded_without_a_fresh_one(model, data, whole: Pruned, tmp_path: Path) -> None:
    assert aacp.Artefact.read(whole.file).model == "digits_resnet"
    unnamed = prune(model, data, BUDGET, tmp_path, plan=UNEXPORTED)
    assert aacp.Artefact.read(unnamed.file).model is None
    assert aacp.RunFolder(tmp_path).read_json("run.json")["model"] == type(model).__name__


def test_the_chosen_structure_is_compared_with_the_masked_network(model, data, tmp_path: Path, monkeypatch) -> None:
    compared = []
    monkeypatch.setattr(PruningTask, "require_equal", lambda self, graph, structure: compared.append(structure))
    found = prune(model, data, BUDGET, tmp_path, plan=replace(UNEXPORTED, evaluations=2))
    assert compared == [found.choice.structure]


def test_a_request_records_whether_the_gradients_of_this_network_are_clipped(model, data, tmp_path: Path) -> None:
    """Without an open value: a network with norms has the recipe of older versions, whose trainings are resumed."""
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 10),
    )
    plan = replace(PLAN, recipe=DIGITS_FINETUNE.scaled(1))
    for network, limit in ((model, 0.0), (plain, 5.0)):
        task = PruningTask.of(network, data, None, torch.device("cpu"))
        run = PruningRun(task, aacp.Budget.of(BUDGET), plan, RunFolder(tmp_path / f"{limit}"))
        run.register_training()
        recorded = RunFolder(tmp_path / f"{limit}" / "trainings" / "finetuned").read_json("training.json")
        assert recorded["recipe"]["clip"] == limit
