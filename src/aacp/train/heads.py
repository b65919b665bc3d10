"""Heads: how a recipe or a user says which outputs are compared with those of a teacher, and how. Without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from aacp.errors import InvalidOption
from aacp.user.options import require_known
from aacp.user.values import shown

Comparison = Literal["auto", "classes", "values"]
COMPARISONS = ("auto", "classes", "values")
Heads: TypeAlias = Comparison | Mapping[str, Comparison] | tuple[tuple[str, Comparison], ...]


def checked_heads(heads: Any) -> Comparison | tuple[tuple[str, Comparison], ...]:
    """The choice of a user as a word, or as pairs of a name and a word, which files can hold."""
    if isinstance(heads, str):
        _require_comparison(heads)
        return heads  # type: ignore[return-value]
    pairs = heads.items() if isinstance(heads, Mapping) else heads
    is_list = isinstance(pairs, Iterable) and not isinstance(pairs, bytes)
    chosen = [tuple(pair) if isinstance(pair, (tuple, list)) else (pair,) for pair in pairs] if is_list else []
    if not chosen or not all(len(pair) == 2 and isinstance(pair[0], str) for pair in chosen):
        raise InvalidOption(
            f"heads is {shown(heads)}, which does not say how to compare outputs. Give one of "
            f"{', '.join(COMPARISONS)}, or a dictionary of these by name, such as {{'logits': 'classes'}}."
        )
    for _, comparison in chosen:
        _require_comparison(comparison)
    return tuple(chosen)


def _require_comparison(word: Any) -> None:
    require_known("comparison of outputs", word, COMPARISONS)
