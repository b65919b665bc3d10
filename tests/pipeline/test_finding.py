"""find: a search without training, whose result other code cuts, trains, saves and loads."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.flop_counter import FlopCounterMode

import aacp
from aacp.user.progress import show_progress
from pipeline import tiny_run

INPUTS = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(5))
PLAN = replace(tiny_run.PLAN, evaluations=8, calibration_images=len(INPUTS))


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return tiny_run.network().eval()  # in training mode, a forward pass of a test would change its statistics


@pytest.fixture(scope="module")
def found(model: nn.Module) -> aacp.Found:
    """The result of a search with inputs alone, judged by the likeness of the outputs."""
    return found_for(model)


def found_for(model: nn.Module, data: Any = INPUTS, **others: Any) -> aacp.Found:
    arguments: dict[str, Any] = {"budget": {"macs": 0.4}, "plan": PLAN, "device": "cpu", **others}
    return aacp.find(model, data, **arguments)


def counted_macs(network: nn.Module) -> int:
    with FlopCounterMode(display=False) as counter:
        network(INPUTS[:1])
    return counter.get_total_flops() // 2


def test_the_cut_network_is_an_ordinary_module_within_the_budget(model: nn.Module, found: aacp.Found) -> None:
    smaller = found.cut()
    assert type(smaller) is type(model)
    assert counted_macs(smaller) <= 0.6 * counted_macs(model)
    assert smaller(INPUTS).shape == model(INPUTS).shape
    assert all(parameter.requires_grad for parameter in smaller.parameters())


def test_channels_are_printed_as_channels_if_they_are_kept_by_several() -> None:
    network = nn.Sequential(nn.Conv2d(1, 32, 3), nn.GroupNorm(4, 32), nn.Conv2d(32, 2, 3))
    found = found_for(network, plan=replace(PLAN, evaluations=2))
    (count,) = found.structure  # of 8 units of 4 channels
    assert found.cut()[0].weight.shape[0] == 4 * count
    assert str(found).splitlines()[-1] == f"channels: 0 {4 * count}/32"


def test_every_cut_is_a_network_of_its_own(found: aacp.Found) -> None:
    first = found.cut()
    second = found.cut()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
    assert float(second.head.weight.detach().abs().sum()) > 0
    assert float(found.cut().head.weight.detach().abs().sum()) > 0


def test_kept_channels_have_the_weights_of_the_original(model: nn.Module, found: aacp.Found) -> None:
    kept = found.inheritance.kept(found.structure)
    group = next(name for name in kept if "conv1" in name)
    assert torch.equal(found.cut().conv1.weight, model.conv1.weight[torch.from_numpy(kept[group])])


def test_a_score_of_the_network_alone_decides_what_is_found(model: nn.Module) -> None:
    def width_of_first(network: nn.Module) -> float:
        return float(network.conv1.out_channels)

    def width_of_second(network: nn.Module) -> float:
        return float(network.conv2.out_channels)

    wide_first = found_for(model, score=width_of_first)
    wide_second = found_for(model, score=width_of_second)
    assert wide_first.choice.score == wide_first.cut().conv1.out_channels
    assert wide_first.choice.unpruned == model.conv1.out_channels
    assert wide_first.cut().conv1.out_channels > wide_second.cut().conv1.out_channels
    assert wide_second.cut().conv2.out_channels > wide_first.cut().conv2.out_channels


def test_a_score_may_destroy_the_networks_that_it_gets(model: nn.Module) -> None:
    def destructive(network: nn.Module) -> float:
        score = float(network(INPUTS).std())
        network.double()
        network.head = nn.Identity()
        return score

    before = copy.deepcopy(model.state_dict())
    found = found_for(model, score=destructive)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(model.head, nn.Linear)
    assert found.cut().head.weight.dtype == torch.float32


def test_without_score_and_labels_the_likeness_of_the_outputs_decides(model: nn.Module, found: aacp.Found) -> None:
    assert found.choice.unpruned == pytest.approx(1.0)
    with torch.no_grad():
        expected = model.eval()(INPUTS)
        error = (found.cut()(INPUTS) - expected).square().sum()
        variance = (expected - expected.mean(0)).square().sum()
    assert float(1 - error / variance) == pytest.approx(found.choice.score, abs=1e-4)


def test_labelled_data_are_scored_by_accuracy(model: nn.Module) -> None:
    data = tiny_run.data()
    found = found_for(model, data)
    inputs, labels = data.holdout.tensors
    with torch.no_grad():
        right = (found.cut()(inputs).argmax(1) == labels).float().mean()
    assert found.choice.score == pytest.approx(float(right))


@pytest.mark.parametrize("form", ["list", "loader", "data set"])
def test_calibration_inputs_may_come_in_any_form(model: nn.Module, found: aacp.Found, form: str) -> None:
    sources: dict[str, Any] = {
        "list": list(INPUTS.split(8)),
        "loader": torch.utils.data.DataLoader(INPUTS, batch_size=8),  # type: ignore[arg-type]
        "data set": torch.utils.data.TensorDataset(INPUTS),
    }
    again = found_for(model, sources[form])
    assert again.structure == found.structure
    assert torch.allclose(again.cut()(INPUTS), found.cut()(INPUTS), atol=1e-5)


def test_a_saved_network_is_loaded_with_what_another_loop_trained(found: aacp.Found, tmp_path: Path) -> None:
    smaller = found.cut().train()
    optimiser = torch.optim.SGD(smaller.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        smaller(INPUTS).square().mean().backward()
        optimiser.step()
    artefact = found.save(smaller, tmp_path / "smaller.safetensors", metadata={"by": "a loop"})
    again = aacp.load(tmp_path / "smaller.safetensors", into=tiny_run.network(seed=9))
    assert torch.equal(again(INPUTS), smaller.eval()(INPUTS))
    assert artefact.structure == found.structure
    assert artefact.metadata == {"by": "a loop"}


def wrapped_in(wrapper: str, network: nn.Module) -> nn.Module:
    if wrapper == "averaged":
        return AveragedModel(network)
    if wrapper == "compiled":
        return torch.compile(network)  # type: ignore[return-value]
    return nn.DataParallel(torch.compile(network)) if wrapper == "parallel" else network  # type: ignore[arg-type]


@pytest.mark.parametrize("wrapper", ["averaged", "compiled", "parallel"])
def test_a_network_is_saved_without_its_wrapper(
    model: nn.Module, found: aacp.Found, wrapper: str, tmp_path: Path
) -> None:
    smaller = found.cut()
    found.save(wrapped_in(wrapper, smaller), tmp_path / "smaller.safetensors")
    again = aacp.load(tmp_path / "smaller.safetensors", into=model)
    assert torch.equal(again(INPUTS), smaller(INPUTS))


def test_a_network_of_another_structure_is_not_saved(model: nn.Module, found: aacp.Found, tmp_path: Path) -> None:
    with pytest.raises(aacp.GraphMismatch, match="has shape"):
        found.save(model, tmp_path / "smaller.safetensors")


def test_a_search_without_a_folder_leaves_nothing_on_the_disk(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = found_for(model)
    assert not list(tmp_path.iterdir())
    assert found.structure in {candidate.structure for candidate in found.history}


def test_prune_trains_what_find_has_found_in_the_same_folder(model: nn.Module, tmp_path: Path) -> None:
    data = tiny_run.data()
    found = found_for(model, data, folder=tmp_path)
    searched = (tmp_path / "history.jsonl").read_bytes()
    pruned = aacp.prune(model, data, {"macs": 0.4}, tmp_path, plan=PLAN, device="cpu")
    assert pruned.choice == found.choice
    assert (tmp_path / "history.jsonl").read_bytes() == searched


def test_the_same_call_reads_the_finished_search(model: nn.Module, tmp_path: Path) -> None:
    calls: list[nn.Module] = []

    def counting(network: nn.Module) -> float:
        calls.append(network)
        return float(network(INPUTS).std())

    first = found_for(model, folder=tmp_path, score=counting)
    count = len(calls)
    again = found_for(model, folder=tmp_path, score=counting)
    assert len(calls) == count
    assert again.choice == first.choice
    assert len(again.history) == len(first.history)


def test_a_plan_that_trains_is_rejected(model: nn.Module) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"probe_epochs=1.*aacp.prune"):
        found_for(model, tiny_run.data(), budget={}, plan=replace(PLAN, max_drop=0.1, probe_epochs=1))
    with pytest.raises(aacp.InvalidOption, match=r"finalists=4.*aacp.prune"):
        found_for(model, tiny_run.data(), budget={}, plan=aacp.Plan(finalists=4))
    with pytest.raises(aacp.InvalidOption, match=r"mimic=3.*aacp.prune"):
        found_for(model, plan=replace(PLAN, recipe=None, mimic=3))


def test_a_folder_that_is_not_a_path_is_named(model: nn.Module) -> None:
    with pytest.raises(aacp.InvalidOption, match="folder is 5, which is not a path"):
        found_for(model, folder=5)


def test_what_is_not_a_score_or_fails_is_named(model: nn.Module) -> None:
    def failing(network: nn.Module) -> float:
        raise ValueError("no validation data")

    with pytest.raises(aacp.InvalidOption, match="score is 5, not a function"):
        found_for(model, score=5)
    with pytest.raises(aacp.InvalidScore, match=r"no validation data .*called with \(network\)"):
        found_for(model, score=failing)


class Detector(nn.Module):
    """A network with several outputs in a dictionary, which no classification score understands."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.boxes = nn.Conv2d(8, 4, 1)
        self.scores = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.body(x)
        return {"boxes": self.boxes(x), "scores": self.scores(x)}


def test_a_network_with_a_dictionary_of_outputs_is_found_cut_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Detector()
    found = found_for(model)
    smaller = found.cut()
    found.save(smaller, tmp_path / "detector.safetensors")
    again = aacp.load(tmp_path / "detector.safetensors", into=Detector())
    assert smaller.body[0].out_channels < 8
    assert torch.equal(again(INPUTS)["boxes"], smaller(INPUTS)["boxes"])


class WithTargets(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Examples as many loaders give them: the input and the target by name."""

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return {"mask": INPUTS[place], "x": INPUTS[place]}


def test_a_loader_of_dictionaries_is_rejected_with_what_to_give(model: nn.Module) -> None:
    loader = torch.utils.data.DataLoader(WithTargets(), batch_size=8)
    message = (
        r"A batch of the data is a dictionary of 'mask', 'x', but forward of Tiny has no argument 'mask', only 'x'\. "
        r"Give what the network takes, such as \[batch\['x'\] for batch in loader\]"
    )
    with pytest.raises(aacp.InvalidData, match=message):
        found_for(model, loader, score=lambda network: 1.0)
    found_for(model, [batch["x"] for batch in loader], score=lambda network: 1.0)


def test_a_dictionary_without_labels_and_score_is_rejected_by_its_names(model: nn.Module) -> None:
    words = r"has no argument 'image', only 'x'\. Give what the network takes, such as \[batch\['image'\] for"
    with pytest.raises(aacp.InvalidData, match=words):
        found_for(model, [{"image": part} for part in INPUTS.split(8)])


def test_a_dictionary_that_lacks_an_argument_is_rejected_with_all_of_them() -> None:
    class Two(tiny_run.Tiny):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return super().forward(x * mask)

    with pytest.raises(aacp.InvalidData, match=r"forward of Two has the arguments 'x', 'mask'\. Give what"):
        found_for(Two(), [{"x": part} for part in INPUTS.split(8)])


def test_the_largest_tensor_of_a_dictionary_is_suggested_if_no_argument_has_its_name(model: nn.Module) -> None:
    batches = [{"number": torch.arange(8), "mask": part[:, :, :4], "pixels": part} for part in INPUTS.split(8)]
    with pytest.raises(aacp.InvalidData, match=r"such as \[batch\['pixels'\] for batch in loader\]"):
        found_for(model, batches, score=lambda network: 1.0)


def test_progress_names_the_network_its_free_share_and_its_score(
    model: nn.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress():
        found_for(model, score=lambda network: 0.25)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "Tiny: tracing",
        "Tiny: 100% of the channels of convolutions can be pruned",
        "Tiny: searching; the score of the unpruned network is 0.2500",
    ]


class InPieces(nn.Module):
    """Two parts, and between them a step that depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        features = self.first(x)
        return self.second(features if float(features.mean()) > 0 else -features)


def test_what_was_found_names_the_channels_of_every_group(found: aacp.Found) -> None:
    last = str(found).splitlines()[-1]
    for group, kept in zip(found.graph.free, found.structure, strict=True):
        assert f"{group.name} {kept}/{group.width}" in last


def test_what_was_found_in_parts_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    with show_progress():
        found = found_for(InPieces().eval(), score=lambda network: 1.0, budget={"macs": 0.2})
    assert str(found).splitlines()[-1] == "parts: first, second; 62% of the channels of convolutions are free"
    assert "What passes between them keeps all channels" in capsys.readouterr().err
