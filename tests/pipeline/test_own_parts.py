"""User-defined parts are accepted wherever built-in ones are, are recorded, and can be imported by another process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import aacp
from aacp.cli import main
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import plan_of, request_of
from aacp.pipeline.task import PruningTask
from aacp.runs.requests import Request
from aacp.train.recipe import DIGITS
from aacp.user.sources import source_of
from pipeline.own_parts import OwnSearch, energy, first_first, last_first

pytestmark = pytest.mark.slow

PLAN = Plan(evaluations=4, recipe=None, reconstruction=None, calibration_images=64, export=False)
SEARCH = ["--data", "digits", "--prune-macs", "0.5", "--evaluations", "4", "--calibration", "64", "--device", "cpu"]


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def recorded(folder: Path, name: str = "run.json") -> dict:
    found: dict = json.loads((folder / name).read_text())
    return found


# -- costs ------------------------------------------------------------------------------------------------------------


def test_a_cost_of_the_users_limits_a_run_and_is_named_in_every_result(model, data, graph, tmp_path: Path) -> None:
    budget = aacp.Budget(aacp.Limit(energy, pruning_rate=0.6), aacp.Limit("macs", pruning_rate=0.2))
    pruned = aacp.prune(model, data, budget, tmp_path, plan=PLAN)
    joules = 0.5 * sum(pruned.choice.counts)
    assert joules <= 0.4 * 0.5 * sum(graph.full)
    limits = {limit["cost"]: limit for limit in recorded(tmp_path)["limits"]}
    assert limits["energy"]["pruning_rate"] == 0.6
    assert limits["energy"]["source"] == "pipeline.own_parts:energy"
    reached = {limit["cost"]: limit for limit in recorded(tmp_path, "structure.json")["limits"]}
    assert (reached["energy"]["reached"], reached["energy"]["unit"]) == (joules, "J")
    assert recorded(tmp_path / "trainings" / "untrained", "evaluation.json")["after"]["energy"] == joules
    assert pruned.evaluation.after.energy == joules
    assert f"energy: {0.5 * sum(graph.full):g} -> {joules:g}" in str(pruned)
    page = (tmp_path / "report.html").read_text()
    assert "Energy: 60" in page  # the limit
    assert f"{joules:.4g}".rstrip("0") in page


def test_a_run_with_such_a_cost_is_resumed_and_another_function_is_noticed(model, data, tmp_path: Path) -> None:
    budget = aacp.Budget(aacp.Limit(energy, pruning_rate=0.6))
    first = aacp.prune(model, data, budget, tmp_path, plan=PLAN)
    assert aacp.prune(model, data, budget, tmp_path, plan=PLAN).choice == first.choice
    other = aacp.CostKind("energy", lambda graph: energy(graph), "J")
    with pytest.raises(aacp.RunMismatch, match=r"energy: 60 % less, computed by pipeline.own_parts:energy then"):
        aacp.prune(model, data, aacp.Budget(aacp.Limit(other, pruning_rate=0.6)), tmp_path, plan=PLAN)


def test_a_sweep_takes_such_costs_too(model, data, graph, tmp_path: Path) -> None:
    budgets = [aacp.Budget(aacp.Limit(energy, pruning_rate=rate)) for rate in (0.3, 0.6)]
    found = aacp.sweep(model, data, budgets, tmp_path, plan=PLAN)
    assert [folder.path.name for folder in found.folders] == ["energy-0.3", "energy-0.6"]
    for choice, rate in zip(found.choices, (0.3, 0.6), strict=True):
        assert sum(choice.counts) <= (1 - rate) * sum(graph.full)


# -- search methods and importances -----------------------------------------------------------------------------------


def test_a_method_and_an_importance_of_the_users_are_used_and_recorded(model, data, tmp_path: Path) -> None:
    plan = replace(PLAN, method=OwnSearch, importance=last_first)
    pruned = aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=plan)
    assert recorded(tmp_path)["method"] == "pipeline.own_parts:OwnSearch"
    assert recorded(tmp_path)["importance"] == "pipeline.own_parts:last_first"
    (cut,) = aacp.Artefact.read(pruned.file).cuts
    for group, channels in zip(pruned.graph.free, cut.channels or (), strict=True):
        assert list(channels) == list(range(group.width - len(channels), group.width))  # the last ones
    aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=plan)  # the same request
    with pytest.raises(aacp.RunMismatch, match=r"importance: pipeline.own_parts:last_first then, .*:first_first now"):
        aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=replace(plan, importance=first_first))


def test_by_name_on_the_command_line_and_finished_by_another_command(tmp_path: Path) -> None:
    own = ["--method", "pipeline.own_parts:OwnSearch", "--importance", "pipeline.own_parts:last_first"]
    code, _, err = run("search", "digits_resnet", *SEARCH, *own, "--run", tmp_path)
    assert code == 0, err
    assert recorded(tmp_path, "search.json")["method"] == "OwnSearch"
    code, _, err = run("finetune", tmp_path, "--epochs", "1", "--device", "cpu", "--no-export", "--trust")
    assert code == 0, err
    (cut,) = aacp.Artefact.read(tmp_path).cuts
    widths = [group.width for group in cut.graph.free]
    assert [channels[-1] for channels in cut.channels or ()] == [width - 1 for width in widths]
    assert any(channels[0] > 0 for channels in cut.channels or ())  # l1 would not keep the last ones alone


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--method", "pipeline.own_parts:energy"), "is not a Searcher"),
        (("--method", "nowhere.at_all:Search"), "no Python module 'nowhere'"),
        (("--importance", "pipeline.own_parts:nothing"), "pipeline.own_parts:nothing"),
        (("--importance", "l7"), "There is no importance 'l7'"),
    ],
)
def test_names_that_lead_nowhere_are_rejected(option, words: str, tmp_path: Path) -> None:
    code, _, err = run("search", "digits_resnet", *SEARCH, *option, "--run", tmp_path / "run")
    assert (code, err.startswith("InvalidOption: "), err.count("\n")) == (1, True, 1)
    assert words in err
    assert not (tmp_path / "run").exists()


def test_lambdas_are_distinguished_and_cannot_be_finished_by_a_command(model, data, tmp_path: Path) -> None:
    plan = replace(PLAN, importance=lambda model, graph: last_first(model, graph))
    aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=plan)
    other = replace(PLAN, importance=lambda model, graph: first_first(model, graph))
    with pytest.raises(aacp.RunMismatch, match="importance: "):
        aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=other)
    with pytest.raises(aacp.RunMismatch, match=r"cannot be imported: it is a lambda.* Call aacp.prune again with it"):
        plan_of(Request.from_json(recorded(tmp_path)))


def test_every_plan_is_rebuilt_from_what_is_recorded(model, data, tmp_path: Path) -> None:
    plan = replace(
        PLAN, method=OwnSearch, importance=last_first, reconstruction=None, pruning_step=(1, 2), frozen=("a",),
        deployment=aacp.Deployment("torch", threads=3), seed=4, recipe=DIGITS, max_drop=0.1, shrink="params",
        scope="paper", tie=(("a", "b"),),
    )  # fmt: skip
    task = PruningTask(model, data, None, torch.device("cpu"))
    written = json.loads(json.dumps(request_of(task, aacp.Budget(), plan).to_json()))
    assert plan_of(Request.from_json(written), recipe=DIGITS, export=plan.export) == plan


@pytest.mark.parametrize(
    ("function", "source"),
    [
        (last_first, "pipeline.own_parts:last_first"),
        (OwnSearch, "pipeline.own_parts:OwnSearch"),
        (aacp.macs, "aacp.cost.analytic:macs"),
    ],
)
def test_functions_that_can_be_imported_are_recorded_by_their_place(function, source: str) -> None:
    assert source_of(function) == source


def test_other_functions_have_a_fingerprint_of_their_code() -> None:
    def local(x: int) -> int:
        return x + 1

    one, same, other = (lambda x: x + 1), (lambda x: x + 1), (lambda x: x + 2)
    assert source_of(one) == source_of(same)
    assert source_of(one) != source_of(other)
    assert "#" in source_of(local)


# -- reconstruction ---------------------------------------------------------------------------------------------------


def test_a_reconstruction_changes_the_network_that_is_delivered(model, data, tmp_path: Path) -> None:
    def zeroing(network: torch.nn.Module, *_: object) -> None:
        with torch.no_grad():
            next(iter(network.parameters())).zero_()

    pruned = aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=replace(PLAN, reconstruction=zeroing))
    assert not next(iter(pruned.network.parameters())).any()
    assert "zeroing" in recorded(tmp_path)["reconstruction"]
