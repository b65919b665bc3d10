"""A search on few images: what is scored on what, on workers, after an interruption, in the report and in later runs.

Every image has a pixel of its own, so that a score function sees which images it is given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import aacp
from aacp.data.batches import Batches
from aacp.errors import InvalidOption
from aacp.estimate import inheritance as inheriting
from aacp.estimate.recalibration import Norms, set_statistics
from aacp.pipeline.request import read_request
from aacp.pipeline.searching import known_evaluations
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.runs.folder import RunFolder
from aacp.search.queue import OnFewImages
from aacp.workers.ray import RayWorker, WorkerRequest
from workers.simulated import SimulatedEngine

pytestmark = pytest.mark.slow

HELD, FEW = 80, 20  # images of the hold-out, and a quarter of them
CALIBRATION, FEWER = 40, 10
BUDGET = {"macs": 0.5}
PLAN = aacp.Plan(
    method="random", evaluations=30, pruning_step=1, recipe=None, reconstruction=None, export=False,
    calibration_images=CALIBRATION, screening=0.25,
)  # fmt: skip


class Narrow(nn.Module):
    """Four convolutions, so that many structures meet a budget."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 6, 8, 8, 6)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(6)
    network = Narrow().eval()
    with torch.no_grad():  # so that it does not give every image the same label
        network.head.bias -= network(torch.randn(500, 1, 6, 6)).mean(0)
    return network


def part(model: nn.Module, images: int, begin: int) -> TensorDataset:
    """Images whose first pixel is their number, with the labels that the network gives them."""
    inputs = torch.randn(images, 1, 6, 6, generator=torch.Generator().manual_seed(begin))
    inputs[:, 0, 0, 0] = (begin + torch.arange(images)) / 1000
    with torch.no_grad():
        return TensorDataset(inputs, model(inputs).argmax(1))


@pytest.fixture(scope="module")
def data(model: nn.Module) -> aacp.Data:
    return aacp.Data(part(model, 120, 0), part(model, HELD, 200), part(model, 50, 400), "numbered images")


class Watching:
    """Accuracy, with the images of every call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, network: nn.Module, batches: Batches) -> float:
        numbers = torch.cat([inputs[:, 0, 0, 0] for inputs in batches.inputs()])
        self.calls.append(sorted((1000 * numbers).round().int().tolist()))
        return aacp.accuracy(network, batches)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def confirmed(folder: Path) -> list[dict[str, Any]]:
    return lines(folder / "confirmed")


@dataclass(frozen=True)
class Screened:
    """A finished search: its folder, what it found, what it scored on, and what it printed."""

    folder: Path
    found: aacp.Found
    calls: list[list[int]]


@pytest.fixture(scope="module")
def run(model: nn.Module, data: aacp.Data, tmp_path_factory: pytest.TempPathFactory) -> Screened:
    folder = tmp_path_factory.mktemp("run")
    score = Watching()
    found = aacp.find(model, data, BUDGET, folder, plan=PLAN, score=score)
    return Screened(folder, found, score.calls)


def right(network: nn.Module, part: TensorDataset, positions: Sequence[int]) -> float:
    """The share of right answers, counted one image after another."""
    inputs, labels = part.tensors
    with torch.no_grad():
        return sum(int(network(inputs[i : i + 1]).argmax()) == int(labels[i]) for i in positions) / len(positions)


def test_the_search_scores_on_few_images_and_the_promising_structures_on_all(run: Screened) -> None:
    searched, again = lines(run.folder), confirmed(run.folder)
    assert [line["images"] for line in searched] == [[FEW, HELD]] * 30
    assert [line["images"] for line in again] == [[HELD, HELD]] * len(again)
    assert 10 <= len(again) < 20  # ten that are promising, ten of the sample, some of them the same
    whole = list(range(200, 200 + HELD))
    few = [call for call in run.calls if call != whole]
    assert len(few) == 30
    assert len({tuple(call) for call in few}) == 1  # always the same few
    assert len(few[0]) == FEW
    assert set(few[0]) < set(whole)  # a part of the hold-out: neither training nor test images
    assert few[0] != whole[:FEW]  # drawn from all of it
    assert len(run.calls) - len(few) == len(again) + 1  # and once the unpruned network


def test_batch_norms_are_recalibrated_on_the_same_share_of_images(
    model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []

    def recording(network: nn.Module, norms: Norms, batches: Batches) -> int:
        seen.append(sorted((1000 * torch.cat([x[:, 0, 0, 0] for x in batches.inputs()])).round().int().tolist()))
        return set_statistics(network, norms, batches)

    monkeypatch.setattr(inheriting, "set_statistics", recording)
    aacp.find(model, data, BUDGET, tmp_path, plan=PLAN)
    sizes = [len(images) for images in seen]
    assert sizes == [FEWER] * 30 + [CALIBRATION] * len(confirmed(tmp_path))
    assert max(map(max, seen)) < 120  # training images alone


def test_the_best_on_all_images_is_delivered(run: Screened, data: aacp.Data) -> None:
    found = run.found
    best = max(confirmed(run.folder), key=lambda line: line["score"])
    scores = [line["score"] for line in confirmed(run.folder)]
    assert sorted(scores)[-2] < best["score"] < 1
    flattered = max(lines(run.folder), key=lambda line: line["score"])
    assert flattered["counts"] != best["counts"]  # few images alone would have chosen another structure
    assert list(found.structure) == best["counts"]
    assert found.choice.score == best["score"] == right(found.cut(), data.holdout, range(HELD))
    assert found.history.best.structure == found.structure
    assert len(found.history) == 30
    assert sum(candidate.is_whole for candidate in found.history) == len(confirmed(run.folder))


def test_scores_on_few_images_are_those_of_a_network_made_for_them(run: Screened, model, data) -> None:
    few = next(call for call in run.calls if len(call) == FEW)
    shared = SharedEstimate(PruningTask.of(model, data, None, torch.device("cpu")), PLAN)
    graph = aacp.trace(model, data.holdout[0][0][None])
    estimate = shared.few(shared.estimate(graph))
    for line in lines(run.folder)[:3]:
        network = estimate.inheritance.network(line["counts"])
        assert line["score"] == right(network, data.holdout, [number - 200 for number in few])


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[SimulatedEngine]:
    """The engines that are made in place of Ray's, with simulated workers in this process."""
    made: list[SimulatedEngine] = []

    def engine(request: WorkerRequest, make_estimate: Any, *, uses_gpu: bool) -> SimulatedEngine:
        threads = torch.get_num_threads()
        made.append(SimulatedEngine(request.count or 1, make_estimate()))
        torch.set_num_threads(threads)  # a worker sets those of its own process
        return made[-1]

    monkeypatch.setattr("aacp.pipeline.shared_estimate.RayEngine", engine)
    return made


def test_workers_give_the_history_of_one_process(model, data, engines, tmp_path: Path) -> None:
    aacp.find(model, data, BUDGET, tmp_path / "alone", plan=replace(PLAN, proposals=8))
    for workers in (1, 2):
        place = tmp_path / str(workers)
        aacp.find(model, data, BUDGET, place, plan=replace(PLAN, workers=workers))
        assert lines(place) == lines(tmp_path / "alone")
        assert confirmed(place) == confirmed(tmp_path / "alone")
    for engine in engines:
        on_few = [isinstance(work, OnFewImages) for _, work in engine.submitted]
        assert on_few == [True] * 30 + [False] * len(confirmed(tmp_path / "alone"))


def test_a_worker_is_told_which_images_to_score_on() -> None:
    worker = RayWorker(lambda: lambda work: 1.0 if isinstance(work, OnFewImages) else 2.0)
    assert worker.prepare(aacp.__version__) == 0.0
    assert [worker.score((3, 4), True), worker.score((3, 4), False)] == [1.0, 2.0]


@pytest.mark.parametrize("step", [7, 30, 34])
def test_an_interrupted_run_continues_to_the_same_histories(run: Screened, model, data, tmp_path, step: int) -> None:
    score = Watching()
    steps = []

    def stop(event: aacp.Event) -> None:
        if event.kind == "evaluation":
            steps.append(event.step)
            if len(steps) == step:
                raise RuntimeError("killed")

    with aacp.listen(stop), pytest.raises(RuntimeError, match="killed"):
        aacp.find(model, data, BUDGET, tmp_path, plan=PLAN, score=score)
    resumed = aacp.find(model, data, BUDGET, tmp_path, plan=PLAN, score=score)
    assert lines(tmp_path) == lines(run.folder)
    assert confirmed(tmp_path) == confirmed(run.folder)
    assert resumed.history == run.found.history
    assert resumed.choice == run.found.choice
    assert len(score.calls) == len(run.calls) + 1  # only the unpruned network was scored again


def test_lost_scores_on_all_images_are_measured_again(model, data, tmp_path: Path) -> None:
    aacp.prune(model, data, BUDGET, tmp_path, plan=PLAN)
    before = confirmed(tmp_path)
    log = tmp_path / "confirmed" / "history.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))
    aacp.prune(model, data, BUDGET, tmp_path, plan=PLAN)
    assert confirmed(tmp_path) == before


def test_another_share_in_the_same_folder_is_rejected(run: Screened, model, data) -> None:
    with pytest.raises(aacp.RunMismatch, match=r"screening: 0\.25 then, 0\.5 now"):
        aacp.find(model, data, BUDGET, run.folder, plan=replace(PLAN, screening=0.5), score=Watching())
    with pytest.raises(aacp.RunMismatch, match=r"screening: 0\.25 then, none now"):
        aacp.find(model, data, BUDGET, run.folder, plan=replace(PLAN, screening=None), score=Watching())


def test_the_error_is_stated_at_the_end_of_the_search_and_in_the_report(model, data, tmp_path: Path, capsys) -> None:
    with aacp.show_progress():
        aacp.prune(model, data, BUDGET, tmp_path, plan=PLAN)
    searched = {tuple(line["counts"]): line["score"] for line in lines(tmp_path)}
    whole = {tuple(line["counts"]): line["score"] for line in confirmed(tmp_path)}
    spread = [tuple(lines(tmp_path)[29 * i // 9]["counts"]) for i in range(10)]
    differences = torch.tensor([searched[each] - whole[each] for each in spread], dtype=torch.float64)
    mean, deviation = float(differences.mean()), float(differences.std())
    printed = capsys.readouterr().err
    assert f"scoring {len(whole)} of the structures on all 80 images" in printed
    assert f"Scores on 20 images differ from those on 80 by {mean:+.2g} ± {deviation:.2g} (mean and" in printed
    page = (tmp_path / "report.html").read_text()
    assert f"Scores on 20 images differ from those on 80 by {100 * mean:+.2g} ± {100 * deviation:.2g} points" in page
    assert "on 20 of 80 images" in page  # the hover text of a structure that was not scored on all


def test_later_runs_reuse_scores_on_all_images_alone(model, data, tmp_path: Path) -> None:
    aacp.find(model, data, BUDGET, tmp_path / "first", plan=PLAN)
    aacp.find(
        model, data, {"macs": 0.4}, tmp_path / "second", plan=replace(PLAN, screening=None),
        known_from=[tmp_path / "first"],
    )  # fmt: skip
    graph = aacp.trace(model, data.holdout[0][0][None])
    known = known_evaluations(read_request(RunFolder(tmp_path / "second")), graph)
    expected = {tuple(line["counts"]): line["score"] for line in confirmed(tmp_path / "first")}
    assert {each.structure.counts: each.score for each in known} == expected


def test_every_search_of_a_sweep_is_confirmed_and_its_front_is_scored_on_all_images(
    model, data, tmp_path: Path
) -> None:
    found = aacp.sweep(model, data, [{"macs": 0.3}, {"macs": 0.5}], tmp_path, plan=PLAN)
    whole = {tuple(line["counts"]) for folder in found.folders for line in confirmed(folder.path)}
    assert {candidate.structure.counts for candidate in found.front} <= whole
    assert {choice.counts for choice in found.choices} <= whole


def test_finalists_were_scored_on_all_images(model, data, tmp_path: Path) -> None:
    recipe = aacp.Recipe(epochs=1, batch_size=16, lr=0.01)
    plan = replace(PLAN, recipe=recipe, finalists=12, rungs=(1,))
    aacp.prune(model, data, BUDGET, tmp_path, plan=plan)
    finalists = json.loads((tmp_path / "finalists.json").read_text())["finalists"]
    whole = {tuple(line["counts"]) for line in confirmed(tmp_path)}
    assert len(finalists) == 12
    assert {tuple(each["choice"]["counts"]) for each in finalists if not each.get("is_uniform")} <= whole


def test_repaired_networks_on_few_images_have_the_weights_of_those_on_all(model, data) -> None:
    plan = replace(PLAN, reconstruction="repair")
    shared = SharedEstimate(PruningTask.of(model, data, None, torch.device("cpu")), plan)
    estimate = shared.estimate(aacp.trace(model, data.holdout[0][0][None]))
    few = shared.few(estimate)
    assert few is shared.few(estimate)
    one, other = (each.inheritance.scored_network((3, 4, 5, 3)).state_dict() for each in (few, estimate))
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing == {name for name in one if "running" in name}


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, float("nan"), "0.1x", True])
def test_what_is_not_a_share_is_rejected(share: Any) -> None:
    with pytest.raises(InvalidOption, match="screening"):
        aacp.Plan(screening=share)


def test_a_score_that_reads_its_own_data_cannot_be_given_fewer(model, data) -> None:
    with pytest.raises(InvalidOption, match=r"this score reads its own data\. Give an aacp\.Data"):
        aacp.find(model, data.train.tensors[0], BUDGET, plan=PLAN, score=lambda network: 1.0)


def test_one_image_has_no_share(model, data) -> None:
    tiny = aacp.Data(data.train, TensorDataset(*data.holdout[:1]), data.test, "one")
    with pytest.raises(InvalidOption, match=r"a share of 1 image is not possible\. Give more"):
        aacp.find(model, tiny, BUDGET, plan=PLAN)
