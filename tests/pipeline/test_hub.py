"""Folders in the style of Hugging Face: what is written, what is read, and what would be uploaded."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aacp
from aacp.artefact.header import Artefact
from aacp.pipeline.pruned import Pruned
from pipeline.tiny_run import UNTRAINED, network, pruned


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Pruned:
    return pruned(tmp_path_factory.mktemp("run"), plan=UNTRAINED)


@pytest.fixture(scope="module")
def folder(run: Pruned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return aacp.save_pretrained(run.folder.path, tmp_path_factory.mktemp("hub") / "tiny")


@pytest.mark.slow
def test_a_folder_holds_the_network_its_configuration_and_a_card(run: Pruned, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == run.file.read_bytes()
    config = json.loads((folder / "config.json").read_text())
    assert config["class"] == "Tiny"
    assert config["structure"] == list(run.choice.counts)
    assert config["evaluation"]["after"]["macs"] == run.evaluation.after.macs


def test_the_card_has_the_result_and_says_how_to_load_it(run: Pruned, folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: aacp\n")
    assert "fewer MACs" in card
    assert f"{100 * run.evaluation.after.test:.2f}\N{NO-BREAK SPACE}%" in card
    assert "aacp.from_pretrained(" in card
    assert "into=Tiny()" in card
    assert str(run.folder.path) not in card  # a private path


@pytest.mark.parametrize(("name", "needs_trust"), [("torch_nets:build", True), ("torchvision:alexnet", False)])
def test_the_card_trusts_the_code_of_a_user_and_nothing_else(
    name: str, needs_trust: bool, run: Pruned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = replace(Artefact.read(run.file), model=name)
    monkeypatch.setattr(Artefact, "read", lambda _: header)
    card = (aacp.save_pretrained(run.folder.path, tmp_path / "named") / "README.md").read_text()
    assert ("trust=True" in card) == needs_trust


def test_the_network_is_loaded_from_the_folder(run: Pruned, folder: Path) -> None:
    found = aacp.from_pretrained(folder, into=network(seed=9))
    example = torch.randn(3, 1, 8, 8)
    assert torch.equal(found(example), run.network(example))


def test_the_folder_of_a_training_is_enough(run: Pruned, tmp_path: Path) -> None:
    place = aacp.save_pretrained(run.training.path, tmp_path / "same")
    assert (place / "model.safetensors").read_bytes() == run.file.read_bytes()


def test_what_is_not_a_run_or_a_folder_of_it_is_rejected(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="is not a folder of a run"):
        aacp.save_pretrained(tmp_path / "nowhere", tmp_path / "hub")
    with pytest.raises(aacp.BrokenArtefact, match=r"is a folder without pruned\.safetensors"):
        aacp.save_pretrained(tmp_path, tmp_path / "hub")
    with pytest.raises(aacp.MissingFile, match=r"holds no model\.safetensors"):
        aacp.from_pretrained(tmp_path)
    with pytest.raises(aacp.InvalidOption, match="has no revision main"):
        aacp.from_pretrained(folder, revision="main")
    with pytest.raises(aacp.MissingFile, match=r"holds no model\.safetensors"):
        aacp.push_to_hub(tmp_path, "user/name")


class Hub(types.ModuleType):
    """A stand-in for huggingface_hub that keeps repositories in memory."""

    def __init__(self, file: Path) -> None:
        super().__init__("huggingface_hub")
        self.file = file
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def hf_hub_download(self, repository: str, name: str, revision: str | None) -> str:
        self.calls.append((repository, {"name": name, "revision": revision}))
        return str(self.file)

    def HfApi(self) -> Hub:
        return self

    def create_repo(self, repository: str, **options: Any) -> None:
        self.calls.append((repository, options))

    def upload_folder(self, **options: Any) -> str:
        self.calls.append(("upload", options))
        return "https://example.org/commit"


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    stand_in = Hub(folder / "model.safetensors")
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    return stand_in


def test_a_repository_is_read_by_its_name(hub: Hub, run: Pruned) -> None:
    found = aacp.from_pretrained("user/tiny", into=network(), revision="v1")
    assert hub.calls == [("user/tiny", {"name": "model.safetensors", "revision": "v1"})]
    example = torch.randn(1, 1, 8, 8)
    assert torch.equal(found(example), run.network(example))


def test_the_three_files_are_uploaded_and_nothing_else(hub: Hub, folder: Path) -> None:
    assert aacp.push_to_hub(folder, "user/tiny", private=True) == "https://example.org/commit"
    assert hub.calls[0] == ("user/tiny", {"private": True, "exist_ok": True})
    assert hub.calls[1][1]["folder_path"] == str(folder)
    assert sorted(hub.calls[1][1]["allow_patterns"]) == ["README.md", "config.json", "model.safetensors"]


def test_without_the_package_a_repository_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(aacp.MissingPackage, match="huggingface_hub is not installed"):
        aacp.from_pretrained("user/name")
