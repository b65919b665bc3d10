"""Mimicry: a pruned network comes closer to the original without labels, and resumes with the same bytes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from aacp.data.batches import Batches
from aacp.data.likeness import Likeness
from aacp.errors import Diverged, InvalidOption, RunMismatch
from aacp.train import mimic as module
from aacp.train.mimic import Features, mimic
from aacp.user.progress import show_progress


class Small(nn.Module):
    """A convolution with a batch norm, and a head; calls are counted, and one of them may be interrupted."""

    calls = 0
    interrupted_at = -1

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            Small.calls += 1
            if Small.calls == Small.interrupted_at:
                raise KeyboardInterrupt
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


@pytest.fixture(autouse=True)
def _uninterrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "calls", 0)
    monkeypatch.setattr(Small, "interrupted_at", -1)


def networks() -> tuple[Small, Small]:
    """The original with 6 channels, and a network with 4 others."""
    torch.manual_seed(0)
    original = Small(6).eval()
    torch.manual_seed(1)
    return original, Small(4).eval()


def inputs(count: int = 150, seed: int = 2) -> Tensor:
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
def test_the_network_comes_closer_to_the_original_on_inputs_that_it_has_not_seen() -> None:
    original, network = networks()
    before = copy.deepcopy(original.state_dict())
    unseen = Batches.of(inputs(60, seed=9))
    score = Likeness(original)
    start = score(network, unseen)
    mimic(network, original, inputs(), 80, lr=0.1)
    assert score(network, unseen) > max(start, 0.0) + 0.3
    assert all(torch.equal(before[name], tensor) for name, tensor in original.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_labels_are_ignored_and_statistics_of_batch_norms_stay() -> None:
    original, network = networks()
    other = copy.deepcopy(network)
    statistics = network.norm.running_mean.clone()
    mimic(network, original, (inputs(), torch.zeros(150, dtype=torch.int64)), 5)
    mimic(other, original, (inputs(), torch.ones(150, dtype=torch.int64)), 5)
    assert torch.equal(network.norm.running_mean, statistics)
    assert torch.equal(network.conv.weight, other.conv.weight)
    assert not network.training


class CalledByName(Small):
    """Calls its last layer with a named argument."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(input=torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_features_are_those_of_a_layer_that_is_called_by_name() -> None:
    original, network = networks()
    named, cut = CalledByName(6).eval(), CalledByName(4).eval()
    named.load_state_dict(original.state_dict())
    cut.load_state_dict(network.state_dict())
    features = Features("head", -1, torch.tensor([0, 2, 3, 5]))
    mimic(network, original, inputs(), 3, features=features)
    mimic(cut, named, inputs(), 3, features=features)
    assert torch.equal(cut.conv.weight, network.conv.weight)


@pytest.mark.slow
@pytest.mark.parametrize("seen", [3, 12, 19])
def test_an_interrupted_mimicry_resumes_with_the_same_bytes(
    seen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_EVERY", 4)
    original, network = networks()
    whole = copy.deepcopy(network)
    mimic(whole, original, inputs(), 20, seed=5, folder=tmp_path / "whole")
    Small.calls = 0
    Small.interrupted_at = seen + 1
    with pytest.raises(KeyboardInterrupt):
        mimic(copy.deepcopy(network), original, inputs(), 20, seed=5, folder=tmp_path / "parts")
    Small.interrupted_at = -1
    Small.calls = 0
    mimic(network, original, inputs(), 20, seed=5, folder=tmp_path / "parts")
    assert Small.calls == 20 - seen // 4 * 4  # only what was not saved is computed again
    for name, tensor in whole.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name
    assert (tmp_path / "whole/weights.safetensors").read_bytes() == (
        tmp_path / "parts/weights.safetensors"
    ).read_bytes()


def test_a_finished_mimicry_is_read_from_its_folder(tmp_path: Path) -> None:
    original, network = networks()
    mimic(network, original, inputs(), 3, folder=tmp_path)
    Small.interrupted_at = Small.calls + 1
    _, again = networks()
    mimic(again, original, inputs(), 3, folder=tmp_path)
    assert torch.equal(again.conv.weight, load_file(tmp_path / "weights.safetensors")["conv.weight"])


def test_weights_that_a_kill_after_the_last_step_kept_from_the_disk_are_written_again(tmp_path: Path) -> None:
    original, network = networks()
    again = copy.deepcopy(network)
    mimic(network, original, inputs(), 3, folder=tmp_path)
    written = (tmp_path / "weights.safetensors").read_bytes()
    (tmp_path / "weights.safetensors").unlink()
    mimic(again, original, inputs(), 3, folder=tmp_path)
    assert (tmp_path / "weights.safetensors").read_bytes() == written


def test_the_seed_decides_the_order_and_another_request_is_rejected(tmp_path: Path) -> None:
    original, network = networks()
    other = copy.deepcopy(network)
    mimic(network, original, inputs(), 3, seed=0, folder=tmp_path)
    mimic(other, original, inputs(), 3, seed=1)
    assert not torch.equal(network.conv.weight, other.conv.weight)
    with pytest.raises(RunMismatch, match="other settings"):
        mimic(other, original, inputs(), 4, seed=0, folder=tmp_path)
    (tmp_path / "training.safetensors").write_bytes(b"text")
    _, again = networks()
    mimic(again, original, inputs(), 3, seed=0, folder=tmp_path)  # the damaged state is made again
    assert torch.equal(again.conv.weight, network.conv.weight)


@pytest.mark.slow
def test_features_are_compared_at_the_channels_that_are_kept() -> None:
    original, network = networks()
    kept = [5, 0, 2, 3]
    with torch.no_grad():
        network.head.requires_grad_(False).weight.zero_()  # the outputs say nothing about the convolution
        network.norm.weight[3] = 0  # and neither does the last of its channels
    features = Features("head", -1, torch.tensor(kept))
    before = network.conv.weight.clone()
    mimic(copy.deepcopy(network), original, inputs(), 1)
    mimic(network, original, inputs(), 250, features=features, lr=0.03)
    assert not torch.equal(network.conv.weight[:3], before[:3])
    seen: dict[str, Tensor] = {}
    for name, model in (("original", original), ("network", network)):
        model.head.register_forward_pre_hook(lambda _, given, name=name: seen.__setitem__(name, given[0]))
        model(inputs(200, seed=7))
    likeness = [_correlation(seen["network"][:, k], seen["original"][:, kept[k]]) for k in range(3)]
    assert min(likeness) > 0.9


def _correlation(one: Tensor, other: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one.detach(), other.detach()]))[0, 1])


def test_bad_requests_are_rejected() -> None:
    original, network = networks()
    with pytest.raises(InvalidOption, match="Give 1 or more"):
        mimic(network, original, inputs(), 0)
    with pytest.raises(InvalidOption, match="requires a gradient"):
        mimic(copy.deepcopy(network).requires_grad_(False), original, inputs(), 1)
    with torch.no_grad():
        network.head.weight.fill_(torch.inf)
    with pytest.raises(Diverged, match="loss of mimicry"):
        mimic(network, original, inputs(), 1)


@pytest.mark.slow
def test_progress_is_reported_in_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    original, network = networks()
    with show_progress():
        mimic(network, original, inputs(), 50)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["mimicking, step 25/50", "mimicking, step 50/50"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine")
def test_a_network_mimics_on_a_gpu_as_on_the_cpu(tmp_path: Path) -> None:
    original, network = networks()
    other = copy.deepcopy(network)
    score = Likeness(original)
    unseen = inputs(60, seed=9)
    mimic(network, original, inputs(), 80, lr=0.1, folder=tmp_path, device="cuda")
    assert next(network.parameters()).is_cuda
    mimic(other, original, inputs(), 80, lr=0.1)
    there = score(network, Batches.of(unseen, device="cuda"))
    here = score(other, Batches.of(unseen))
    assert abs(there - here) < 0.1  # bf16 there, single precision here
