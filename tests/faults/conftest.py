"""The warm process and the folder of runs that the tests of faults share."""

from __future__ import annotations

import itertools
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
    place = tmp_path_factory.mktemp("faults") / "world"
    build_world(place, forker)
    return place


@pytest.fixture
def new_place(tmp_path: Path) -> Callable[[], Path]:
    """A path that nothing uses yet, at every call another one."""
    numbers = itertools.count()
    return lambda: tmp_path / f"trial-{next(numbers)}"
