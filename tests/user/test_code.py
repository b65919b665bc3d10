"""The line of the user's code that an exception passed through, and what is not the user's code."""

from __future__ import annotations

import json

import pytest
import torch

import aacp
from aacp.user.code import described_failure, is_from_user_code, user_frame
from aacp.user.code import users_function as reported


def users_function() -> None:
    """A function of the user that calls aacp, which raises."""
    aacp.Structure([0])


def test_the_innermost_line_of_the_user_is_outside_of_aacp() -> None:
    with pytest.raises(aacp.InvalidStructure) as caught:
        users_function()
    frame = user_frame(caught.value)
    assert frame is not None
    assert (frame.filename, frame.name) == (__file__, "users_function")
    assert "(in users_function, test_code.py, line " in described_failure(caught.value)


class Broken(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        raise KeyError("broken example")


@pytest.mark.parametrize("workers", [0, 1])
def test_the_line_is_known_if_a_process_of_a_loader_raised(workers: int) -> None:
    with pytest.raises(KeyError, match="broken example") as caught:
        next(iter(torch.utils.data.DataLoader(Broken(), 2, num_workers=workers)))
    line = Broken.__getitem__.__code__.co_firstlineno + 1
    found = described_failure(caught.value)
    assert found == f"KeyError: 'broken example' (in __getitem__, test_code.py, line {line})"


def test_an_error_that_only_aacp_and_python_passed_through_is_not_the_users() -> None:
    with pytest.raises(ValueError, match="Expecting value") as caught:
        json.loads("")
    error = caught.value
    assert error.__traceback__ is not None
    inner = error.with_traceback(error.__traceback__.tb_next)  # without the line of this test
    assert user_frame(inner) is None
    assert not is_from_user_code(inner)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("no"), aacp.InvalidLoss),
        (aacp.InvalidData("no"), aacp.InvalidData),
        (torch.OutOfMemoryError("no"), torch.OutOfMemoryError),
    ],
)
def test_what_a_function_raises_is_reported_except_errors_of_aacp_and_of_a_device(raised, expected) -> None:
    with pytest.raises(expected, match="no") as caught, reported("loss", "(outputs, targets)", aacp.InvalidLoss):
        raise raised
    assert (caught.value is raised) == (expected is type(raised))
