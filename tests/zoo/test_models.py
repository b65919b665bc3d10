import sys

import pytest
import torch
from torch import nn

from aacp import UnknownModel
from aacp.zoo.models import build_model, example_input


@pytest.mark.slow
def test_networks_come_by_name() -> None:
    assert type(build_model("torchvision:resnet18")).__name__ == "ResNet"
    assert type(build_model("torchvision.segmentation:lraspp_mobilenet_v3_large")).__name__ == "LRASPP"
    assert type(build_model("timm:test_resnet")).__name__ == "ResNet"


def test_a_function_of_the_users_is_called(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "my_networks.py").write_text(
        "import torch\ndef small():\n    return torch.nn.Conv2d(3, 4, 1)\nnine = 9\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert isinstance(build_model("my_networks:small"), nn.Conv2d)
    with pytest.raises(UnknownModel, match="no function 'nine'"):
        build_model("my_networks:nine")
    with pytest.raises(UnknownModel, match="dict, not a torch"):
        build_model("builtins:dict")


@pytest.mark.parametrize("name", ["resnet18", "torchvision:nope", "timm:nope", "no.such.module:f", ":", "timm:"])
def test_names_that_lead_nowhere_are_rejected(name: str) -> None:
    with pytest.raises(UnknownModel):
        build_model(name)


def test_the_example_has_the_size_the_network_is_made_for() -> None:
    assert example_input(build_model("timm:test_resnet")).shape == (1, 3, 160, 160)
    assert example_input(nn.Conv2d(3, 4, 1)).shape == (1, 3, 224, 224)
    assert torch.equal(example_input(nn.Conv2d(1, 1, 1), (2, 1, 8)), example_input(nn.Conv2d(1, 1, 1), (2, 1, 8)))
