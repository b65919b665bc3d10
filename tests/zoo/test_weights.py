from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from aacp import InvalidWeights, build_model, load_weights
from aacp.zoo.weights import read_weights


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 5))


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


FORMS = {
    "plain": lambda state: state,
    "under state_dict": lambda state: {"state_dict": state, "best_prec1": 91.7, "epoch": 3},
    "under model": lambda state: {"model": state},
    "of DataParallel": lambda state: {"module." + name: value for name, value in state.items()},
    "of compile and DataParallel": lambda state: {"module._orig_mod." + name: value for name, value in state.items()},
    "of DataParallel, compiled": lambda state: {"_orig_mod.module." + name: value for name, value in state.items()},
    "of a LightningModule": lambda state: {"model." + name: value for name, value in state.items()},
    "before batches were counted": lambda state: {name: v for name, v in state.items() if "tracked" not in name},
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_come_back_from_every_form_of_torch_file(form: str, tmp_path: Path) -> None:
    trained, model = network(1), network(2)
    torch.save(FORMS[form](trained.state_dict()), tmp_path / "weights.th")
    load_weights(model, tmp_path / "weights.th")
    assert equal(copied(model), copied(trained))


def test_weights_come_back_from_safetensors_whatever_the_file_is_called(tmp_path: Path) -> None:
    trained, model = network(1), network(2)
    save_file({"module." + name: value for name, value in trained.state_dict().items()}, tmp_path / "weights.bin")
    load_weights(model, str(tmp_path / "weights.bin"))
    assert equal(copied(model), copied(trained))


def test_a_prefix_that_the_network_has_too_is_kept(tmp_path: Path) -> None:
    trained, model = nn.ModuleDict({"module": network(1)}), nn.ModuleDict({"module": network(2)})
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    load_weights(model, tmp_path / "weights.pt")
    assert equal(copied(model), copied(trained))


def test_mismatches_are_named_key_by_key_and_nothing_is_loaded(tmp_path: Path) -> None:
    state = copied(network(1))
    del state["1.running_var"]
    state["3.weight"] = torch.zeros(5, 7)
    state["4.bias"] = torch.zeros(5)
    torch.save(state, tmp_path / "weights.pt")
    model = network(2)
    before = copied(model)
    with pytest.raises(InvalidWeights) as caught:
        load_weights(model, tmp_path / "weights.pt")
    message = str(caught.value)
    assert "missing 1.running_var;" in message
    assert "unexpected 4.bias;" in message
    assert "of another shape 3.weight (5x7 in the file, 5x4 in the network)" in message
    assert "\n" not in message
    assert equal(copied(model), before)


def test_a_long_list_of_mismatches_ends_with_a_count(tmp_path: Path) -> None:
    torch.save(network(1).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InvalidWeights, match=r"missing conv1.weight, .* and \d+ more; unexpected 0.bias, 0.weight"):
        load_weights(build_model("resnet56"), tmp_path / "weights.pt")


def test_unexpected_tensors_are_listed_in_order_and_pruned_networks_are_mentioned(tmp_path: Path) -> None:
    names = [f"extra.{letter}" for letter in "hgfedcba"]
    torch.save({**network(1).state_dict(), **{name: torch.zeros(1) for name in names}}, tmp_path / "weights.pt")
    with pytest.raises(
        InvalidWeights, match=r"unexpected extra\.a, extra\.b, .*extra\.e and 3 more\. .*; aacp\.load loads a pruned"
    ):
        load_weights(network(1), tmp_path / "weights.pt")


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("written by a pickle",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as weights"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00{not json", "is not a complete safetensors file"),
        (pickle.dumps(Malicious()), "cannot be read as weights"),
        (None, "There is no file"),
    ],
)
def test_files_that_are_no_weights_are_rejected(
    content: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidWeights, match=message):
        load_weights(network(0), path)
    assert not (tmp_path / "written by a pickle").exists()


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (network(0), "it names torch.nn.modules.container.Sequential, which is neither a tensor nor a plain value"),
        (Malicious(), "it names posix.mkdir, which is neither"),
        ([1, 2], "contains a list, not a state dict"),
        ({"epoch": 3, "optimizer": {}}, "contains epoch, optimizer where tensors are expected"),
        ({}, "contains nothing"),
    ],
)
def test_torch_files_without_a_state_dict_are_rejected(saved: object, message: str, tmp_path: Path) -> None:
    torch.save(saved, tmp_path / "weights.pt")
    with pytest.raises(InvalidWeights, match=message) as caught:
        load_weights(network(0), tmp_path / "weights.pt")
    assert len(str(caught.value)) < 300


def test_a_truncated_file_is_rejected(tmp_path: Path) -> None:
    torch.save(network(0).state_dict(), tmp_path / "weights.pt")
    whole = (tmp_path / "weights.pt").read_bytes()
    (tmp_path / "weights.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidWeights, match="cannot be read"):
        load_weights(network(0), tmp_path / "weights.pt")


# -- files of strangers -----------------------------------------------------------------------------------------------


def zipped(path: Path, compression: int, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"weights/{name.replace('_', '.')}", content)


def test_a_compressed_file_is_not_unpacked(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "whole.pt")
    with (
        zipfile.ZipFile(tmp_path / "whole.pt") as whole,
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for entry in whole.infolist():
            bomb.writestr(entry.filename, whole.read(entry))
    assert "a" in read_weights(tmp_path / "whole.pt")
    with pytest.raises(InvalidWeights, match=r"bomb.pt cannot be read as weights \(its [\d,]+ bytes claim to hold"):
        read_weights(tmp_path / "bomb.pt")


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_key_of_endless_tuples_is_rejected_at_once(is_zip: bool, tmp_path: Path) -> None:
    endless: tuple[Any, ...] = ()
    for _ in range(60):
        endless = (endless, endless)
    key = pickle.dumps(endless, 2)[2:-1]
    content = b"\x80\x02}" + key + b"K\x01s."
    if is_zip:
        zipped(tmp_path / "a.pt", zipfile.ZIP_STORED, data_pkl=content, version=b"3\n", byteorder=b"little")
    else:
        (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(InvalidWeights, match=r"a.pt cannot be read as weights \(its tuples have more parts"):
        read_weights(tmp_path / "a.pt")


def test_files_of_older_versions_of_torch_are_read(tmp_path: Path) -> None:
    trained, model = network(1), network(2)
    torch.save(trained.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    load_weights(model, tmp_path / "old.pt")
    assert equal(copied(model), copied(trained))


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(5, 4, dtype=torch.int64),
        torch.zeros(5, 4, dtype=torch.complex64),
        torch.zeros(5, 4, dtype=torch.bool),
        torch.zeros(5, 4).to_sparse(),
        torch.zeros(5, 4, device="meta"),
    ],
)
def test_tensors_of_another_sort_are_rejected_and_nothing_is_loaded(value: Tensor, tmp_path: Path) -> None:
    model = network(2)
    before = copied(model)
    torch.save({**copied(network(1)), "3.weight": value}, tmp_path / "a.pt")
    with pytest.raises(InvalidWeights, match=r"of another type 3.weight \(.*, torch.float32 in the network\)"):
        load_weights(model, tmp_path / "a.pt")
    assert equal(copied(model), before)


def test_half_precision_is_accepted_for_single_precision(tmp_path: Path) -> None:
    save_file(
        {name: v.half() if v.is_floating_point() else v for name, v in copied(network(1)).items()}, tmp_path / "a"
    )
    load_weights(network(2), tmp_path / "a")


def test_pipes_devices_and_folders_are_not_weights(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", "a pipe"), ("zero", "a device"), ("folder", "a folder")):
        with pytest.raises(InvalidWeights, match=f"{name} is {kind}, not a file"):
            read_weights(tmp_path / name)
