"""The warm process and the folder of runs that the tests of faults share."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.forker import Forker
from faults.world import build_world


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    made = Forker()
    yield made
    made.close()


@pytest.fixture(scope="session")
def world(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the first worker of pytest that needs it; the others wait for it."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    place, is_built = shared / "faults-world", shared / "faults-world-is-built"
    with (shared / "faults-world-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_built.exists():
            build_world(place, forker)
            is_built.touch()
    return place


@pytest.fixture
def new_place(tmp_path: Path) -> Callable[[], Path]:
    """A path that nothing uses yet, at every call another one."""
    numbers = itertools.count()
    return lambda: tmp_path / f"trial-{next(numbers)}"
