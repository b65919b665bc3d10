"""Propagation: channel labels are passed from operator to operator; the rules record what they learn."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch import fx

from aacp.errors import first_line
from aacp.graph.labels import Ids, Labels, Ties, along, core, ids_of, tidy, varying
from aacp.graph.program import Call, Program, UnsupportedUse, is_tensor, shape_of

STRICT = "AACP_STRICT_RULES"  # environment variable: let errors of rules through; the tests set it
UNCOUNTED = "uncounted attention"  # kind of layer that torch's counter, and so aacp, leaves out of the MACs
OUTPUT = "network output"  # why the channels that a network returns are frozen
RECURRENT = "recurrent"  # kind of layer for the product of the input and the weights of an LSTM, a GRU or an RNN
ALL_TIED = "ties all of these channels, so they could only be removed together"
TWO_KINDS = "mixes two kinds of channels in one dimension"


@dataclass(frozen=True)
class TracedLayer:
    """A convolution, linear layer or matrix product, with channel ids where `Layer` has numbers of lanes."""

    name: str
    kind: str
    kernel: tuple[int, ...]
    output_size: tuple[int, ...]
    input: Ids | None
    output: Ids | None
    macs_per_channel: int
    macs_lanes: tuple[Ids, ...]

    @property
    def macs(self) -> int:
        return self.macs_per_channel * math.prod(len(lane) for lane in self.macs_lanes)


@dataclass(frozen=True)
class SizeUse:
    """A number among the arguments of a call that is the size of a dimension with channels, or of a part of one."""

    node: fx.Node
    module: str
    value: int
    lane: Ids
    argument: tuple[str, int | None]  # the argument's name, and the position in it if it is a list
    whole: Ids | None = None  # the dimension that the lane is a part of


@dataclass
class Propagation:
    """The state of one pass over a program; rules read and change it."""

    program: Program
    fused: Sequence[bool] = ()  # for each attention in order: whether torch's counter ignores its kernel
    ties: Ties = field(default_factory=Ties)
    labels: dict[fx.Node, list[Labels]] = field(default_factory=dict)  # one entry per result of a call
    layers: list[TracedLayer] = field(default_factory=list)
    sizes: list[SizeUse] = field(default_factory=list)
    fixed_sizes: list[SizeUse] = field(default_factory=list)  # of dimensions without channels: they must stay
    streams: list[Ids] = field(default_factory=list)  # channels that are added to others: the residual streams
    weights: dict[str, Labels] = field(default_factory=dict)  # labels of parameters and buffers, by name
    notes: list[str] = field(default_factory=list)
    # A reshape that splits a dimension of channels chooses one of the new dimensions to be cut.
    splits: dict[str, tuple[int, Ids]] = field(default_factory=dict)  # per reshape: the chosen dimension, its ids
    excluded_splits: dict[str, set[int]] = field(default_factory=dict)  # per reshape: dimensions not to choose
    rejected_splits: dict[str, int] = field(default_factory=dict)  # per reshape: a choice that an operator rejected
    # The unit of each index along a dimension of a weight, by its name and the dimension, where a graph is known.
    known_units: Mapping[tuple[str, int], Ids] = field(default_factory=dict)
    _first_of_unit: dict[int, int] = field(default_factory=dict)  # the first channel id of each known unit
    _from_input: set[fx.Node] = field(default_factory=set)
    _attentions: int = 0  # number of attention calls so far

    # -- reading ------------------------------------------------------------------------------------------------------

    def is_activation(self, node: fx.Node) -> bool:
        """Whether a tensor depends on the network's inputs, not on weights alone."""
        return node in self._from_input

    def next_attention_is_fused(self) -> bool:
        """Whether torch's counter ignored the next attention call when the network ran."""
        self._attentions += 1
        return self._attentions <= len(self.fused) and self.fused[self._attentions - 1]

    def labels_of(self, node: fx.Node | None) -> Labels:
        """The labels of a tensor, or of the first result of a call with several."""
        return self.labels.get(node, [()])[0] if node is not None else ()

    def has_labels(self, node: fx.Node) -> bool:
        """Whether a tensor holds channels."""
        return any(labels for labels in self.labels.get(node, []))

    def lane(self, node: fx.Node | None, dim: int, reason: str) -> Ids | None:
        """The channel ids along one dimension; None if the dimension holds no channels.

        If a label varies along other dimensions too, all channels that share an index are tied.
        """
        if node is None:
            return None
        shape = shape_of(node)
        dim %= max(1, len(shape))
        found = [label for label in self.labels_of(node) if dim in varying(label)]
        for extra in found[1:]:
            self.ties.fix(ids_of(extra), f"{reason} {TWO_KINDS}")
        return self.level(found[0], dim, reason) if found else None

    def level(self, label: torch.Tensor, dim: int, reason: str) -> Ids:
        """Tie all channels of a label that share an index along `dim`; returns one id per index."""
        rows = core(label).movedim(dim, 0).reshape(label.size(dim), -1).numpy()
        first = np.ascontiguousarray(rows[:, 0])
        if rows.shape[1] > 1:
            self.ties.tie(np.repeat(first, rows.shape[1]), rows, reason)
        return first

    # -- learning -----------------------------------------------------------------------------------------------------

    def freeze(self, node: fx.Node | None, reason: str) -> None:
        """Freeze all channels in a tensor."""
        for labels in self.labels.get(node, []) if node is not None else []:
            for label in labels:
                self.ties.fix(ids_of(label), reason)

    def freeze_ids(self, ids: Ids, reason: str) -> None:
        """Freeze channels.

        If a reshape chose them when it split a dimension, the next pass chooses another dimension to be cut.
        """
        self.ties.fix(ids, reason)
        if self.splits:
            roots = self.ties.roots()
            here = np.unique(roots[ids[ids >= 0]])
            for name, (chosen, split_ids) in self.splits.items():
                if np.isin(roots[split_ids[split_ids >= 0]], here).any():
                    self.rejected_splits[name] = chosen

    def tie_lanes(self, first: Ids | None, second: Ids | None, reason: str) -> None:
        """Tie the channels of two dimensions index by index; if one holds no channels, the other is frozen."""
        lengths = [len(lane) for lane in (first, second) if lane is not None]
        if len(set(lengths)) > 1 and 1 not in lengths:
            raise UnsupportedUse(f"it combines {lengths[0]} with {lengths[1]} channels")
        nothing: Ids = np.full(1, -1)
        self.ties.tie(nothing if first is None else first, nothing if second is None else second, reason)

    def tie_slots(self, lane: Ids, parts: int, reason: str) -> Ids:
        """Divide a lane into equal parts and tie index j of each part; returns the ids of the first part."""
        if len(lane) % parts:
            raise UnsupportedUse(f"it divides {len(lane)} channels into {parts} parts")
        rows = lane.reshape(parts, -1)
        first: Ids = rows[0]
        self.ties.tie(np.tile(first, parts), rows, reason)
        return first

    def use_size(
        self, call: Call, argument: tuple[str, int | None], value: int, lane: Ids | None, whole: Ids | None = None
    ) -> None:
        """Record that an argument of a call is the size of a lane.

        Args:
            call: the call.
            argument: the argument's name, and the position in it if it is a list.
            value: the number that stands there.
            lane: the ids of the dimension that has this size; None if it holds no channels, so that the size must stay.
            whole: the dimension that the lane is a part of, if it is.
        """
        if lane is not None and (lane >= 0).any():
            self.sizes.append(SizeUse(call.node, call.module, value, lane, argument, whole))
        elif lane is None and value > 0:
            self.fixed_sizes.append(SizeUse(call.node, call.module, value, np.full(value, -1), argument))

    def new_dimension(self, shape: Sequence[int], dim: int) -> torch.Tensor:
        """A label for a dimension that a call creates: it is free until it is tied to something that is not."""
        return along(self.ties.fresh(shape[dim]), dim, shape)

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, rules: Mapping[str, Rule]) -> None:
        """Propagate labels through the whole program, with one rule per operator."""
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                if node.name in self.program.inputs:
                    self._from_input.add(node)
                if is_tensor(node):
                    self.labels[node] = [self._tensor_labels(node)]
            elif node.op == "call_function":
                call = Call(node)
                if any(source in self._from_input for source in node.all_input_nodes):
                    self._from_input.add(node)
                self._run_call(call, rules.get(call.operator))
        for node in self.program.results:
            self.freeze(node, OUTPUT)

    def _tensor_labels(self, node: fx.Node) -> Labels:
        name = self.program.tensors.get(node.name)
        if name is None:
            return ()
        if name not in self.weights:
            shape = shape_of(node)
            self.weights[name] = tuple(self.new_dimension(shape, dim) for dim in range(len(shape)) if shape[dim] > 1)
            for label in self.weights[name]:
                self._tie_known(name, label)
        return self.weights[name]

    def _tie_known(self, name: str, label: torch.Tensor) -> None:
        """Tie the channels of a weight that belong to one unit of the known graph."""
        (dim,) = varying(label)
        units = self.known_units.get((name, dim))
        if units is not None:
            pairs = zip(units.tolist(), ids_of(label).tolist(), strict=True)
            tied = [(self._first_of_unit.setdefault(unit, number), number) for unit, number in pairs if unit >= 0]
            first, others = np.array(tied, dtype=np.int64).reshape(-1, 2).T
            self.ties.tie(first, others, "one unit of the graph")

    def _run_call(self, call: Call, rule: Rule | None) -> None:
        if rule is None:
            self._give_up(call, "has no rule")
            return
        try:
            for node in [call.node, *call.tensors]:
                _require_known_shapes(node)
            result = rule(self, call)
            results = result if isinstance(result, list) else [result]
            self.labels[call.node] = [self._settled(labels, call) for labels in results]
        except UnsupportedUse as error:
            self._give_up(call, f"is used in a way that is not supported: {error}")
        except Exception as error:  # a mistake in a rule, ours or a user's
            if os.environ.get(STRICT):
                raise
            self._give_up(call, f"has a rule that failed ({type(error).__name__}: {first_line(error)})")
            warnings.warn(
                f"The rule for {call.where} failed: {type(error).__name__}: {first_line(error)}. The channels that "
                "enter the operator are kept. Please report this to the authors of the rule.",
                stacklevel=2,
            )

    def _give_up(self, call: Call, why: str) -> None:
        """Freeze the channels that enter a call whose effect on them is not known."""
        labelled = [node for node in call.node.all_input_nodes if self.has_labels(node)]
        reason = f"operator {call.where} {why}"
        for node in labelled:
            self.freeze(node, reason)
        if any(self.is_activation(node) for node in labelled):
            self.notes.append(reason)
        self.labels[call.node] = [() for _ in call.outputs]

    def _settled(self, labels: Iterable[torch.Tensor], call: Call) -> Labels:
        """Labels that rules can use: each varies along a dimension, no two along the same (finer ones win)."""
        kept: list[torch.Tensor] = []
        for label in sorted(tidy(labels), key=lambda label: -core(label).numel()):
            if not varying(label):
                self.ties.fix(ids_of(label), f"{call.where} {ALL_TIED}")
            elif any(set(varying(label)) & set(varying(other)) for other in kept):
                self.ties.fix(ids_of(label), f"{call.where} {TWO_KINDS}")
            else:
                kept.append(label)
        return tuple(kept)


def _require_known_shapes(node: fx.Node) -> None:
    """Reject a call with tensors, among its arguments or results, whose shapes depend on the data."""
    for value in Call(node).outputs:
        if value is not None and not all(isinstance(size, int) for size in value.shape):
            raise UnsupportedUse("it handles a tensor whose shape depends on the data")


Rule: TypeAlias = Callable[[Propagation, Call], "Labels | list[Labels]"]
