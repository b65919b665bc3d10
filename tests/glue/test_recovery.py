"""Recovery without training: what is repaired and mimicked is what is delivered, recorded, and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.data.splits import split
from aacp.estimate.inheritance import Inheritance
from aacp.pipeline import recovery
from aacp.pipeline.recovery import features_of
from aacp.pipeline.request import plan_of, read_request
from aacp.train.mimic import mimic
from forks import CONTEXT
from glue.recovered import PLAN, mimic_in_process, pruned
from glue.subjects import Tiny, data, inputs_alone

pytestmark = pytest.mark.slow


def calibration() -> torch.Tensor:
    """The training images that the plan repairs on."""
    train = data().train
    return train.inputs[split(train.labels, 100, PLAN.seed)[1]]


@pytest.fixture(scope="module")
def repaired(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> aacp.Pruned:
    return pruned(model, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def mimicked(model: nn.Module, repaired: aacp.Pruned) -> aacp.Pruned:
    """Another delivery of the structure that the same search found."""
    return pruned(model, repaired.folder.path, mimic=6)


def steps_of(found: aacp.Pruned) -> dict[str, tuple[float, float]]:
    record = json.loads((found.training.path / "recovery.json").read_text())
    return {step["name"]: (step["holdout"], step["test"]) for step in record["steps"]}


def built(model: nn.Module, found: aacp.Pruned, reconstruction: Any) -> nn.Module:
    """The network of the plan, made here."""
    made = Inheritance(
        model, found.graph, calibration(), importance="bn", seed=PLAN.seed, reconstruction=reconstruction
    )
    return made.network(found.choice.counts)


def scores(network: nn.Module) -> tuple[float, float]:
    return tuple(aacp.accuracy(network.eval(), aacp.Batches.of(part)) for part in (data().holdout, data().test))


def require_equal(one: nn.Module, other: nn.Module) -> None:
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_without_training_the_repaired_network_is_delivered(repaired: aacp.Pruned, model: nn.Module) -> None:
    require_equal(aacp.load(repaired.file, into=Tiny()), built(model, repaired, "repair"))
    weight = built(model, repaired, None).head.weight
    assert not torch.allclose(repaired.network.head.weight, weight, atol=1e-3)  # which is not what was inherited


def test_every_step_is_recorded_with_its_own_scores(repaired: aacp.Pruned, model: nn.Module) -> None:
    found = steps_of(repaired)
    assert list(found) == ["inherited", "recalibrated", "repaired"]
    assert found["recalibrated"] == scores(built(model, repaired, None))
    assert found["repaired"] == scores(built(model, repaired, "repair"))
    kept = Inheritance(model, repaired.graph, calibration(), importance="bn").kept(repaired.choice.counts)
    assert found["inherited"] == scores(aacp.shrink(model, repaired.graph, kept))


def test_a_mimicked_network_is_delivered_and_recorded(mimicked: aacp.Pruned, model: nn.Module) -> None:
    assert mimicked.training.path.name == "mimicked"
    network = built(model, mimicked, "repair")
    units = Inheritance(model, mimicked.graph, calibration(), importance="bn").units(mimicked.choice.counts)
    features = features_of(mimicked.graph, network, units)
    mimic(network, model, calibration(), 6, features=features, seed=PLAN.seed)
    require_equal(mimicked.network, network)
    require_equal(aacp.load(mimicked.file, into=Tiny()), network)
    found = steps_of(mimicked)
    assert list(found) == ["inherited", "recalibrated", "repaired", "mimicked"]
    assert found["mimicked"] == scores(mimicked.network)
    assert "step by step: inherited" in str(mimicked)
    assert "Recovery without training" in mimicked.report.read_text()


def test_a_network_mimics_on_the_device_of_the_run(
    repaired: aacp.Pruned, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[Any] = []
    monkeypatch.setattr(recovery, "mimic", lambda *_, device=None, **__: devices.append(device))
    pruned(model, repaired.folder.path, mimic=1, training="elsewhere")
    assert devices == [torch.device("cpu")]


def test_features_are_compared_at_the_inputs_that_are_kept(mimicked: aacp.Pruned, model: nn.Module) -> None:
    made = Inheritance(model, mimicked.graph, calibration(), importance="bn")
    features = features_of(mimicked.graph, mimicked.network, made.units(mimicked.choice.counts))
    assert features is not None
    assert (features.layer, features.dim) == ("head", -1)
    stream = next(group for group in mimicked.graph.free if any("head" in str(member) for member in group.members))
    assert features.kept.tolist() == made.kept(mimicked.choice.counts)[stream.name].tolist()
    assert features.kept.tolist() != list(range(len(features.kept)))  # or this shows nothing


class SkippedInput(nn.Module):
    """Adds a convolution of its input, which is the last layer in the order of execution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 2, 3, padding=1)
        self.skip = nn.Conv2d(1, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu()) + self.skip(x)


def test_a_layer_that_reads_the_inputs_has_no_features() -> None:
    network = SkippedInput()
    graph = aacp.trace(network, torch.zeros(1, 1, 8, 8))
    units = np.arange(sum(group.width for group in graph.groups)) % 2 == 0
    features = features_of(graph, network, units)
    assert features is not None
    assert features.layer == "last"
    kept = units[: next(group.width for group in graph.groups)]
    assert features.kept.tolist() == np.flatnonzero(kept).tolist()


def test_a_finished_network_is_read_and_not_repaired_again(
    repaired: aacp.Pruned, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inheritance, "network", None)
    again = pruned(model, repaired.folder.path)
    require_equal(again.network, repaired.network)
    assert not again.network.training


def test_a_recovery_that_was_not_scored_is_scored_later(
    repaired: aacp.Pruned, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(recovery.Recovering, "_scored", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pruned(model, tmp_path)
    assert not list(tmp_path.rglob("evaluation.json"))
    assert steps_of(pruned(model, tmp_path)) == steps_of(repaired)


def test_another_number_of_steps_is_another_training(mimicked: aacp.Pruned, model: nn.Module) -> None:
    with pytest.raises(aacp.RunMismatch, match="mimic: 6 then, 7 now"):
        pruned(model, mimicked.folder.path, mimic=7)


def test_a_killed_mimicry_resumes_with_the_same_bytes(mimicked: aacp.Pruned, model: nn.Module, tmp_path: Path) -> None:
    def ended(is_killed: bool) -> int | None:
        process = CONTEXT.Process(target=mimic_in_process, args=(model, tmp_path, is_killed))
        process.start()
        process.join()
        return process.exitcode

    assert ended(is_killed=True) == -signal.SIGKILL
    assert list(tmp_path.rglob("training.safetensors"))
    assert not list(tmp_path.rglob("pruned.safetensors"))
    assert ended(is_killed=False) == 0
    (file,) = tmp_path.rglob("pruned.safetensors")
    assert file.read_bytes() == mimicked.file.read_bytes()


def test_the_reconstruction_of_a_search_is_that_of_what_follows(
    repaired: aacp.Pruned, model: nn.Module, tmp_path: Path
) -> None:
    assert plan_of(read_request(repaired.folder)).chosen_reconstruction == "repair"
    plain = pruned(model, tmp_path, reconstruction=None)
    assert plan_of(read_request(plain.folder)).chosen_reconstruction is None
    assert list(steps_of(plain)) == ["inherited", "recalibrated"]
    with pytest.raises(aacp.RunMismatch, match="reconstruction: none then, repair now"):
        pruned(model, tmp_path)


# -- the command line --------------------------------------------------------------------------------------------------


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_search_before_a_training_does_not_repair(tmp_path: Path) -> None:
    names = ("glue.subjects:tiny", "--data", "glue.subjects:data", "--prune-macs", "0.5", "--evaluations", "1")
    result = invoke("search", *names, "--device", "cpu", "--run", tmp_path)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run.json").read_text())["reconstruction"] is None


def test_mimicry_is_rejected_with_training(tmp_path: Path) -> None:
    names = ("glue.subjects:tiny", "--data", "glue.subjects:data", "--prune-macs", "0.5", "--run", tmp_path)
    result = invoke("prune", *names, "--mimic", "9")
    assert result.exit_code == 2
    assert "--mimic would be ignored: a training with labels follows. Give --no-training" in result.output
    with pytest.raises(aacp.InvalidOption, match="mimic=9 says how a network that is not trained"):
        aacp.Plan(mimic=9)
    with pytest.raises(aacp.InvalidOption, match="reconstruction is 'mend', which is neither"):
        aacp.Plan(reconstruction="mend")  # type: ignore[arg-type]


def test_inputs_alone_are_enough(tmp_path: Path) -> None:
    """Prune, search, sweep and evaluate; the unpruned network is like itself, the pruned one is not."""
    names = ("glue.subjects:tiny", "--data", "glue.subjects:inputs_alone", "--device", "cpu", "--evaluations", "1")
    run = tmp_path / "run"
    options = ("--prune-macs", "0.5", "--no-training", "--no-export", "--run", run)
    result = invoke("prune", *names, *options, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    shown = invoke("prune", *names, *options).stdout
    assert f"test likeness: 1.0000 -> {found['after']['test']:.4f}" in shown
    assert "holdout likeness, step by step: inherited " in shown
    assert found["before"]["test"] == 1.0
    assert found["after"]["test"] < 0.9999
    assert json.loads((run / "run.json").read_text())["metric"] == "likeness"
    evaluated = json.loads(invoke("evaluate", run, "--json", "--device", "cpu", "--trust").stdout)
    assert evaluated["test"] == pytest.approx(found["after"]["test"])
    for command in ("search", "sweep"):
        result = invoke(command, *names, "--prune-macs", "0.5", "--run", tmp_path / command)
        assert result.exit_code == 0, result.output
    result = invoke("prune", *names, "--prune-macs", "0.5", "--run", tmp_path / "trained")
    assert result.exit_code == 1
    assert "inputs without labels" in result.stderr
    assert inputs_alone().shape == (286, 1, 8, 8)
