"""Closures: the variables that functions in a network's modules have closed over."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The variables a function has closed over, with their values (None for those that have none yet)."""
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    return {name: _contents(cell) for name, cell in zip(names, cells, strict=True)}


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def with_closure(function: types.FunctionType, values: Mapping[str, Any]) -> types.FunctionType:
    """The same function with other values in some of its variables; the original keeps its own."""
    cells = tuple(
        types.CellType(values[name]) if name in values else cell
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    return twin
