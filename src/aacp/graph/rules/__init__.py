"""Rules: what each operator does to channel labels. One module per kind of operator, and one table of all rules."""

from __future__ import annotations

from aacp.errors import InvalidOption
from aacp.graph.masking import MASKED_OPERATORS, MaskedOperator
from aacp.graph.propagation import Rule
from aacp.graph.rules import (
    convolution,
    creation,
    layout,
    normalisation,
    parts,
    pointwise,
    product,
    recurrent,
    reduction,
    reshaping,
)
from aacp.user.options import nearest

RULES: dict[str, Rule] = {
    **pointwise.RULES,
    **layout.RULES,
    **parts.RULES,
    **reshaping.RULES,
    **convolution.RULES,
    **product.RULES,
    **normalisation.RULES,
    **recurrent.RULES,
    **reduction.RULES,
    **creation.RULES,
}

_BUILT_IN = frozenset(RULES)


def register_rule(operator: str, rule: Rule | str, *, masked: MaskedOperator | None = None) -> None:
    """Tell `trace` what an operator of your own does to channels.

    An operator without a rule freezes the channels that enter it. A rule that is wrong cannot do harm: `trace` compares
    every cut with the masked original and freezes the groups that differ.

    Args:
        operator: the name of the operator as `torch.library` knows it, such as "mylib::gate".
        rule: a function of the propagation and the call that returns the labels of the result, or the name of an
            operator that has a rule and treats channels in the same way, such as "relu" for element-wise operators.
        masked: how to run the operator as if channels were absent: a function of the masked run and the call. It is
            needed where the operator combines the values of different channels, as sums and norms do.
    """
    if operator in _BUILT_IN:
        raise InvalidOption(f"Operator {operator!r} has a built-in rule. Register rules for your own operators only.")
    if isinstance(rule, str):
        if rule not in RULES:
            near = nearest(rule, RULES)
            raise InvalidOption(
                f"There is no rule for an operator {rule!r}. Give {near or 'one that has a rule'}, or a function."
            )
        masked = masked or MASKED_OPERATORS.get(rule)
        rule = RULES[rule]
    RULES[operator] = rule
    MASKED_OPERATORS.pop(operator, None)
    if masked is not None:
        MASKED_OPERATORS[operator] = masked
