"""Whatever is raised below a command, it ends with one sentence and an exit code, and never with a traceback."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aacp.cli import main
from aacp.commands.border import REMEDIES, explained
from aacp.errors import UnknownModel


def result_if_tracing(monkeypatch: pytest.MonkeyPatch, behaviour: Callable[..., Any]) -> Result:
    """The result of a command whose first call of the library behaves as given."""
    monkeypatch.setattr("aacp.zoo.models.build_model", behaviour)
    return CliRunner().invoke(main, ["trace", "resnet20"])


def raising(error: BaseException) -> Callable[..., Any]:
    def raise_error(*_: Any, **__: Any) -> None:
        raise error

    return raise_error


@pytest.mark.parametrize("number", [*REMEDIES, errno.EIO])
def test_errors_of_the_system_name_the_path_the_cause_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    sentence, code = explained(OSError(number, "the system's words", "some/file"))
    assert code == 1
    assert "some/file: the system's words. " in sentence
    assert "\n" not in sentence
    # In a command, what the user's code raises is distinguished: this file counts as such code.
    result = result_if_tracing(monkeypatch, raising(OSError(number, "the system's words", "some/file")))
    assert result.exit_code == 1
    assert result.stderr.startswith("UserCodeFailed: Your code failed with ")
    assert "(in raise_error, test_border.py, line" in result.stderr


def test_errors_of_the_system_in_a_command_are_not_those_of_the_users_code(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_if_tracing(monkeypatch, os.listdir)  # of a folder that does not exist
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "FileNotFoundError: resnet20: No such file or directory. Check the path.\n"


def test_errors_of_the_system_may_have_two_paths_or_none() -> None:
    both = explained(OSError(errno.EXDEV, "Invalid cross-device link", "one", None, "other"))[0]
    assert "one and other: Invalid cross-device link. " in both
    assert explained(OSError("no number"))[0].startswith("OSError: OSError: no number. ")


@pytest.mark.parametrize("code", [0, None, 1, "all is well"])
def test_a_module_that_ends_the_program_is_an_error_of_that_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: object
) -> None:
    (tmp_path / "leaving.py").write_text(f"import sys\n\ndef build():\n    sys.exit({code!r})\n\nsys.exit({code!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(main, ["trace", "leaving:build"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "SystemExit" in result.stderr
    assert "leaving" in result.stderr


def test_an_exception_of_the_users_code_names_its_function_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(
        "import torch\n"
        "class Network(torch.nn.Linear):\n"
        "    @property\n"
        "    def default_cfg(self):\n"
        "        return {}['gone']\n"
        "def build():\n"
        "    return Network(1, 1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(main, ["trace", "failing:build"])
    assert result.exit_code == 1
    assert (
        "UserCodeFailed: Your code failed with KeyError: 'gone' (in default_cfg, failing.py, line 5). " in result.stderr
    )
    assert "Traceback" not in result.stderr


def test_an_exception_in_a_loader_process_is_one_of_the_users_code() -> None:
    text = "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\nKeyError: 'x'"
    sentence, code = explained(RuntimeError(text))
    assert (sentence.startswith("UserCodeFailed: Your code failed with KeyError: 'x'. "), code) == (True, 1)


def test_a_mistake_of_aacp_has_its_own_code_and_a_file_with_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_if_tracing(monkeypatch, json.loads)  # which is not code of the user and raises
    assert result.exit_code == 3
    assert result.stderr.startswith("InternalError: This is a bug in aacp, not in your command: JSONDecodeError: ")
    assert result.stderr.count("\n") == 1
    file = Path(result.stderr.split("which is in ")[1].rstrip(".\n"))
    assert "Traceback (most recent call last)" in file.read_text()
    file.unlink()


def test_a_full_disk_does_not_hide_a_mistake_of_aacp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.NamedTemporaryFile", raising(OSError(errno.ENOSPC, "No space left on device")))
    sentence, code = explained(KeyError("gone"))
    assert (code, "AACP_TRACEBACK=1" in sentence) == (3, True)


def test_exhausted_memory_is_not_a_mistake_of_aacp() -> None:
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 10 bytes")):
        sentence, code = explained(error)
        assert (sentence.startswith("MemoryError: There is not enough memory"), code) == (True, 1)


def test_a_busy_gpu_is_not_a_mistake_of_aacp() -> None:
    message = "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nSearch for `cudaErrorDevicesUnavailable'"
    sentence, code = explained(RuntimeError(message))
    assert (sentence.startswith("DeviceBusy: The GPU does not accept this process"), code) == (True, 1)
    assert "give the same command again" in sentence
    assert "Search for" not in sentence


def test_a_gpu_that_fails_is_not_a_mistake_of_aacp() -> None:
    """Under MPS, a process that is killed takes all others on the GPU down with it."""
    sentence, code = explained(RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for `cuda'"))
    assert (sentence.startswith("DeviceFailed: The GPU failed"), code) == (True, 1)
    assert "give the same command again" in sentence
    assert "Search for" not in sentence


def test_tracebacks_are_printed_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AACP_TRACEBACK", "1")
    result = result_if_tracing(monkeypatch, raising(UnknownModel("There is none. Choose another.")))
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("UnknownModel: There is none. Choose another.\n")


def test_a_name_that_cannot_be_encoded_is_printed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = "\udcff"  # a byte of a file name that is not UTF-8
    result = result_if_tracing(monkeypatch, raising(UnknownModel(f"There is no {strange}. Choose another.")))
    assert (result.exit_code, "There is no \\udcff" in result.stderr) == (1, True)


def test_the_list_of_commands_has_whole_sentences() -> None:
    listed = " ".join(CliRunner().invoke(main, ["--help"]).stdout.split())
    assert "prune Prune MODEL to a budget: search, train, evaluate, export, report." in listed
    assert "measure Time structures of MODEL piece by piece, and save a table that predicts the seconds of" in listed
