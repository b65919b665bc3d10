"""The trainings of a run folder: any number beside one search, each with its own request and place."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset

import aacp
from aacp.pipeline import training
from aacp.report.run import read_run
from aacp.runs.trainings import trainings_in
from aacp.train.checkpoint import Checkpoint
from aacp.train.fabric import make_fabric
from ranks import launch

pytestmark = pytest.mark.slow

RECIPE = aacp.Recipe(epochs=2, batch_size=16, lr=0.02)
PLAN = aacp.Plan(evaluations=2, recipe=RECIPE, calibration_images=16, export=False, method="uniform")
BUDGET = {"macs": 0.3}
INPUTS = torch.randn(64, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    """A small classifier; the command line of a user may build it by this function."""
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return network()


@pytest.fixture(scope="module")
def data() -> aacp.Data:
    examples = (INPUTS, torch.arange(64) % 3)
    return aacp.Data(examples, examples, examples, "small")


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page takes most of the time of a run as short as these."""
    monkeypatch.setattr("aacp.pipeline.reporting.write_report", lambda *_: None)


def pruned(model: nn.Module, data: aacp.Data, folder: Path, plan: aacp.Plan = PLAN, **others) -> aacp.Pruned:
    return aacp.prune(model, data, BUDGET, folder, plan=plan, device="cpu", **others)


def history(folder: Path) -> bytes:
    return (folder / "history.jsonl").read_bytes()


def epochs(folder: Path, name: str) -> list[dict]:
    return aacp.RunFolder(folder / "trainings" / name / "training").read_log("log.jsonl")


def test_f_and_s_come_from_one_search(model, data, tmp_path: Path) -> None:
    tuned = pruned(model, data, tmp_path)
    searched = history(tmp_path)
    scratch = pruned(model, data, tmp_path, replace(PLAN, from_scratch=True))
    longer = pruned(model, data, tmp_path, replace(PLAN, recipe=RECIPE.scaled(3), training="longer"))
    assert list(trainings_in(tmp_path)) == ["finetuned", "scratch", "longer"]
    assert history(tmp_path) == searched
    assert tuned.choice == scratch.choice == longer.choice
    files = [each.file.read_bytes() for each in (tuned, scratch, longer)]
    assert len(set(files)) == 3
    assert [len(epochs(tmp_path, name)) for name in ("finetuned", "scratch", "longer")] == [2, 2, 3]
    assert tuned.file.read_bytes() == pruned(model, data, tmp_path).file.read_bytes()  # it is finished
    with pytest.raises(aacp.InvalidOption, match=r"3 trainings: finetuned, scratch, longer. Give the folder of one"):
        aacp.load(tmp_path, into=model)
    loaded = aacp.load(tmp_path / "trainings" / "scratch", into=model)
    for one, other in zip(loaded.parameters(), scratch.network.parameters(), strict=True):
        assert torch.equal(one, other)
    shown = read_run(tmp_path)
    assert [each.name for each in shown.trainings] == ["finetuned", "scratch", "longer"]
    assert [each.evaluation for each in shown.trainings] == [each.evaluation for each in (tuned, scratch, longer)]


def test_a_mistake_in_the_training_is_corrected_without_another_search(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise aacp.InvalidData("Something that only training notices. Correct it.")

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_made_again", failing)
        with pytest.raises(aacp.InvalidData, match="only training notices"):
            pruned(model, data, tmp_path)
    searched = history(tmp_path)
    place = aacp.RunFolder(tmp_path / "trainings/finetuned")
    request = place.read_json("training.json")
    assert request["failure"]
    place.write_json("training.json", {**request, "failure": ""})  # as after a power cut: nothing says that it failed
    pruned(model, data, tmp_path, replace(PLAN, recipe=replace(RECIPE, lr=0.01)))
    assert history(tmp_path) == searched
    assert len(epochs(tmp_path, "finetuned")) == 2


def test_a_training_that_diverged_is_repeated_with_another_rate(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = training.fit_made_again

    def diverging(*arguments: object, **options: object) -> None:
        original(*arguments, **options)
        raise aacp.Diverged("The loss is nan at step 1 of epoch 3. Lower the learning rate.")

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_made_again", diverging)
        with pytest.raises(aacp.Diverged):
            pruned(model, data, tmp_path)
    (failed,) = read_run(tmp_path).trainings
    assert failed.request is not None
    assert failed.request.failure.startswith("Diverged: The loss is nan")
    searched = history(tmp_path)
    other = pruned(model, data, tmp_path, replace(PLAN, recipe=replace(RECIPE, lr=0.001)))
    assert history(tmp_path) == searched
    assert {epoch["lr"] <= 0.001 for epoch in epochs(tmp_path, "finetuned")} == {True}
    assert other.training.read_json("training.json")["failure"] == ""


@pytest.mark.parametrize("error", [aacp.RunMismatch, aacp.InvalidData])
def test_a_call_that_fails_on_a_finished_training_does_not_give_it_up(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[aacp.AACPError]
) -> None:
    finished = pruned(model, data, tmp_path).file
    before = finished.read_bytes()

    def failing(*_: object, **__: object) -> None:
        raise error("The folder holds a training with other data. Choose another folder.")

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_made_again", failing)
        with pytest.raises(error, match="with other data"):
            pruned(model, data, tmp_path)
    with pytest.raises(aacp.RunMismatch, match="holds a training with other settings: recipe lr"):
        pruned(model, data, tmp_path, replace(PLAN, recipe=replace(RECIPE, lr=0.01)))
    assert finished.read_bytes() == before


class Interrupted(Exception):
    """What a test stops a training with."""


def test_an_interrupted_training_is_resumed_and_a_finished_one_replaced_by_again(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pruned(model, data, tmp_path / "whole").file.read_bytes()
    folder = tmp_path / "run"

    def stop(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(training.TrainingRun, "save", stop)
        with pytest.raises(Interrupted):
            pruned(model, data, folder, again=True)
    begun = (folder / "trainings/finetuned/training/weights.safetensors").stat().st_mtime_ns
    found = pruned(model, data, folder, again=True)  # the same call: it resumes
    assert found.file.read_bytes() == whole
    log = folder / "trainings/finetuned/training/log.jsonl"
    assert (folder / "trainings/finetuned/training/training.safetensors").stat().st_mtime_ns <= begun
    first = log.stat().st_mtime_ns
    pruned(model, data, folder)
    assert log.stat().st_mtime_ns == first
    again = pruned(model, data, folder, again=True)
    assert log.stat().st_mtime_ns > first
    assert again.file.read_bytes() == whole
    other = replace(PLAN, recipe=replace(RECIPE, lr=0.5))
    with pytest.raises(aacp.RunMismatch, match=r"recipe lr: 0.02 then, 0.5 now. Give this one another name"):
        pruned(model, data, folder, other)
    assert pruned(model, data, folder, other, again=True).file.read_bytes() != whole


def test_a_finished_training_is_not_removed_for_one_that_cannot_work(model, data, tmp_path: Path) -> None:
    before = pruned(model, data, tmp_path).file.read_bytes()
    with pytest.raises(aacp.InvalidOption, match="A step of training fails on the unpruned network"):
        pruned(model, data, tmp_path, again=True, loss=nn.BCEWithLogitsLoss())
    assert (tmp_path / "trainings/finetuned/pruned.safetensors").read_bytes() == before
    assert pruned(model, data, tmp_path).file.read_bytes() == before


def test_test_data_are_scored_before_the_training_of_a_structure_that_was_found_before(
    model, data, tmp_path: Path
) -> None:
    aacp.find(model, data, BUDGET, folder=tmp_path, plan=PLAN, device="cpu")
    wrong = replace(data, test=(INPUTS, torch.rand(64)))
    with pytest.raises(aacp.InvalidData, match=r"^Test data: "):
        pruned(model, wrong, tmp_path)
    assert not list(tmp_path.glob("trainings/*/training/log.jsonl"))


class Flipped(Dataset):
    """Images that are flipped at random, with numbers that begin anew in every process, as those of numpy do."""

    def __init__(self, process: int) -> None:
        self.numbers = np.random.default_rng(process)

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return INPUTS[index].flip(-1) if self.numbers.random() < 0.5 else INPUTS[index], index % 3


def test_the_training_of_a_repaired_network_is_resumed_although_the_repair_differs(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (replace(data, train=DataLoader(Flipped(process), 16)) for process in range(2))
    plan = replace(PLAN, reconstruction="repair", recipe=replace(RECIPE, epochs=3))
    write = Checkpoint.write

    def stop(self: Checkpoint, done: int) -> None:
        write(self, done)
        if done == 2:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", stop)
        with pytest.raises(Interrupted):
            pruned(model, first, tmp_path, plan)
    place = tmp_path / "trainings/finetuned/training"
    trained = json.loads((place / "log.jsonl").read_text().splitlines()[1])
    found = pruned(model, second, tmp_path, plan).file.read_bytes()
    lines = [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert lines[1] == trained
    assert pruned(model, second, tmp_path, plan).file.read_bytes() == found  # a finished one, called again


def test_a_training_that_was_stopped_in_its_first_epoch_begins_again_although_the_repair_differs(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (replace(data, train=DataLoader(Flipped(process), 16)) for process in range(2))
    plan = replace(PLAN, reconstruction="repair")

    def stop(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", stop)
        with pytest.raises(Interrupted):
            pruned(model, first, tmp_path, plan)
    pruned(model, second, tmp_path, plan)
    assert len(epochs(tmp_path, "finetuned")) == 2


def test_another_teacher_is_another_training(model, data, tmp_path: Path) -> None:
    plan = replace(PLAN, recipe=replace(RECIPE, distillation=0.5))
    teachers = [network(), network()]
    pruned(model, data, tmp_path, plan, teacher=teachers[0])
    with pytest.raises(aacp.RunMismatch, match="teacher: "):
        pruned(model, data, tmp_path, plan, teacher=teachers[1])
    pruned(model, data, tmp_path, replace(plan, training="second"), teacher=teachers[1])


# -- several processes -------------------------------------------------------------------------------------------------


def without_norms() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, 3))


@pytest.fixture(scope="module")
def two(data, tmp_path_factory: pytest.TempPathFactory) -> aacp.Pruned:
    """A run that was trained by two processes, which tests read."""
    torch.manual_seed(1)
    return pruned(without_norms(), data, tmp_path_factory.mktemp("two"), processes=2)


def test_two_processes_train_to_the_same_weights_up_to_rounding(
    two: aacp.Pruned, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without batch norms, whose statistics are those of a share, the mean of two gradients is that of the batch."""
    torch.manual_seed(1)
    subject = without_norms()
    one = pruned(subject, data, tmp_path)
    assert one.choice == two.choice
    for weight, other in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.allclose(weight, other, atol=1e-6)
    assert [len(epochs(run.folder.path, "finetuned")) for run in (one, two)] == [2, 2]
    written = two.file.read_bytes()
    monkeypatch.setattr(training, "run_in_processes", None)  # a finished training starts no processes
    again = pruned(subject, data, two.folder.path, processes=2)
    assert again.file.read_bytes() == written


def test_processes_train_in_the_precision_of_the_recipe(model, data, tmp_path: Path, monkeypatch) -> None:
    given: list[dict[str, object]] = []

    def record(*_: object, **options: object) -> None:
        given.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "run_in_processes", record)
    with pytest.raises(KeyboardInterrupt):
        pruned(model, data, tmp_path, replace(PLAN, recipe=replace(RECIPE, precision="bf16-mixed")), processes=2)
    assert [(each["processes"], each["precision"]) for each in given] == [(2, "bf16-mixed")]


def prune_on_a_fabric(fabric: Fabric, subject: nn.Module, data: aacp.Data, folder: Path) -> tuple[object, ...]:
    """What a program does on each rank that the user launched; returns what the rank found."""
    found = aacp.prune(copy.deepcopy(subject), data, BUDGET, folder, plan=PLAN, fabric=fabric)
    weights = [parameter.tolist() for parameter in found.network.parameters()]
    return found.choice.to_json(), weights, str(found.evaluation)


def test_every_rank_of_a_launched_fabric_gets_what_processes_give(two: aacp.Pruned, data, tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = two.choice.to_json(), [weight.tolist() for weight in two.network.parameters()], str(two.evaluation)
    for rank in launch(prune_on_a_fabric, without_norms(), data, tmp_path):
        assert rank.raised is None
        assert rank.returned == expected


def reject_on_a_fabric(fabric: Fabric, subject: nn.Module, data: aacp.Data, folder: Path) -> None:
    """The search of rank 0 fails while rank 1 waits."""
    aacp.prune(copy.deepcopy(subject), data, {"macs": 0.9999}, folder, plan=PLAN, fabric=fabric)


def test_an_error_of_the_search_ends_the_ranks_that_wait(data, tmp_path: Path) -> None:
    first, second = launch(reject_on_a_fabric, without_norms(), data, tmp_path)
    assert isinstance(first.raised, aacp.InfeasibleBudget)
    assert isinstance(second.raised, aacp.WorkerFailed)
    assert re.match(r"Process 0 failed: InfeasibleBudget: .*the same program resumes", str(second.raised))


def test_a_fabric_has_its_own_processes(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="Leave processes and device out"):
        pruned(model, data, tmp_path, fabric=make_fabric(device="cpu"))


def test_a_fabric_of_one_process_prunes_as_without(model, data, tmp_path: Path) -> None:
    plain = pruned(model, data, tmp_path / "plain")
    found = aacp.prune(model, data, BUDGET, tmp_path / "fabric", plan=PLAN, fabric=make_fabric(device="cpu"))
    assert found.file.read_bytes() == plain.file.read_bytes()


def test_what_cannot_be_sent_to_processes_is_reported(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"cannot be sent to 2 processes.* or train in one process"):
        pruned(model, data, tmp_path, processes=2, loss=lambda outputs, targets: F.cross_entropy(outputs, targets))


# -- mistakes that are found before the search -------------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(image, index % 3) for index, image in enumerate(INPUTS)])


def wider() -> nn.Module:
    return nn.Sequential(*list(network())[:-1], nn.Linear(8, 5))


@pytest.mark.parametrize(
    ("recipe", "others", "words"),
    [
        ({"batch_size": 65}, {}, "batch size is 65, but the data has only 64 examples"),
        ({"batch_size": 1}, {}, "one example for each process"),
        ({"distillation": 0.5}, {"teacher": wider()}, r"teacher's outputs are a tensor of shape \(16, 5\)"),
        ({"distillation": 0.5}, {"teacher": nn.Conv2d(3, 3, 1)}, "the teacher does not run on the training data"),
    ],
)
def test_a_mistake_is_found_before_the_search(model, data, tmp_path: Path, recipe, others, words: str) -> None:
    with pytest.raises(aacp.AACPError, match=words):
        pruned(model, data, tmp_path, replace(PLAN, recipe=replace(RECIPE, **recipe)), **others)
    assert not (tmp_path / "history.jsonl").exists()


def test_a_loader_without_a_length_is_found_before_the_search(model, data, tmp_path: Path) -> None:
    endless = replace(data, train=DataLoader(Endless(), 16))
    with pytest.raises(aacp.InvalidData, match="has no length"):
        pruned(model, endless, tmp_path)
    assert not (tmp_path / "history.jsonl").exists()


# -- one check for all entries -----------------------------------------------------------------------------------------


class Regression(nn.Module):
    """One output for each image, as a dictionary if `as_dictionary` is True."""

    def __init__(self, as_dictionary: bool) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8, 1)
        self.as_dictionary = as_dictionary

    def forward(self, image: Tensor):
        found = self.last(self.second(self.first(image).relu()).relu().mean((2, 3)))
        return {"value": found} if self.as_dictionary else found


@torch.no_grad()
def error(network: nn.Module, batches: aacp.Batches) -> float:
    return -sum(float(squared(network(inputs), targets)) for inputs, targets in batches)


def squared(outputs, targets) -> Tensor:
    value = outputs["value"] if isinstance(outputs, dict) else outputs
    return F.mse_loss(value.flatten(), targets)


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_finetune_makes_the_checks_of_prune(as_dictionary: bool, tmp_path: Path) -> None:
    """After a search, probabilities of one channel are rejected as they are in a run that searches too."""
    examples = (INPUTS, INPUTS.mean((1, 2, 3)))
    subject = Regression(as_dictionary)
    heads = {"value": "classes"} if as_dictionary else "classes"
    plan = replace(PLAN, recipe=replace(RECIPE, distillation=0.5, heads=heads))
    given = {"score": error, "loss": squared}
    regression = aacp.Data(examples, examples, examples, "regression")
    pruned(subject, regression, tmp_path, replace(PLAN, recipe=None, reconstruction=None), score=error)
    for folder in (tmp_path, tmp_path / "both"):
        with pytest.raises(aacp.InvalidData, match="no probabilities of two or more classes"):
            pruned(subject, regression, folder, plan, **given)
    assert not (tmp_path / "trainings/finetuned/training").exists()
    pruned(subject, regression, tmp_path, **given)
