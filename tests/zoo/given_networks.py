"""Functions that return networks without data, for tests that name them."""

from __future__ import annotations

import warnings

import torch
from torch import nn


def meta() -> nn.Module:
    return nn.Conv2d(1, 2, 1, device="meta")


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(2, 1))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: nn.Module = torch.jit.script(nn.Sequential(nn.Conv2d(1, 2, 1)))
    return module
