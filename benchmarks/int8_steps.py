"""The same MACs in int8, with and without the channel steps that were discovered.

    python benchmarks/int8_steps.py --model mobilenet_v2 --input 1x3x32x32 --pairs 10 [--runtime openvino]

Structures are drawn at random in a space of the discovered steps. Each is compared with a structure of as many MACs or
fewer whose widths are drawn in steps of one channel. Both are quantised and timed in turns with the unpruned network.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import aacp
from aacp.channels.space import SearchSpace
from aacp.latency.runtimes.registry import BUILT_IN


def main() -> None:
    options = _parsed()
    network = aacp.build_model(options.model).eval()
    example = torch.randn(tuple(map(int, options.input.split("x"))))
    where = aacp.Deployment(options.runtime, threads=options.threads, precision=options.precision)
    graph = aacp.trace(network, example)
    with aacp.show_progress():
        steps = aacp.discover_steps(network, graph, where, example=example, seconds_per_structure=options.seconds)
    runtime = where.resolved_runtime
    print(f"{options.model}, {runtime.name} {runtime.version}, {where.precision}: steps {steps}")
    print(f"groups whose step timing did not decide: {list(steps.undecided)}", flush=True)
    pairs = [_pair(graph, steps, seed) for seed in range(options.pairs)]
    structures = [structure for pair in pairs for structure in pair]
    checks = aacp.check_latency(network, graph, structures, where, example=example, turns=options.turns)
    macs = aacp.macs(graph)
    print("MACs with steps | without | time with steps, of the unpruned | without | with / without")
    ratios = []
    for position, pair in enumerate(pairs):
        with_steps, without = checks[2 * position : 2 * position + 2]
        ratios.append(with_steps.ratio.median / without.ratio.median)
        shares = " | ".join(f"{float(macs(np.asarray(structure))) / macs.full:.3f}" for structure in pair)
        print(f"{shares} | {with_steps.ratio} | {without.ratio} | {ratios[-1]:.3f}")
    print(f"median of with / without over {len(pairs)} pairs: {np.median(ratios):.3f}")


def _pair(graph: aacp.ChannelGraph, steps: dict[str, int], seed: int) -> tuple[aacp.Structure, aacp.Structure]:
    """Return a structure in the discovered steps, and one in steps of one channel with at most as many MACs."""
    generator = np.random.default_rng(seed)
    with_steps = SearchSpace(graph, steps).sample(generator)
    bound = float(aacp.macs(graph)(np.asarray(with_steps)))
    counts = np.array(SearchSpace(graph, 1).sample(generator))
    macs = aacp.macs(graph)
    full = np.array(graph.full)
    while float(macs(counts)) < bound and (counts < full).any():  # widen at random up to the bound
        counts[generator.choice(np.flatnonzero(counts < full))] += 1
    while float(macs(counts)) > bound:
        counts[generator.choice(np.flatnonzero(counts > 1))] -= 1
    return with_steps, aacp.Structure(counts.tolist())


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--input", default="1x3x32x32")
    parser.add_argument("--runtime", default="onnxruntime", choices=sorted(BUILT_IN))
    parser.add_argument("--precision", default="int8", choices=["float32", "int8"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
