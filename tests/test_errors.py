"""Errors of other libraries are quoted by the line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import aacp
from aacp.data.scores import scored
from aacp.errors import failing_as, first_line


def caught(kind: type[Exception], function: Callable[..., Any], *arguments: Any) -> Exception:
    with pytest.raises(kind) as error:
        function(*arguments)
    return error.value


def test_an_error_of_one_line_is_quoted_with_its_class() -> None:
    assert first_line(ValueError("Too large. ")) == "ValueError: Too large"
    assert first_line(KeyError()) == "KeyError"
    assert first_line(OSError("Too large.\nTry a smaller one.")) == "OSError: Too large"


def test_errors_of_others_become_errors_of_aacp_and_those_of_aacp_stay() -> None:
    cause, own = ValueError("It is red."), aacp.InvalidData("It is blue. Paint it.")
    with pytest.raises(aacp.ExportFailed) as caught, failing_as(aacp.ExportFailed, "No file", "Try again."):
        raise cause
    assert str(caught.value) == "No file: ValueError: It is red. Try again."
    assert caught.value.__cause__ is cause
    with pytest.raises(aacp.InvalidData) as passed, failing_as(aacp.ExportFailed, "No file", "Try again."):
        raise own
    assert passed.value is own


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),  # such as a label that is no class
        (RuntimeError("shapes differ"), False),
    ],
)
def test_failures_of_a_device_are_not_taken_for_failures_of_what_runs_on_it(error: Exception, passes: bool) -> None:
    network = nn.Identity()

    def fails(*_: Any) -> Any:
        raise error

    network.forward = fails  # type: ignore[method-assign]
    batches = aacp.Batches.of((torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)))
    with pytest.raises(Exception, match=str(error)) as quoted, failing_as(aacp.ExportFailed, "No file", "Try again."):
        raise error
    with pytest.raises(Exception, match=str(error)) as failed:
        scored(aacp.accuracy, network, batches, "held-out data")
    assert (quoted.value is error, failed.value is error) == (passes, passes)


def viewed(x: Tensor) -> Tensor:
    return x.view(7, 9)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_error_inside_of_torchscript_is_quoted() -> None:
    error = caught(RuntimeError, torch.jit.script(viewed), torch.ones(2, 3))
    assert first_line(error) == "RuntimeError: shape '[7, 9]' is invalid for input of size 6"


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_line_of_torchscript_that_fails_on_an_example_is_quoted() -> None:
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            scripted: Tensor = torch.jit.script(viewed)(self.conv(x))
            return scripted

    with pytest.raises(aacp.InvalidExample, match=r"return x\.view\(7, 9\)|shape '\[7, 9\]' is invalid"):
        aacp.trace(Scripted(), torch.ones(1, 3, 4, 4))


class Broken(Dataset[Tensor]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Tensor:
        raise ValueError("picture 0 is empty")


@pytest.mark.slow
def test_the_error_in_a_worker_of_a_loader_is_quoted() -> None:
    error = caught(ValueError, next, iter(DataLoader(Broken(), num_workers=1)))
    assert first_line(error) == "ValueError: picture 0 is empty"


def test_a_line_that_ends_with_a_colon_is_quoted_with_the_next() -> None:
    error = caught(RuntimeError, nn.Linear(1, 1, bias=False).load_state_dict, {})
    assert first_line(error).startswith("RuntimeError: Error(s) in loading state_dict for Linear: Missing key(s)")
    assert first_line(error).endswith('"weight"')
