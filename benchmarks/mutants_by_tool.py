"""Mutants that a tool makes from the syntax tree of a file; `mutants.py` runs the tests against a sample of them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """The text between two positions of a file, and what replaces it."""

    words: str
    line: int
    start: int
    end: int
    new: str

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def changes_of(source: str) -> list[Change]:
    """Every change that the tool knows for a file, in the order of the text."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = []
    for node in _live_nodes(ast.parse(source)):
        for words, new in _mutated(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            found.append(Change(words, node.lineno, start, end, new))
    return sorted(found, key=lambda change: (change.start, change.words))


def _live_nodes(node: ast.AST) -> Iterator[Any]:
    """The nodes that run: no annotations, assertions for the type checker, error messages or decorators of classes."""
    if isinstance(node, (ast.Assert, ast.JoinedStr, ast.Raise)):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        is_annotation = name in ("annotation", "returns")
        is_class_decorator = name == "decorator_list" and isinstance(node, ast.ClassDef)
        if is_annotation or is_class_decorator:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _live_nodes(child)


def _mutated(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What a node is changed to, each with words for it."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        negated = copy.copy(node)
        negated.test = ast.UnaryOp(ast.Not(), node.test)
        yield f"negate {_short(node.test)}", _text(node, negated)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED_COMPARISONS:
        swapped = copy.copy(node)
        swapped.ops = [SWAPPED_COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        yield f"swap the comparison {_short(node)}", _text(node, swapped)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"drop not of {_short(node)}", _text(node, node.operand)
    elif isinstance(node, ast.BoolOp):
        other = copy.copy(node)
        other.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield f"replace and/or in {_short(node)}", _text(node, other)
    elif isinstance(node, ast.Call):
        yield from _without_keywords(node)
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield f"return None, not {_short(node.value)}", "return None"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"drop the call {_short(node)}", "pass"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"change the number {node.value}", repr(node.value + 1)


def _without_keywords(node: ast.Call) -> Iterator[tuple[str, str]]:
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        dropped = copy.copy(node)
        dropped.keywords = [other for other in node.keywords if other is not keyword]
        yield f"drop {keyword.arg}= of {_short(node.func)}", _text(node, dropped)
        emptied = copy.copy(node)
        nothing = ast.keyword(keyword.arg, ast.Constant(None))
        emptied.keywords = [nothing if other is keyword else other for other in node.keywords]
        if ast.unparse(keyword.value) != "None":
            yield f"give {keyword.arg}=None to {_short(node.func)}", _text(node, emptied)


def _text(old: ast.AST, new: ast.AST) -> str:
    """The new node as text in the place of the old one; a statement keeps its indentation."""
    text = ast.unparse(ast.fix_missing_locations(new))
    if not isinstance(old, ast.stmt):
        return f"({text})"
    first, *others = text.splitlines()
    return "\n".join([first, *(" " * old.col_offset + line for line in others)])


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
