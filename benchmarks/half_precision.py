"""Write weights in half precision, which takes half the space; a network reads them as it reads others.

The weights of large bases are kept like this in benchmarks/results/bases, and the benchmarks start from these files.

    python benchmarks/half_precision.py WEIGHTS OUT
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("weights", type=Path, help="a file of safetensors")
    parser.add_argument("out", type=Path, help="the file to write")
    options = parser.parse_args()
    weights = load_file(options.weights)
    smaller = {name: value.half() if value.dtype == torch.float32 else value for name, value in weights.items()}
    save_file(smaller, options.out)
    print(f"{options.out}: {len(smaller)} tensors, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
