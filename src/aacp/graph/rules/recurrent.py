"""Rules for recurrent layers: the channels that enter them can be cut, their states cannot."""

from __future__ import annotations

from torch import fx

from aacp.graph.labels import Ids, Labels
from aacp.graph.program import Call, UnsupportedUse, shape_of
from aacp.graph.propagation import RECURRENT, Propagation, Rule, TracedLayer


def recurrent(p: Propagation, call: Call) -> list[Labels]:
    """lstm, gru, rnn: input [.., .., i], and for each layer and direction weights [gates, i] and [gates, hidden]."""
    if "input" not in call.arguments or len(shape_of(call["input"])) != 3:
        raise UnsupportedUse("its input is packed or has no batch")
    entering = p.lane(call["input"], 2, call.where)
    readers = _first_weights(call)
    for weight in call["params"]:
        for dim in range(len(shape_of(weight))):
            lane = p.lane(weight, dim, call.where)
            if dim == 1 and weight in readers:
                p.tie_lanes(entering, lane, call.where)
            elif lane is not None:
                p.ties.fix(lane, f"{call.where} keeps the size of its state")
    for state in call.tensors:
        if state not in (call["input"], *call["params"]):
            p.freeze(state, f"{call.where} keeps the size of its state")
    if entering is not None:
        for weight in readers:
            _record(p, call, entering, weight)
    return [() for _ in call.outputs]


def _first_weights(call: Call) -> list[fx.Node]:
    """The weights that read the input: those of the first layer, one for each direction."""
    each = 4 if call["has_biases"] else 2  # tensors for each layer and direction
    return [call["params"][each * direction] for direction in range(2 if call["bidirectional"] else 1)]


def _record(p: Propagation, call: Call, entering: Ids, weight: fx.Node) -> None:
    """Record the product of the input and a weight as a layer; the cost of the states does not change."""
    steps = shape_of(call["input"])[0] * shape_of(call["input"])[1]
    cost = steps * shape_of(weight)[0]
    p.layers.append(TracedLayer(call.module, RECURRENT, (), (), entering, None, cost, (entering,)))


RULES: dict[str, Rule] = dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent)
