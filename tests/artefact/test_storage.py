"""save and load: a pruned network is restored bit for bit, or the file is rejected."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import aacp
from graph.micro_networks import MICRO
from graph.oracles import half, tensors

BY_NAME = {micro.name: micro for micro in MICRO}
NAMES = """shared_conv tied_convolutions tied_autoencoder statistics_buffers blur_pool_with_buffer sizes_in_a_partial
flatten_by_attribute grouped_conv depthwise_multiplier uneven_split padded_shortcut spectral_norm weight_norm
everything_is_eight attention_by_hand frozen_parameters""".split()


def stir(network: nn.Module) -> nn.Module:
    """Change every number of a network, as training does, including the counters of batches."""
    with torch.no_grad():
        for value in network.state_dict().values():
            value.add_(3 if not value.is_floating_point() else 0.1 * torch.rand_like(value))
    return network


def pruned(model: nn.Module, example: Any) -> tuple[nn.Module, aacp.ChannelGraph, dict[str, Any]]:
    graph = aacp.trace(model, example)
    kept = half(graph, seed=1)
    return stir(aacp.shrink(model, graph, kept)).eval(), graph, kept


def chain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 1)
    )


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def cut_chain() -> tuple[nn.Module, aacp.ChannelGraph, dict[str, Any]]:
    return pruned(chain(), X)


@pytest.fixture
def saved(
    tmp_path: Path, cut_chain: tuple[nn.Module, aacp.ChannelGraph, dict[str, Any]]
) -> tuple[Path, nn.Module, aacp.ChannelGraph]:
    network, graph, kept = cut_chain
    path = tmp_path / "pruned.safetensors"
    aacp.save(network, graph, path, kept=kept, metadata={"score": 0.9}, example=X)
    return path, network, graph


def assert_same(one: nn.Module, other: nn.Module, arguments: tuple[Any, ...]) -> None:
    assert type(one) is type(other)
    ours, theirs = one.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(value, theirs[name]) and value.dtype == theirs[name].dtype for name, value in ours.items())
    for a, b in zip(tensors(one(*arguments)), tensors(other(*arguments)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_constructs_of_every_kind_come_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    micro = BY_NAME[name]
    network, graph, kept = pruned(micro.build(), micro.example())
    expected = tensors(network(*micro.example()))
    for given in (kept, None):  # without it the counts are read off the shapes
        aacp.save(network, graph, tmp_path / "a", kept=given)
        loaded = aacp.load(tmp_path / "a", into=stir(micro.build()))
        assert all(torch.equal(a, b) for a, b in zip(expected, tensors(loaded(*micro.example())), strict=True))
        assert len(list(loaded.parameters())) == len(list(network.parameters()))  # shared weights are still shared


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("resnet20", 32), ("torchvision:mobilenet_v2", 32), ("timm:test_resnet", 32)]
)
def test_networks_with_a_name_need_no_more_than_the_path(name: str, size: int, tmp_path: Path) -> None:
    x = torch.randn(2, 3, size, size)
    network, graph, kept = pruned(aacp.build_model(name), x)
    aacp.save(network, graph, tmp_path / "a", kept=kept, model=name, example=x)
    state = torch.get_rng_state()
    loaded = aacp.load(tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in loaded.modules())
    assert_same(network, loaded, (x,))


@pytest.mark.slow
def test_a_function_of_the_users_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from torch import nn\ndef build():\n    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 1))\n"
    (tmp_path / "users_own_network.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    name = "users_own_network:build"
    network, graph, kept = pruned(aacp.build_model(name), X)
    aacp.save(network, graph, "a", kept=kept, model=name)
    assert_same(network, aacp.load("a", trust=True), (X,))
    aacp.save(network, graph, "b", kept=kept)
    assert_same(network, aacp.load("b", into=name), (X,))
    with pytest.raises(aacp.BrokenArtefact, match=r"does not say how to build.* class is Sequential.*into="):
        aacp.load("b")


@pytest.mark.slow
def test_a_fresh_process_loads_without_search_or_report_and_writes_the_same_bytes(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    network, graph, kept = pruned(aacp.build_model("digits_resnet"), x[:, :1])
    path, again, outputs = tmp_path / "a", tmp_path / "b", tmp_path / "outputs"
    aacp.save(network, graph, path, kept=kept, model="digits_resnet", metadata={"b": 1, "a": [2.5]})
    aacp.save(network, graph, again, kept=kept, model="digits_resnet", metadata={"b": 1, "a": [2.5]})
    assert path.read_bytes() == again.read_bytes()
    save_file({"x": x[:, :1].contiguous(), "y": network(x[:, :1]).detach()}, outputs)
    again.unlink()
    program = f"""
import sys
import aacp
network = aacp.load({str(path)!r})
print(sorted(name for name in sys.modules if name.split(".")[0] in ("aacp", "plotly", "lightning_fabric", "rich")))
import torch
from safetensors.torch import load_file
data = load_file({str(outputs)!r})
torch.set_num_threads({torch.get_num_threads()})
assert torch.equal(network(data["x"]), data["y"])
found = aacp.Artefact.read({str(path)!r})
aacp.save(network, found.graph, {str(again)!r}, kept=found.cuts[0].kept, model=found.model, metadata=found.metadata)
"""
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    modules = {name for name in json.loads(result.stdout.replace("'", '"')) if name.startswith("aacp.")}
    rooms = {name.split(".")[1] for name in modules - {"aacp.data", "aacp.data.examples"}}
    plain = {"channels", "errors", "version", "cost", "disk", "user"}
    assert rooms <= plain | {"artefact", "runs", "pytorch", "graph", "zoo"}
    assert "plotly" not in result.stdout
    assert again.read_bytes() == path.read_bytes()


def test_the_header_tells_everything_but_the_weights(saved: tuple[Path, nn.Module, aacp.ChannelGraph]) -> None:
    path, network, graph = saved
    found = aacp.Artefact.read(path)
    assert found.graph == graph
    assert list(found.structure) == [network[0].out_channels, network[3].out_channels]
    assert found.metadata == {"score": 0.9}
    assert found.example == {"tensor": [2, 3, 8, 8], "dtype": "float32"}
    assert aacp.Artefact.read(path.parent) == found  # a run folder
    assert list(path.parent.iterdir()) == [path]


def test_a_wrapped_original_is_unwrapped(saved: tuple[Path, nn.Module, aacp.ChannelGraph]) -> None:
    path, network, _ = saved
    assert_same(aacp.load(path, into=nn.DataParallel(chain())), network, (X,))
    assert_same(aacp.load(path, into=torch.compile(chain())), network, (X,))


@pytest.mark.slow
def test_a_loaded_network_trains_copies_exports_and_compiles(saved: tuple[Path, nn.Module, aacp.ChannelGraph]) -> None:
    path, network, _ = saved
    loaded = aacp.load(path, into=chain())
    with torch.no_grad():
        expected = loaded(X)
        compiled = torch.compile(loaded, backend="aot_eager", fullgraph=True)  # inductor needs a compiler and a minute
        torch.testing.assert_close(compiled(X), expected)
        torch.testing.assert_close(torch.export.export(loaded, (X,)).module()(X), expected)
    twin = copy.deepcopy(loaded).train()
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1)
    first = twin(X).square().mean()
    first.backward()
    optimiser.step()
    assert twin(X).square().mean() < first
    assert torch.equal(loaded(X), expected)
    assert int(twin[1].num_batches_tracked) == int(network[1].num_batches_tracked) + 2


def test_precision_is_the_files_and_the_original_is_not_touched(tmp_path: Path) -> None:
    network, graph, _ = pruned(chain(), X)
    network.double()
    aacp.save(network, graph, tmp_path / "a")
    original = chain().train()
    before = {name: value.clone() for name, value in original.state_dict().items()}
    loaded = aacp.load(tmp_path / "a", into=original)
    assert_same(network, loaded, (X.double(),))
    loaded[0].weight.data.zero_()
    assert all(torch.equal(value, before[name]) for name, value in original.state_dict().items())
    assert original.training


def test_tensors_outside_the_state_come_back_but_caches_do_not(tmp_path: Path) -> None:
    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
            self.register_buffer("scale", torch.randn(8, 1, 1), persistent=False)
            self.offset = torch.randn(8, 1, 1)
            self.ramp = torch.zeros(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            if self.ramp.shape[1] != x.shape[3]:
                self.ramp = torch.arange(x.shape[3], dtype=x.dtype).reshape(1, -1)
            return self.b(self.a(x) * self.scale + self.offset + self.ramp)

    network, graph, _ = pruned(Caching(), X)
    expected = network(X)
    aacp.save(network, graph, tmp_path / "a")
    loaded = aacp.load(tmp_path / "a", into=Caching())
    assert torch.equal(loaded(X), expected)
    assert "ramp" not in load_file(tmp_path / "a")


@pytest.mark.slow
def test_a_network_pruned_twice_is_saved_against_the_first_file(tmp_path: Path) -> None:
    first, graph, kept = pruned(chain(), X)
    aacp.save(first, graph, tmp_path / "first", kept=kept, example=X)
    network, second_graph, second_kept = pruned(aacp.load(tmp_path / "first", into=chain()), X)
    found = aacp.save(network, second_graph, tmp_path / "second", kept=second_kept, base=tmp_path / "first")
    assert [list(cut.structure) for cut in found.cuts] == [[4, 3], [2, 1]]
    assert found.example is not None
    assert_same(network, aacp.load(tmp_path / "second", into=chain()), (X,))
    with pytest.raises(aacp.GraphMismatch, match=r"0.weight has shape \(8, 3, 3, 3\) in the graph, but \(4, 3, 3, 3\)"):
        aacp.save(first, graph, tmp_path / "third", base=tmp_path / "first")


@pytest.mark.slow
def test_a_network_pruned_twice_without_its_first_file_is_loaded_into_the_first(tmp_path: Path) -> None:
    first, graph, kept = pruned(chain(), X)
    aacp.save(first, graph, tmp_path / "first", kept=kept)
    network, second_graph, second_kept = pruned(first, X)
    aacp.save(network, second_graph, tmp_path / "second", kept=second_kept)
    with pytest.raises(aacp.BrokenArtefact, match="itself the result of a pruning, load it from its own file first"):
        aacp.load(tmp_path / "second", into=chain())
    assert_same(network, aacp.load(tmp_path / "second", into=aacp.load(tmp_path / "first", into=chain())), (X,))
    with pytest.raises(aacp.BrokenArtefact, match="as it was built then, and give it unpruned"):
        aacp.load(tmp_path / "first", into=first)


@pytest.mark.slow
def test_an_exported_graph_is_made_anew_from_the_shapes_of_its_example(tmp_path: Path) -> None:
    micro = BY_NAME["flatten_by_literal_view"]
    model, example = micro.build(), micro.example()
    graph = aacp.trace(model, example, form="exported")
    kept = half(graph, seed=1)
    network = stir(aacp.shrink(model, graph, kept, example=example))
    with pytest.raises(aacp.InvalidOption, match="cannot be loaded without its example"):
        aacp.save(network, graph, tmp_path / "a", kept=kept)
    for given in (kept, None):
        aacp.save(network, graph, tmp_path / "a", kept=given, example=example)
        loaded = aacp.load(tmp_path / "a", into=stir(micro.build()))
        assert torch.equal(loaded(*example), network(*example))


class Gridded(nn.Module):
    """Makes a tensor for itself when it first runs, as detectors and position embeddings do."""

    def __init__(self, first: Tensor | None) -> None:
        super().__init__()
        self.layers, self.grid = chain(), first

    def forward(self, x: Tensor) -> Tensor:
        if self.grid is None or self.grid.shape != x.shape[2:]:
            self.grid = torch.linspace(0, 1, x[0, 0].numel()).view(x.shape[2:])
        return self.layers(x + self.grid)


@pytest.mark.slow
@pytest.mark.parametrize("first", [None, torch.zeros(1)])
def test_what_a_network_makes_while_it_runs_keeps_nobody_from_loading(first: Tensor | None, tmp_path: Path) -> None:
    for runs_before, runs_after in ((True, False), (False, True)):
        model = Gridded(first).eval()
        if runs_before:
            model(X)
        graph = aacp.trace(model, X)
        if runs_after:
            model(X)
        network = stir(aacp.shrink(model, graph, half(graph, seed=1))).eval()
        expected = network(X)
        aacp.save(network, graph, tmp_path / "gridded.safetensors", example=X)
        loaded = aacp.load(tmp_path / "gridded.safetensors", into=Gridded(first))
        assert torch.equal(loaded(X), expected)


OLD = Path(__file__).parent / "old"  # written by the version before the second redesign, with digits_resnet


@pytest.mark.parametrize("file", ["channels", "counts"])
def test_a_file_of_the_previous_version_still_loads(file: str, tmp_path: Path) -> None:
    expected = load_file(OLD / "expected.safetensors")
    loaded = aacp.load(OLD / f"{file}.safetensors")
    torch.testing.assert_close(loaded(expected["inputs"]), expected["outputs"])
    header = aacp.Artefact.read(OLD / f"{file}.safetensors")
    assert list(header.structure) == [6, 6, 12, 3, 3, 24, 6, 6]
    assert header.model == "digits_resnet"
    (cut,) = header.cuts
    aacp.save(loaded, cut.graph, tmp_path / "again", kept=cut.kept, model=header.model)
    assert_same(loaded, aacp.load(tmp_path / "again"), (expected["inputs"],))


def test_the_channels_that_were_kept_are_recorded_if_they_are_given(tmp_path: Path) -> None:
    channels = aacp.Artefact.read(OLD / "channels.safetensors").cuts[0].channels
    assert channels is not None
    assert channels[0] == (1, 3, 5, 7, 9, 11)
    assert aacp.Artefact.read(OLD / "counts.safetensors").cuts[0].channels is None


def test_least_squares_serve_only_networks_that_come_without_what_they_kept(
    tmp_path: Path, cut_chain: tuple[nn.Module, aacp.ChannelGraph, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, graph, kept = cut_chain
    monkeypatch.setattr("aacp.artefact.storage.structure_of", None)
    header = aacp.save(network, graph, tmp_path / "a", kept=kept)
    assert header.cuts[0].channels == tuple(tuple(sorted(kept[group.name])) for group in graph.free)
    wrong = {name: channels[:-1] for name, channels in kept.items()}
    with pytest.raises(aacp.GraphMismatch, match=r"0\.bias has shape \(4,\) in this network.*cut to \[3, 2\]"):
        aacp.save(network, graph, tmp_path / "b", kept=wrong)
    assert not (tmp_path / "b").exists()
