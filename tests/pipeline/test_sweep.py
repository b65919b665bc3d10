"""sweep: several budgets whose searches share all evaluations."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import aacp
from aacp.channels.structure import Structure
from aacp.estimate.psae import PSAE
from aacp.pipeline.plan import Plan
from aacp.pipeline.sweep import Sweep, folder_name, sweep
from aacp.pipeline.training import TrainingRun
from aacp.runs.chosen import LimitResult
from aacp.runs.folder import RunFolder
from aacp.train.recipe import DIGITS

pytestmark = pytest.mark.slow

PLAN = Plan(evaluations=10, calibration_images=128, recipe=None, reconstruction=None)
BUDGETS = [{"macs": macs, "params": params} for macs in (0.3, 0.5) for params in (0.2, 0.6)]


@pytest.fixture(scope="module")
def swept(model, data, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep(model, data, BUDGETS, tmp_path_factory.mktemp("sweep"), plan=PLAN, name="digits_resnet")


def test_steps_of_mimicking_that_a_sweep_would_ignore_are_rejected(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="mimic=5 would be ignored, since this sweep only searches"):
        sweep(model, data, BUDGETS, tmp_path, plan=replace(PLAN, mimic=5))
    assert not list(tmp_path.iterdir())


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("what", ["teacher", "loss"])
@pytest.mark.parametrize("call", ["prune", "sweep"])
def test_what_only_training_uses_is_rejected_if_nothing_is_trained(
    model, data, tmp_path: Path, what: str, call: str
) -> None:
    given = {"teacher": model, "loss": torch.nn.functional.cross_entropy}[what]
    plan = PLAN if call == "prune" else replace(PLAN, recipe=DIGITS)
    budget = {"macs": 0.4} if call == "prune" else [{"macs": 0.4}]
    with pytest.raises(aacp.InvalidOption, match=f"A {what} is for training, but nothing would be trained"):
        getattr(aacp, call)(model, data, budget, tmp_path / "run", plan=plan, **{what: given})
    assert not (tmp_path / "run").exists()


def test_every_budget_has_a_folder_and_is_met(swept: Sweep) -> None:
    names = ["macs-0.3_params-0.2", "macs-0.3_params-0.6", "macs-0.5_params-0.2", "macs-0.5_params-0.6"]
    assert [folder.path.name for folder in swept.folders] == names
    for choice, budget in zip(swept.choices, BUDGETS, strict=True):
        assert {limit.cost: limit.pruning_rate for limit in choice.limits} == budget
        assert all(limit.holds for limit in choice.limits)


def test_printed_it_is_a_line_for_each_budget_and_one_for_the_front(swept: Sweep) -> None:
    *budgets, last = str(swept).splitlines()
    for line, folder, choice in zip(budgets, swept.folders, swept.choices, strict=True):
        assert line.startswith(
            f"{folder.path.name}: estimated {choice.score:.4f} (unpruned {choice.unpruned:.4f}); macs "
        )
        assert f"macs {choice.limits[0].reached:,.0f} MACs, at most {choice.limits[0].bound:,.0f} MACs" in line
    assert last == f"{len(swept.front)} structures on the front of score, MACs and parameters"
    predicted = LimitResult("latency", "s", None, 5e-3, 6e-3, 5e-3, 4e-3, measured=False)
    choices = tuple(replace(choice, limits=(predicted,)) for choice in swept.choices)
    for line in str(replace(swept, choices=choices)).splitlines()[:-1]:
        assert line.endswith("; latency 4 ms, at most 5 ms, predicted, to be checked on the device")


def test_the_front_is_of_all_that_was_evaluated_anywhere(swept: Sweep) -> None:
    graph = aacp.ChannelGraph.from_json(json.loads((swept.folders[0].path / "graph.json").read_text()))
    found = {}
    for folder in swept.folders:
        for line in lines(folder.path / "history.jsonl"):
            found.setdefault(tuple(line["counts"]), line["score"])
    counts = np.array(list(found))
    losses = np.stack([-np.array(list(found.values())), aacp.macs(graph)(counts), aacp.params(graph)(counts)], axis=1)
    beaten = [any((other <= row).all() and (other < row).any() for other in losses) for row in losses]
    expected = {tuple(row) for row, out in zip(counts.tolist(), beaten, strict=True) if not out}
    assert {candidate.structure.counts for candidate in swept.front} == expected
    written = json.loads((swept.folders[0].path.parent / "front.json").read_text())
    assert {tuple(row["counts"]) for row in written} == expected
    assert all(row["macs"] == aacp.macs(graph)(row["counts"]) for row in written)


@pytest.fixture
def scored_by_macs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates that are better the fewer MACs a structure has, so that the tightest budget has the best structure."""

    def score(self: PSAE, structure: Structure) -> float:
        return 1 / float(aacp.macs(self.inheritance.graph)(structure))

    monkeypatch.setattr(PSAE, "_estimate", score)


def best_score(folder: RunFolder) -> float:
    """The best score that the search in a folder has found itself."""
    return max(line["score"] for line in lines(folder.path / "history.jsonl"))


@pytest.mark.usefixtures("scored_by_macs")
@pytest.mark.parametrize("order", [(0.3, 0.5), (0.5, 0.3)])
def test_no_budget_misses_what_another_search_found_within_it(model, data, tmp_path: Path, order) -> None:
    found = sweep(model, data, [{"macs": rate} for rate in order], tmp_path, plan=PLAN, name="digits_resnet")
    loose, tight = map(order.index, (0.3, 0.5))
    best = best_score(found.folders[tight])
    assert best > best_score(found.folders[loose])  # or this shows nothing
    assert found.choices[loose].score == best
    assert [limit.pruning_rate for limit in found.choices[loose].limits] == [0.3]
    again = sweep(model, data, [{"macs": rate} for rate in order], tmp_path, plan=PLAN, name="digits_resnet")
    assert again.choices == found.choices


@pytest.mark.usefixtures("scored_by_macs")
def test_a_better_structure_of_an_earlier_run_is_kept(model, data, tmp_path: Path) -> None:
    (earlier,) = sweep(model, data, [{"macs": 0.7}], tmp_path / "earlier", plan=PLAN, name="digits_resnet").choices
    known_from = [tmp_path / "earlier" / "macs-0.7"]
    budgets = [{"macs": rate} for rate in (0.5, 0.3)]
    found = sweep(model, data, budgets, tmp_path / "later", plan=PLAN, known_from=known_from, name="digits_resnet")
    tight, loose = map(best_score, found.folders)
    assert earlier.score > tight > loose  # or this shows nothing
    assert [choice.counts for choice in found.choices] == [earlier.counts, earlier.counts]


def test_nothing_is_evaluated_twice_and_the_same_call_evaluates_nothing(model, data, swept, monkeypatch) -> None:
    monkeypatch.setattr(PSAE, "_scored", None)
    again = sweep(model, data, BUDGETS, swept.folders[0].path.parent, plan=PLAN, name="digits_resnet")
    assert (again.choices, again.front) == (swept.choices, swept.front)


def test_stopped_in_between_it_comes_to_the_same_end(model, data, swept, tmp_path: Path, monkeypatch) -> None:
    def stopping(self: PSAE, *values: object) -> float:
        stopping.left -= 1
        if stopping.left < 0:
            raise KeyboardInterrupt
        return true(self, *values)

    true, stopping.left = PSAE._scored, 17
    with monkeypatch.context() as patch:
        patch.setattr(PSAE, "_scored", stopping)
        with pytest.raises(KeyboardInterrupt):
            sweep(model, data, BUDGETS, tmp_path, plan=PLAN, name="digits_resnet")
    again = sweep(model, data, BUDGETS, tmp_path, plan=PLAN, name="digits_resnet")
    assert again.choices == swept.choices
    for one, other in zip(again.folders, swept.folders, strict=True):
        assert lines(one.path / "history.jsonl") == lines(other.path / "history.jsonl")


def test_a_sweep_is_continued_where_its_folder_has_moved_and_with_other_budgets(
    model, data, swept, tmp_path: Path, monkeypatch
) -> None:
    folder = swept.folders[0].path.parent
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, "moved")
    last = Path("moved") / swept.folders[3].path.name
    (last / "structure.json").unlink()
    (last / "manifest.json").unlink()  # which holds a copy
    found = sweep(model, data, BUDGETS, "moved", plan=PLAN, name="digits_resnet")
    assert found.choices == swept.choices
    more = [BUDGETS[0], {"macs": 0.4}, *BUDGETS[1:]]
    found = sweep(model, data, more, tmp_path / "moved", plan=PLAN, name="digits_resnet")
    assert [choice for place, choice in enumerate(found.choices) if place != 1] == list(swept.choices)


def test_a_warning_is_given_once_for_all_budgets(data, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    untrained = aacp.build_model("digits_resnet")
    sweep(untrained, data, [{"macs": 0.3}, {"macs": 0.5}], tmp_path, plan=replace(PLAN, evaluations=2))
    assert caplog.text.count("one constant answer on") == 1


def test_a_hold_out_that_is_the_test_data_is_warned_of(
    model, data, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leaking = replace(data, holdout=data.test)
    aacp.prune(model, leaking, {"macs": 0.3}, tmp_path, plan=replace(PLAN, evaluations=2, export=False))
    assert caplog.text.count("The hold-out is the test data, so that the search would be fitted to them") == 1


def test_the_network_is_traced_once_for_all_budgets(model, data, tmp_path: Path) -> None:
    happened: list[aacp.Event] = []
    plan = replace(PLAN, evaluations=2)
    with aacp.listen(happened.append):
        sweep(model, data, [{"macs": 0.3}, {"macs": 0.5}], tmp_path, plan=plan, name="digits_resnet")
    assert [event.name for event in happened if event.kind == "stage"].count("trace") == 1


def test_estimates_are_beside_the_score_of_the_unpruned_network(model, data, swept: Sweep) -> None:
    expected = aacp.accuracy(deepcopy(model).eval(), aacp.Batches.of(data.holdout))
    assert [choice.unpruned for choice in swept.choices] == [expected] * len(BUDGETS)
    assert f"(unpruned {expected:.4f})" in str(swept)


def test_there_is_one_report_on_all_runs(swept: Sweep) -> None:
    page = (swept.folders[0].path.parent / "report.html").read_text()
    assert all(folder.path.name in page for folder in swept.folders)


def test_a_budget_out_of_reach_is_rejected_before_anything_is_searched(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InfeasibleBudget, match=r"macs: a pruning rate of 0.999"):
        sweep(model, data, [{"macs": 0.3}, {"macs": 0.999}], tmp_path, plan=PLAN)
    assert not list(tmp_path.glob("*/history.jsonl"))


def test_a_drop_and_budgets_do_not_go_together(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="needs no max_drop"):
        sweep(model, data, [{"macs": 0.3}], tmp_path, plan=replace(PLAN, max_drop=0.01))


def test_finalists_and_budgets_do_not_go_together(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"Finalists are compared in a run of one budget.* Leave finalists"):
        sweep(model, data, [{"macs": 0.3}], tmp_path, plan=aacp.Plan(finalists=4), train=True)


@pytest.mark.parametrize("budgets", [[], [{"macs": 0.3}, {}]])
def test_budgets_without_limits_are_rejected_before_the_folder_is_touched(model, data, tmp_path: Path, budgets) -> None:
    with pytest.raises(aacp.InvalidOption, match="without limits prunes nothing"):
        sweep(model, data, budgets, tmp_path / "sweep", plan=PLAN)
    assert not (tmp_path / "sweep").exists()


def test_a_plan_to_train_by_may_be_searched_with(model, data, tmp_path: Path) -> None:
    recipe = replace(DIGITS, batch_size=100_000)  # a training would be rejected
    plan = replace(PLAN, recipe=recipe, from_scratch=True, train_on_holdout=True, evaluations=2)
    (folder,) = sweep(model, data, [{"macs": 0.3}], tmp_path, plan=plan, name="digits_resnet").folders
    assert not (folder.path / "trainings").exists()


def test_with_training_every_network_is_delivered(model, data, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(TrainingRun, "export", lambda *_: (None, ""))  # test_pruning sees to that
    plan = replace(PLAN, recipe=DIGITS.scaled(1), evaluations=8)
    found = sweep(model, data, [{"macs": 0.3}, {"macs": 0.6}], tmp_path, plan=plan, train=True, name="digits_resnet")
    for folder, evaluation in zip(found.folders, found.evaluations, strict=True):
        assert evaluation is not None
        network = aacp.load(folder.path)
        assert evaluation.after.test == aacp.accuracy(network, aacp.Batches.of(data.test))


def test_budgets_that_differ_in_the_seventh_digit_have_folders_of_their_own() -> None:
    names = [folder_name(aacp.Budget.of({"macs": most})) for most in ("1234567", "1234568")]
    assert names == ["macs-max-1234567", "macs-max-1234568"]
