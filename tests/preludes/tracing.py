"""What docs/tracing.md assumes: a network, an example of its inputs, and channel counts to keep."""

import torch

from preludes.small import SmallNetwork

model = SmallNetwork()
example = torch.randn(1, 1, 8, 8)
kept = [8, 16]
