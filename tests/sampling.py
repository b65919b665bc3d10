"""Samples of long lists of cases: `make test` runs a part of them, `make extensive` the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """All cases for `pytest.mark.parametrize`; all but the first of each `every` are marked as extensive."""
    return [_marked(case) if number % every else case for number, case in enumerate(cases)]


def _marked(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.extensive)
