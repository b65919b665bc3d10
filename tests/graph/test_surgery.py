"""shrink and cut_units: both give the same network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.graph.surgery import cut_units


def test_a_mask_over_units_cuts_like_the_indices_of_each_group() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 3)).eval()
    example = torch.randn(2, 3, 9, 9)
    graph = aacp.trace(model, example)
    assert [group.width for group in graph.groups] == [4, 5, 2]
    mask = np.concatenate([[True, False, False, True], [False, True, True, False, True], [True, True]])
    smaller = cut_units(model, graph, mask)
    torch.testing.assert_close(smaller[0].weight, model[0].weight[[0, 3]])
    torch.testing.assert_close(smaller[2].weight, model[2].weight[[1, 2, 4]][:, [0, 3]])
    torch.testing.assert_close(smaller(example), aacp.shrink(model, graph, [[0, 3], [1, 2, 4]])(example))


def test_a_mask_of_another_length_is_rejected() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3))
    graph = aacp.trace(model, torch.randn(1, 3, 9, 9))
    with pytest.raises(aacp.InvalidStructure, match="6 units"):
        cut_units(model, graph, np.ones(4, dtype=bool))
