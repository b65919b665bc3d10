"""What docs/repair.md assumes: a trained network."""

from preludes.small import trained_network

model = trained_network()
