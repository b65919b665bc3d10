"""Private names of torch are used in one module only, and what that module assumes about torch is true."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from aacp.pytorch import internals

SOURCE = Path(aacp.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != Path(internals.__file__))
KINDS = (nn.Module(), nn.Parameter(torch.ones(1)), torch.ops.aten.relu.default, torch.UntypedStorage(), torch, nn)
PRIVATE = {name for kind in KINDS for name in dir(kind) if name.startswith("_") and not name.startswith("__")}
OF_MODULES = {name for name in vars(nn.Module()) if name.startswith("_")}
WORDS = ("nn_module_stack", "wrap_with", "_orig_mod", "_post_accumulate_grad_hooks", "synchronizing CUDA operation")


def private_uses(tree: ast.AST) -> Iterator[str]:
    """The uses of torch's private names in a piece of code, each as its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
            yield from (f"import {name}" for name in names if name.startswith("_") and name != "__future__")
        elif isinstance(node, ast.Import):
            parts = [part for alias in node.names for part in alias.name.split(".") if alias.name.startswith("torch.")]
            yield from (f"import {part}" for part in parts if part.startswith("_"))
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            of_torch = ast.unparse(node).split(".")[0] in ("torch", "nn", "fx", "dist")
            if node.attr in (OF_MODULES if own else PRIVATE) or of_torch:
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (word for word in WORDS if word in node.value)


@pytest.mark.slow
def test_no_other_module_uses_private_names_of_torch() -> None:
    found = {str(path.relative_to(SOURCE)): list(private_uses(ast.parse(path.read_text()))) for path in FILES}
    assert not {name: uses for name, uses in found.items() if uses}


@pytest.mark.parametrize(
    "code",
    [
        "from torch.utils import _pytree as pytree",
        "import torch._dynamo",
        "from torch._ops import OpOverload",
        "torch._foreach_add_(a, b)",
        "isinstance(m, nn.modules.conv._ConvNd)",
        "node.target._schema.arguments",
        "module._forward_hooks.clear()",
        "value.untyped_storage()._cdata",
        "hasattr(module, '_orig_mod')",
        "self._parameters",
    ],
)
def test_the_check_above_finds_each_kind_of_private_name(code: str) -> None:
    assert list(private_uses(ast.parse(code)))


def test_hooks_of_every_kind_are_found() -> None:
    def registered(register: str) -> nn.Module:
        layer = nn.Linear(2, 2)
        owner = layer.weight if register in ("register_hook", "register_post_accumulate_grad_hook") else layer
        getattr(owner, register)(lambda *arguments: None)
        return layer

    assert not internals.has_hooks(nn.Linear(2, 2))
    for kind in ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"):
        assert internals.has_hooks(registered(f"register_{kind}"))
    assert internals.has_hooks(registered("register_hook"))
    assert internals.has_hooks(registered("register_post_accumulate_grad_hook"))


@pytest.mark.slow
def test_a_compiled_module_is_recognised() -> None:
    layer = nn.Linear(2, 2)
    assert not internals.is_compiled(layer)
    assert internals.is_compiled(torch.compile(layer))  # type: ignore[arg-type]
    layer.compile()
    assert internals.is_compiled(layer)


def test_operators_say_what_they_are_called_with() -> None:
    relu, add = torch.ops.aten.relu_.default, torch.ops.aten.add.Tensor
    assert internals.is_operator(relu)
    assert not internals.is_operator(torch.relu)
    assert internals.operator_name(relu) == "aten::relu_"
    assert internals.operator_arguments(add) == [("self", None), ("other", None), ("alpha", 1)]
    assert internals.is_mutable(relu)
    assert not internals.is_mutable(add)


def test_changes_in_place_are_counted_also_those_of_views() -> None:
    base = torch.zeros(4)
    before = internals.change_count(base)
    assert internals.change_count(base + 1) == internals.change_count(torch.zeros(4))
    base[1:].add_(1)
    assert internals.change_count(base) == before + 1


def test_views_share_a_storage_number() -> None:
    base = torch.zeros(4, device="meta")
    assert internals.storage_number(base) == internals.storage_number(base[1:])
    assert internals.storage_number(base) != internals.storage_number(base.clone())


class Wrapped(nn.Module):
    """A network with a shared layer, a block under autocast, and an argument that is not a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3))
        self.table = torch.ones(3)

    def forward(self, x: torch.Tensor, scale: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.inner(self.inner(x))
        return x * scale + self.table


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(Wrapped(), (torch.ones(2, 3), 2), strict=False)


def test_placeholders_stand_for_tensors_settings_and_inputs(exported: torch.export.ExportedProgram) -> None:
    found = list(internals.placeholders(exported))
    assert {p.target for p in found if p.target} == {"inner.0.weight", "inner.0.bias", "table"}
    assert [p.name for p in found if p.is_input] == ["x"]
    assert [(p.name, p.value) for p in found if p.is_setting] == [("scale", 2)]


def test_blocks_under_autocast_and_calling_modules_are_found(exported: torch.export.ExportedProgram) -> None:
    nodes = list(exported.graph.nodes)
    assert len([node for node in nodes if internals.is_wrapped_block(node)]) == 1
    block = next(iter(exported.graph_module.children()))
    layers = [node for node in block.graph.nodes if node.op == "call_function" and "linear" in str(node.target)]
    assert [internals.calling_module(node) for node in layers] == ["inner.0", "inner.0"]


def test_a_lean_export_records_no_lines_of_code_and_changes_no_later_export() -> None:
    def lines_of_code() -> list[str | None]:
        program = torch.export.export(nn.ReLU(), (torch.ones(1),), strict=False)
        return [node.stack_trace for node in program.graph.nodes if node.op == "call_function"]

    usual = lines_of_code()
    with internals.lean_export():
        lean = lines_of_code()
    with pytest.raises(KeyError), internals.lean_export():
        raise KeyError
    if hasattr(torch.fx.config, "do_not_emit_stack_traces"):
        assert lean == [None]
    assert lines_of_code() == usual != [None]


def test_live_memory_counts_what_is_alive_once_and_no_parameters() -> None:
    weight = torch.ones(10, 10)
    with internals.LiveMemory([weight]) as memory:
        first = torch.zeros(100)
        view, second = first[10:], first + 1  # a view has the memory of its base
        turned = weight.t()
        assert (memory.bytes(), len(view), turned.shape) == (800, 90, (10, 10))
        second.relu_()
        del first
        assert memory.bytes() == 800  # the view is left
        del view
        assert memory.bytes() == 400
        del second
        assert torch.eye(3).to_sparse().is_sparse
        assert memory.bytes() == 0
