"""Channel graphs from a file: numbers that would take too much memory, and parts that refer to nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import aacp

GRAPH = aacp.trace(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3)), torch.zeros(1, 1, 8, 8))


def changed(*path: Any, value: Any) -> Any:
    data = json.loads(json.dumps(GRAPH.to_json()))
    holder = data
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return data


def test_a_graph_comes_back_from_plain_data() -> None:
    assert aacp.ChannelGraph.from_json(GRAPH.to_json()) == GRAPH
    assert aacp.ChannelGraph.from_json(json.loads(json.dumps(GRAPH.to_json()))) == GRAPH


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("groups", 0, "width"), 10**12, "units, more than 10,000,000"),
        (("groups", 0, "width"), 0, r"groups\[0\].width should be a whole number from 1 to [0-9,]+, but is 0"),
        (("groups", 0, "width"), 3, "refers to units that no group has"),
        (("groups", 0, "width"), True, r"groups\[0\].width should be a whole number, but is True"),
        (("groups", 0, "members"), ["0.weight"], "is not a dimension of a tensor"),
        (("groups", 1, "name"), "0", "two of its groups have the same name"),
        (("lanes", 0), [[0, 0, 10**12]], "indices, more than 50,000,000"),
        (("lanes", 0), [[0, 1, 2]], "lane 0 holds the units of a group unequally often"),
        (("lanes", 0), [[0, 1, 4], [0, 1, 1]], "lane 0 holds the units of a group unequally often"),
        (("lanes", 0), [[-2, 1, 4]], "refers to units that no group has"),
        (("lanes",), None, "lanes should be a list, but is None"),
        (("layers", 0, "output"), 99, "refers to a lane that does not exist"),
        (("layers", 0, "macs_per_channel"), 10**40, "macs_per_channel should be a whole number, but is 1000"),
        (("tensors", 0, "shape"), [4], "has 1 dimensions and 4 lanes"),
        (("tensors", 0, "evil"), 1, "has an unknown field"),
        (("activations", 0, "born"), 2**31, r"activations\[0\] is born at step 2,147,483,648 and dies at step"),
        (("activations", 0, "dies"), 2**31, "activations last for 2,147,483,650 steps, more than can be added up"),
        (("form",), "evil", "form should be module or exported, but is 'evil'"),
        (("activations", 0, "born"), -1, r"activations\[0\].born should be a whole number from 0"),
        (("ties",), [["0", "nobody"]], "its ties do not name several free groups, each once"),
        (("ties",), [["0", "1"]], "its ties do not name several free groups, each once"),  # 1 is frozen
        (("ties",), [["0", "0"]], "its ties do not name several free groups, each once"),
        (("ties",), [[]], "its ties do not name several free groups, each once"),
        (("model",), 5, "model should be text, but is 5"),
    ],
)
def test_a_graph_that_cannot_be_is_rejected(path: tuple[Any, ...], value: Any, reason: str) -> None:
    with pytest.raises(aacp.GraphMismatch, match=rf"This is not a channel graph: .*{reason}.*Trace the network again"):
        aacp.ChannelGraph.from_json(changed(*path, value=value))


@pytest.mark.parametrize("data", [None, [], {}, 5, "x", {"format": 99}])
def test_what_is_not_a_graph_is_rejected(data: Any) -> None:
    with pytest.raises(aacp.GraphMismatch):
        aacp.ChannelGraph.from_json(data)
