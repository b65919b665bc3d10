"""What each operator does to labels: one function per kind of operator, one table of all."""

from __future__ import annotations

from aacp.graph.propagation import Rule
from aacp.graph.rules import (
    convolution,
    creation,
    layout,
    normalisation,
    parts,
    pointwise,
    product,
    reduction,
    reshaping,
)

RULES: dict[str, Rule] = {
    **pointwise.RULES,
    **layout.RULES,
    **parts.RULES,
    **reshaping.RULES,
    **convolution.RULES,
    **product.RULES,
    **normalisation.RULES,
    **reduction.RULES,
    **creation.RULES,
}
