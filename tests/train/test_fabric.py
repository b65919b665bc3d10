"""Fabric: an optional package, which only training needs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aacp.errors import InvalidOption, MissingPackage
from aacp.train.fabric import chosen_fabric, half_type, make_fabric
from aacp.train.launching import run_in_processes
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from forks import CONTEXT

WITHOUT = """
import sys
sys.modules["lightning_fabric"] = None  # every import of it fails, as if it were not installed
import torch
import aacp
for name in aacp.__all__:
    getattr(aacp, name)
import aacp.cli, aacp.commands.prune, aacp.pipeline.job, aacp.train.job
model = aacp.build_model("digits_resnet")
print(len(aacp.trace(model, torch.randn(2, 1, 8, 8)).free) > 0)
try:
    aacp.fit(model, aacp.load_data("digits"), device="cpu")
except aacp.MissingPackage as error:
    print(error)
"""


@pytest.mark.slow
def test_everything_but_training_works_without_the_package() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "True",
        "Training needs lightning-fabric, which is not installed. Install it with pip install 'aacp[train]'.",
    ], done.stderr


def test_a_missing_package_is_an_import_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(ImportError) as caught:
        make_fabric(device="cpu")
    assert isinstance(caught.value, MissingPackage)


def test_the_users_fabric_is_used_and_a_second_device_is_rejected() -> None:
    fabric = make_fabric(device="cpu")
    assert chosen_fabric(fabric, "auto", None) is fabric
    with pytest.raises(InvalidOption, match="The fabric is on cpu, and cuda would be ignored"):
        chosen_fabric(fabric, "auto", "cuda")


def test_mixed_precision_has_a_half_type_and_single_precision_has_none() -> None:
    assert half_type(make_fabric("bf16-mixed", "cpu")) is torch.bfloat16
    assert half_type(make_fabric("32-true", "cpu")) is None


@pytest.mark.slow
def test_fabric_does_not_announce_its_choices(tmp_path: Path) -> None:
    process = CONTEXT.Process(target=fabric_with_messages_to, args=(tmp_path / "stderr",))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "stderr").read_text() == ""


def fabric_with_messages_to(file: Path) -> None:
    """Make a fabric in a process that has imported Lightning already, with the level that the first import sets."""
    logging.getLogger("lightning_fabric").setLevel(logging.INFO)
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), 2)
    make_fabric("bf16-mixed", "cpu")


class Spare(nn.Linear):
    """A network with a head that it does not use."""

    def __init__(self) -> None:
        super().__init__(2, 3)
        self.spare = nn.Linear(2, 3)


def trained_with_spare(fabric: Any) -> None:
    fit(Spare(), (torch.randn(8, 2), torch.arange(8) % 3), Recipe(epochs=1, batch_size=4, lr=0.1), fabric=fabric)


@pytest.mark.slow
def test_parameters_that_processes_wait_for_in_vain_are_named() -> None:
    with pytest.raises(InvalidOption, match=r"does not use spare.weight, spare.bias, but processes wait"):
        run_in_processes(trained_with_spare, processes=2, device="cpu")
