"""Headers of pruned networks' files: damaged or wrong files are rejected with a message, and nothing is changed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import aacp

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def chain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 1)
    )


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    return aacp.trace(chain(), X)


@pytest.fixture
def saved(tmp_path: Path, graph: aacp.ChannelGraph) -> tuple[Path, nn.Module]:
    network = aacp.shrink(chain(), graph, [4, 3])
    aacp.save(network, graph, tmp_path / "pruned.safetensors", kept=[4, 3])
    return tmp_path / "pruned.safetensors", network


def header_of(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["aacp"])


def rewrite(path: Path, header: Any = None, **weights: Tensor | None) -> None:
    """The file with another header, and with tensors changed or (None) left out."""
    header = header_of(path) if header is None else header
    content = {name: value for name, value in (load_file(path) | weights).items() if value is not None}
    save_file(content, path, {"aacp": header if isinstance(header, str) else json.dumps(header)})


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def other_structure(path: Path) -> None:
    header = header_of(path)
    header["cuts"][0] |= {"structure": [4, 99], "channels": None}
    rewrite(path, header)


SPOILT = {
    "no file": (lambda path: path.unlink(), "There is no file"),
    "truncated": (cut_short, "is not a complete safetensors file"),
    "truncated in its header": (
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        "is not a complete safetensors",
    ),
    "empty": (lambda path: path.write_bytes(b""), "is not a complete safetensors file"),
    "text": (lambda path: path.write_text("hello " * 100), "is not a complete safetensors file"),
    "a torch file": (lambda path: torch.save({"a": X}, path), "is a file of torch.save .*aacp.load_weights"),
    "an old torch file": (
        lambda path: torch.save({"a": X}, path, _use_new_zipfile_serialization=False),
        "is a file of torch.save .*aacp.load_weights",
    ),
    "weights only": (lambda path: save_file({"a": X}, path), "no header of a pruned network.*load_weights"),
    "another version": (lambda path: rewrite(path, header_of(path) | {"format": 9}), "has format 9, written by aacp"),
    "no JSON": (lambda path: rewrite(path, "{"), "does not describe a pruned network"),
    "no dictionary": (lambda path: rewrite(path, "[1]"), "does not describe a pruned network"),
    "no cuts": (lambda path: rewrite(path, header_of(path) | {"cuts": []}), "it holds no cut"),
    "half a header": (lambda path: rewrite(path, {"format": 1, "aacp": "0"}), "KeyError: 'cuts'"),
    "another structure": (other_structure, "InvalidStructure: .*keeps at least 1"),
    "a tensor too many": (lambda path: rewrite(path, more=X), "more has shape .* but none"),
    "a tensor too few": (lambda path: rewrite(path, **{"3.bias": None}), r"3.bias has shape none .* but \(3,\)"),
    "a tensor of another shape": (
        lambda path: rewrite(path, **{"3.bias": torch.zeros(5)}),
        r"3.bias has shape \(5,\) in .*, but \(3,\)",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_bad_file_is_rejected_and_the_network_is_as_before(kind: str, saved: tuple[Path, nn.Module]) -> None:
    spoil, message = SPOILT[kind]
    spoil(saved[0])
    original = chain()
    before = {name: value.clone() for name, value in original.state_dict().items()}
    with pytest.raises(aacp.BrokenArtefact, match=message) as caught:
        aacp.load(saved[0], into=original)
    assert str(saved[0]) in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in original.state_dict().items())


def test_a_file_for_a_runtime_is_named_and_not_called_damaged(saved: tuple[Path, nn.Module]) -> None:
    path, network = saved
    exported = aacp.export_onnx(network, path.with_suffix(".onnx"), X).path
    with pytest.raises(aacp.BrokenArtefact) as caught:
        aacp.load(exported, into=chain())
    assert str(caught.value) == (
        f"{exported} is a file for ONNX Runtime by its name, and not a network that torch can train. Run it with "
        f"ONNX Runtime, or load what it was exported from: in a folder of aacp, {path}."
    )
    aacp.save(network, aacp.trace(chain(), X), exported, kept=[4, 3])  # a name says nothing about a whole file
    assert torch.equal(aacp.load(exported, into=chain())(X), network.eval()(X))


def test_a_folder_without_a_pruned_network_is_named(tmp_path: Path) -> None:
    with pytest.raises(aacp.BrokenArtefact, match=f"{tmp_path} is a folder without pruned.safetensors, which only"):
        aacp.load(tmp_path, into=chain())


def test_another_network_is_rejected_by_its_class_or_by_a_tensor(saved: tuple[Path, nn.Module]) -> None:
    path, network = saved
    with pytest.raises(aacp.BrokenArtefact, match="holds a pruned Sequential, but a ResNet was given"):
        aacp.load(path, into="resnet20")
    wider = chain()
    wider[5] = nn.Conv2d(6, 7, 1)
    with pytest.raises(aacp.BrokenArtefact, match=r"5.weight has shape \(7, 6, 1, 1\) .*, but \(2, 6, 1, 1\) in the"):
        aacp.load(path, into=wider)
    with pytest.raises(aacp.BrokenArtefact, match=r"0.weight has shape \(4, 3, 3, 3\) in the Sequential that was"):
        aacp.load(path, into=network)
    with pytest.raises(aacp.BrokenArtefact, match=r"6.weight has shape \(1, 1, 1, 1\) .*, but none \(there is no such"):
        aacp.load(path, into=nn.Sequential(*chain(), nn.Conv2d(1, 1, 1)))


def test_a_network_without_data_cannot_be_filled(saved: tuple[Path, nn.Module]) -> None:
    with pytest.raises(aacp.UntraceableModel, match="meta device"):
        aacp.load(saved[0], into=chain().to("meta"))


def test_what_cannot_be_loaded_is_not_saved(saved: tuple[Path, nn.Module], graph: aacp.ChannelGraph) -> None:
    path, network = saved
    content = path.read_bytes()
    with pytest.raises(aacp.GraphMismatch, match=r"0\.bias has shape"):
        aacp.save(network, graph, path, kept=[5, 3])
    with pytest.raises(aacp.InvalidStructure):
        aacp.save(network, graph, path, kept={"nonsense": 3})
    with pytest.raises(aacp.GraphMismatch, match="not a module that holds it"):
        aacp.save(nn.Sequential(network), graph, path)
    for metadata in ({"score": float("nan")}, {"score": X}):
        with pytest.raises(aacp.InvalidOption, match="metadata cannot be written as JSON"):
            aacp.save(network, graph, path, metadata=metadata)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]
