"""The names that pieces of library code in the catalogue may use."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import aacp
from faults import subjects

NAMES = {
    "aacp": aacp, "json": json, "nn": nn, "np": np, "os": os, "Path": Path, "replace": replace, "s": subjects,
    "torch": torch,
}  # fmt: skip
