"""Why `make test-plain` may leave out slow tests: on a CPU they get nothing from `aacp.accelerate`.

The core asks for accelerated forms in one place, `aacp.acceleration`. The answer None means "use the plain form", and
is also the answer where the folder is deleted: a test that gets no other answer runs the same code with and without
the folder. `make test` watches the answers. A slow test outside of tests/accelerate that gets an accelerated form
fails, since `make test-plain` would not notice that it needs the folder. The mark `accelerated` permits it.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aacp import acceleration

OWN_TESTS = Path(__file__).parent / "accelerate"


def watch(item: pytest.Item, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that `make test-plain` leaves out as soon as it gets an accelerated form."""
    if item.get_closest_marker("accelerated") is not None:
        if find_spec(acceleration.FOLDER) is None:
            pytest.skip("needs aacp.accelerate")
        return
    is_left_out = item.get_closest_marker("slow") is not None and OWN_TESTS not in item.path.parents
    if is_left_out and not torch.cuda.is_available():
        monkeypatch.setattr(acceleration, "importlib", SimpleNamespace(import_module=_Watched))


class _Watched:
    """A module that is imported by its name, and whose functions may only answer None."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)

        def answer(*arguments: Any) -> Any:
            found = function(*arguments)
            # `network_for` answers with the model itself on a CPU, which tests/accelerate/test_widening.py checks.
            assert found is None or name == "network_for", f"{name}: a slow test must pass without aacp.accelerate"
            return found

        return answer
