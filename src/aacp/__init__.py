"""aacp: automatic channel pruning of convolutional networks."""
