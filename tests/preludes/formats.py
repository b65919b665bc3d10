"""What docs/formats.md assumes: a pruned network, its graph, the channels that it keeps, and an input."""

from functools import partial

import aacp

MyNetwork = partial(aacp.build_model, "digits_resnet")
model = MyNetwork()
x = aacp.example_input(model)
graph = aacp.trace(model, x)
kept = [width // 2 for width in graph.full]
pruned = aacp.shrink(model, graph, kept)
