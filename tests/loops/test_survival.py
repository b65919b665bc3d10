"""What training loops do to networks does not harm a cut one: copies, states, averages, parallel and compiled forms."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import aacp
from pipeline import tiny_run

INPUTS = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(16) % tiny_run.CLASSES
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> aacp.Found:
    plan = aacp.Plan(evaluations=3, calibration_images=16)
    return aacp.find(tiny_run.network(), INPUTS, {"macs": 0.4}, plan=plan, device="cpu")


@pytest.fixture
def smaller(found: aacp.Found) -> nn.Module:
    return found.cut()


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


def test_a_state_is_loaded_into_another_cut(found: aacp.Found, smaller: nn.Module, tmp_path: Path) -> None:
    step(smaller)
    torch.save(smaller.state_dict(), tmp_path / "state.pt")
    other = found.cut()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(outputs(other), outputs(smaller))


def test_a_moving_average_has_the_mean_of_the_weights(found: aacp.Found, smaller: nn.Module, tmp_path: Path) -> None:
    averaged = AveragedModel(smaller, use_buffers=True)
    weights = []
    for _ in range(3):
        step(smaller)
        averaged.update_parameters(smaller)
        weights.append(smaller.state_dict()["conv1.weight"].clone())
    mean = torch.stack(weights).mean(0)
    torch.testing.assert_close(averaged.module.state_dict()["conv1.weight"], mean)
    found.save(averaged, tmp_path / "averaged.safetensors")
    again = aacp.load(tmp_path / "averaged.safetensors", into=tiny_run.network())
    torch.testing.assert_close(again.state_dict()["conv1.weight"], mean)
    assert torch.equal(outputs(again), outputs(averaged))


@pytest.fixture
def _one_process(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_one_process")
def test_parallel_training_is_that_of_one_process(found: aacp.Found, smaller: nn.Module, tmp_path: Path) -> None:
    plain = copy.deepcopy(smaller)
    parallel = DistributedDataParallel(smaller)
    losses = [(step(parallel), step(plain)) for _ in range(2)]
    assert all(one == pytest.approx(other) for one, other in losses)
    found.save(parallel, tmp_path / "parallel.safetensors")
    again = aacp.load(tmp_path / "parallel.safetensors", into=tiny_run.network())
    torch.testing.assert_close(outputs(again), outputs(plain))


def test_a_compiled_network_learns_the_same(found: aacp.Found, smaller: nn.Module, tmp_path: Path) -> None:
    plain = copy.deepcopy(smaller)
    compiled = torch.compile(smaller, backend="aot_eager")  # inductor needs a C++ compiler and minutes
    assert step(compiled) == pytest.approx(step(plain), rel=1e-4)  # type: ignore[arg-type]
    torch.testing.assert_close(outputs(smaller), outputs(plain), rtol=1e-3, atol=1e-4)
    found.save(compiled, tmp_path / "compiled.safetensors")  # type: ignore[arg-type]
    again = aacp.load(tmp_path / "compiled.safetensors", into=tiny_run.network())
    assert torch.equal(outputs(again), outputs(smaller))
