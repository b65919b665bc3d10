"""Following: from a program to a channel graph, not yet verified."""

from __future__ import annotations

from torch import nn

from aacp.errors import NothingToPrune
from aacp.graph.assembly import Assembled, assemble
from aacp.graph.program import Program
from aacp.graph.propagation import UNCOUNTED, Propagation, TracedLayer
from aacp.graph.rules import RULES
from aacp.graph.sizes import resolve_sizes
from aacp.graph.tracked import TrackedRun
from aacp.modules import named_tensors


def follow(program: Program, run: TrackedRun | None, model: nn.Module, form: str) -> tuple[Propagation, Assembled]:
    """Carry labels through the program; where a split proves unlucky, once more with another factor."""
    avoided: dict[str, set[int]] = {}
    for _ in range(3):
        propagation = Propagation(program, run.fused if run is not None else (), avoided=avoided)
        propagation.run(RULES)
        if not propagation.regretted:
            break
        for name, dim in propagation.regretted.items():
            avoided.setdefault(name, set()).add(dim)
    if run is not None:
        _agree_on_macs(propagation, run.macs)
        _name_unused(propagation, model)
    sizes = resolve_sizes(propagation, run.records) if run is not None and form == "module" else []
    if not any(layer.kind.startswith("conv") for layer in propagation.layers):
        raise NothingToPrune(
            f"{type(model).__name__} has no convolution on the way from its inputs to its outputs. "
            "Channel pruning needs a convolutional network."
        )
    return propagation, assemble(propagation, model, sizes, form)


def _agree_on_macs(p: Propagation, counted: int) -> None:
    """Check our count against torch's, and say where the two part.

    Its counter passes over some fused attention: so do we. It looks into operators that have no rule here: what goes
    into those is frozen, so their cost is fixed.
    """
    kinds = {UNCOUNTED}
    if sum(layer.macs for layer in p.layers if layer.kind not in (UNCOUNTED, "attention")) == counted:
        kinds.add("attention")  # inside torch's own attention module, which hides its calls from us
    fused = sum(layer.macs for layer in p.layers if layer.kind in kinds)
    if fused:
        p.layers = [layer for layer in p.layers if layer.kind not in kinds]
        p.notes.append(f"{fused:,} MACs of fused attention are left out, as by torch's counter on this device")
    ours = sum(layer.macs for layer in p.layers)
    if ours < counted:
        rest = TracedLayer("operators without a rule", "other", (), (), None, None, counted - ours, ())
        p.layers.append(rest)
    elif ours > counted:
        p.notes.append(f"torch counts {counted:,} MACs where we count {ours:,}")


def _name_unused(p: Propagation, model: nn.Module) -> None:
    """Say which parameters evaluation mode never uses: nothing is known of the channels they read."""
    used = {p.program.tensors.get(node.name) for node in p.program.graph.nodes if node.users}
    names = [name for name, value in named_tensors(model) if isinstance(value, nn.Parameter) and name not in used]
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        p.notes.append(f"not used in evaluation mode, and kept whole: {shown}; what they read must be frozen by hand")
