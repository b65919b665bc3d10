"""file_size: the bytes of the file that `aacp.save` writes, with its header.

The header holds the channel graph, the channels that are kept and the place of each tensor. For small networks it is as
large as the weights, so a limit on a file must count it.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from aacp.channels.graph import ChannelGraph
from aacp.cost.analytic import Cost, weight_bytes

# Bytes for what the graph does not know: the name of the network, the shapes of an example, versions, padding.
UNKNOWN = 1024


def file_size(graph: ChannelGraph) -> Cost:
    """Bytes of the file of a pruned network, as a run delivers it: an upper bound, about a kilobyte above the file.

    All offsets and indices are counted with the digits of the largest.
    """
    weights = weight_bytes(graph)
    fixed = _header_bytes(graph, int(weights.full)) + UNKNOWN
    # Each kept channel is listed by its index and a comma.
    index_bytes = np.array([len(f"{group.width},") for group in graph.free], dtype=np.int64)

    def rows(kept: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(weights(kept) + fixed + kept @ index_bytes, dtype=np.int64)

    full = rows(np.atleast_2d(np.asarray(graph.full, dtype=np.int64)))[0]
    return Cost("file_size", "bytes", int(full), rows)


def _header_bytes(graph: ChannelGraph, weights: int) -> int:
    """Bytes of the header without the indices of kept channels: the graph, and an entry for each tensor."""
    cut = {"structure": list(graph.full), "channels": [[] for _ in graph.free], "graph": graph.to_json()}
    text = json.dumps(json.dumps(cut, separators=(",", ":")))  # the header of safetensors holds it as a string
    entries = {
        tensor.name: {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [weights, weights]}
        for tensor in graph.tensors
    }
    return len(text) + len(json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode())
