"""What docs/extending.md assumes: a trained network, its data, its graph and a small plan."""

import aacp
from preludes.small import loaders, trained_network

model = trained_network()
data = aacp.Data.of(*loaders(), holdout=0.2)
example = next(aacp.Batches.of(data.holdout, images=1).inputs())
graph = aacp.trace(model, example)
plan = aacp.Plan(
    evaluations=3, recipe=aacp.Recipe(epochs=1, batch_size=32, lr=0.02), calibration_images=64, export=False
)
