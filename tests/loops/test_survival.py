"""What training loops do to networks does not harm a cut one: copies, states, averages, parallel and compiled forms."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim.swa_utils import AveragedModel

import aacp
from loops.two_processes import HALVES, INPUTS, LABELS, LR, found, search_on, search_what_fails, train_together
from pipeline import tiny_run
from ranks import launch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result() -> aacp.Found:
    return found(device="cpu")


@pytest.fixture
def smaller(result: aacp.Found) -> nn.Module:
    return result.cut()


def step(network: nn.Module) -> float:
    """One step of training; returns the loss before it."""
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    loss = nn.functional.cross_entropy(network.train()(INPUTS), LABELS)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return float(loss.detach())


def outputs(network: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return network.eval()(INPUTS)


def test_a_deep_copy_computes_the_same_and_is_independent(smaller: nn.Module) -> None:
    twin = copy.deepcopy(smaller)
    before = outputs(smaller)
    assert torch.equal(outputs(twin), before)
    step(twin)
    assert torch.equal(outputs(smaller), before)
    assert not torch.equal(outputs(twin), before)


def test_a_state_is_loaded_into_another_cut(result: aacp.Found, smaller: nn.Module, tmp_path: Path) -> None:
    step(smaller)
    torch.save(smaller.state_dict(), tmp_path / "state.pt")
    other = result.cut()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(outputs(other), outputs(smaller))


def test_a_moving_average_has_the_mean_of_the_weights(result: aacp.Found, smaller: nn.Module, tmp_path: Path) -> None:
    averaged = AveragedModel(smaller, use_buffers=True)
    weights = []
    for _ in range(3):
        step(smaller)
        averaged.update_parameters(smaller)
        weights.append(smaller.state_dict()["conv1.weight"].clone())
    mean = torch.stack(weights).mean(0)
    torch.testing.assert_close(averaged.module.state_dict()["conv1.weight"], mean)
    result.save(averaged, tmp_path / "averaged.safetensors")
    again = aacp.load(tmp_path / "averaged.safetensors", into=tiny_run.network())
    torch.testing.assert_close(again.state_dict()["conv1.weight"], mean)
    assert torch.equal(outputs(again), outputs(averaged))


def test_two_processes_train_by_the_mean_of_their_gradients(tmp_path: Path) -> None:
    first, second = launch(train_together, tmp_path)
    assert (first.raised, second.raised) == (None, None)
    assert first.returned == ""
    assert second.returned.startswith("Process 1 of 2 called aacp.find, which searches in one process. ")
    cut = aacp.load(tmp_path / "cut.safetensors", into=tiny_run.network()).train()
    expected = copy.deepcopy(cut)
    for half in HALVES:  # each half has batch norms of its own, as in its process
        loss = nn.functional.cross_entropy(expected(INPUTS[half]), LABELS[half])
        (loss / len(HALVES)).backward()
    trained = aacp.load(tmp_path / "trained.safetensors", into=tiny_run.network())
    for (name, start), parameter in zip(expected.named_parameters(), trained.parameters(), strict=True):
        assert start.grad is not None
        torch.testing.assert_close(parameter, start - LR * start.grad, msg=name)
    assert not torch.equal(trained.head.weight, cut.head.weight)


def test_all_processes_of_a_fabric_get_what_one_process_finds() -> None:
    alone = search_on(Fabric(accelerator="cpu", devices=1))
    assert alone["choice"]["counts"] == list(found(device="cpu").structure)
    for ending in launch(search_on):
        assert ending.raised is None
        assert ending.returned == alone


def test_a_search_that_fails_ends_all_processes() -> None:
    first, second = launch(search_what_fails)
    assert isinstance(first.raised, aacp.InfeasibleBudget)
    assert isinstance(second.raised, aacp.WorkerFailed)
    assert "InfeasibleBudget" in str(second.raised)


# inductor is the default backend; it calls a C++ compiler, which takes most of a minute.
COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.extensive, COMPILER])])
def test_a_compiled_network_learns_the_same(
    backend: str, result: aacp.Found, smaller: nn.Module, tmp_path: Path
) -> None:
    plain = copy.deepcopy(smaller)
    compiled = torch.compile(smaller, backend=backend)
    assert step(compiled) == pytest.approx(step(plain), rel=1e-4)  # type: ignore[arg-type]
    torch.testing.assert_close(outputs(smaller), outputs(plain), rtol=1e-3, atol=1e-4)
    result.save(compiled, tmp_path / "compiled.safetensors")  # type: ignore[arg-type]
    again = aacp.load(tmp_path / "compiled.safetensors", into=tiny_run.network())
    assert torch.equal(outputs(again), outputs(smaller))
