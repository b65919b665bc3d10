"""Samples of long lists of cases: a tier runs a part of them, a longer one the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int, others: pytest.MarkDecorator = pytest.mark.extensive) -> list[Any]:
    """All cases for `pytest.mark.parametrize`; all but the first of each `every` get a mark.

    With the mark `extensive` only `make extensive` runs the others, with the mark `slow` all tiers but `make quick`.
    """
    return [_marked(case, others) if number % every else case for number, case in enumerate(cases)]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=mark)
