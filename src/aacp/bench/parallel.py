"""Independent runs of a benchmark in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

Result = TypeVar("Result")


def results_of(function: Callable[..., Result], *columns: Iterable[Any], processes: int = 1) -> list[Result]:
    """The results of a function for each row of arguments, in order; with several processes it must be importable."""
    if processes == 1:
        return list(map(function, *columns))
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(function, *columns))
