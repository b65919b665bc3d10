"""Prune a network with another tool, then train it as `aacp prune` does: one arm of search_pays.py.

The other tool gets the same trained network, the same training images to calibrate on and the same hold-out to score
with, and has to keep within the same share of the MACs, as torch counts them. `aacp.fit` then trains what it returns
with the default recipe of `aacp prune`, the unpruned network as the teacher, on all training images.

    torch-pruning         Torch-Pruning: the same ratio of channels in every layer, order by the l2-norm of groups
    torch-pruning-global  the same, with one ranking for all layers
    modelopt              NVIDIA ModelOpt: FastNAS, widths in multiples of 2

Torch-Pruning has no target in MACs: this script tries 95 ratios and takes the one with the most MACs within the limit.
FastNAS by default allows multiples of 32, which leaves the 16 to 64 channels of ResNet56 no choice; 2 is an eighth of
the narrowest layer, the step that aacp uses. Needs the packages torch-pruning, or nvidia-modelopt and
torchprofile==0.0.4.

    python benchmarks/peers.py TOOL NETWORK --data NAME --rate 0.5 --run FOLDER [--weights FILE] [--epochs 100]
        [--lr 0.05] [--images 4096] [--seed 0] [--device cuda]
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import aacp
from aacp.data.splits import sampled
from aacp.train.recipe import RECIPES
from aacp.zoo.catalogue import named_data

RATIOS = tuple(step / 100 for step in range(1, 96))
FASTNAS_DIVISOR = 2
FASTNAS_SHARES = tuple(step / 20 for step in range(1, 21))  # FastNAS's own default


def main() -> None:
    options = arguments(TOOLS)
    torch.manual_seed(options.seed)
    data = aacp.load_data(options.data)
    base = aacp.build_model(options.network)
    if options.weights:
        aacp.load_weights(base, options.weights)
    base.to(options.device).eval()
    example = next(aacp.Batches.of(data.holdout, batch_size=1, device=options.device).inputs())
    limit = (1 - options.rate) * macs(base, example)
    begun = time.perf_counter()
    network = TOOLS[options.tool](copy.deepcopy(base), data, example, limit, options)
    seconds = time.perf_counter() - begun
    if macs(network, example) > limit:
        raise SystemExit(f"{options.tool} returned a network above the limit. Choose another rate.")
    estimate = aacp.accuracy(network.eval(), aacp.Batches.of(data.holdout, device=options.device))
    structure = {"counts": widths(network), "score": estimate, "seconds": seconds}
    write(options.run / "structure.json", structure)
    trained = options.run / "trainings" / "finetuned"
    recipe, folder = recipe_of(options), trained / "training"
    aacp.fit(network, data.all_training(), recipe, teacher=base, folder=folder, device=options.device)
    costs = {name: described(each, data, example, options) for name, each in (("before", base), ("after", network))}
    write(trained / "evaluation.json", costs)


# -- the tools --------------------------------------------------------------------------------------------------------


def by_torch_pruning(
    base: nn.Module, data: aacp.Data, example: torch.Tensor, limit: float, options: argparse.Namespace
) -> nn.Module:
    """The network of the ratio that uses most of the limit."""
    import torch_pruning as tp

    def pruned(ratio: float) -> nn.Module:
        network = copy.deepcopy(base)
        classifier = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
        pruner = tp.pruner.BasePruner(
            network, example, tp.importance.GroupMagnitudeImportance(p=2), pruning_ratio=ratio,
            global_pruning=options.tool.endswith("global"), ignored_layers=[classifier],
        )  # fmt: skip
        pruner.step()
        return network

    costs = {ratio: macs(pruned(ratio), example) for ratio in RATIOS}
    return pruned(max((ratio for ratio in RATIOS if costs[ratio] <= limit), key=lambda ratio: costs[ratio]))


def by_modelopt(
    base: nn.Module, data: aacp.Data, example: torch.Tensor, limit: float, options: argparse.Namespace
) -> nn.Module:
    """The network that FastNAS finds, with its batch norms recalibrated by it."""
    import modelopt.torch.prune as mtp

    convolution = {"channels_ratio": FASTNAS_SHARES, "kernel_size": (), "channel_divisor": FASTNAS_DIVISOR}
    other = {"features_ratio": FASTNAS_SHARES, "feature_divisor": FASTNAS_DIVISOR}
    rules = {"nn.Conv2d": {"*": convolution}, "nn.BatchNorm2d": {"*": other}, "nn.Linear": {"*": other}}
    calibration = aacp.Batches.of(sampled(data.train, options.images), batch_size=128, device=options.device)
    holdout = aacp.Batches.of(data.holdout, device=options.device)
    config = {
        "data_loader": calibration,
        "collect_func": lambda batch: batch[0],
        "score_func": lambda network: aacp.accuracy(network, holdout),
        "checkpoint": str(options.run / "fastnas.pth"),
    }
    share = limit / macs(base, example)
    network, _ = mtp.prune(base, [("fastnas", rules)], {"flops": f"{100 * share}%"}, example, config)
    return network


TOOLS: dict[str, Callable[..., nn.Module]] = {
    "torch-pruning": by_torch_pruning,
    "torch-pruning-global": by_torch_pruning,
    "modelopt": by_modelopt,
}


# -- what is written --------------------------------------------------------------------------------------------------


def macs(network: nn.Module, example: torch.Tensor) -> float:
    """Multiply-accumulates of one input, counted by torch."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(example)
    return counter.get_total_flops() / 2


def widths(network: nn.Module) -> list[int]:
    """The output channels of every convolution."""
    return [module.out_channels for module in network.modules() if isinstance(module, nn.Conv2d)]


def described(
    network: nn.Module, data: aacp.Data, example: torch.Tensor, options: argparse.Namespace
) -> dict[str, float]:
    """The test accuracy and the costs of a network."""
    return {
        "test": aacp.accuracy(network.eval(), aacp.Batches.of(data.test, device=options.device)),
        "macs": macs(network, example),
        "params": sum(parameter.numel() for parameter in network.parameters()),
    }


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value) + "\n")


def recipe_of(options: argparse.Namespace) -> aacp.Recipe:
    """The recipe that `aacp prune` has for this data and these epochs."""
    default = RECIPES[named_data(options.data).finetune_recipe].scaled(options.epochs, finetuning=True)
    return default.changed(lr=options.lr, seed=options.seed)


def arguments(tools: Iterable[str]) -> argparse.Namespace:
    """The options of the command line: one of the tools, the network, and how to prune and train it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", choices=list(tools))
    parser.add_argument("network")
    parser.add_argument("--data", required=True, help="as in aacp prune, such as cifar10:FOLDER")
    parser.add_argument("--rate", type=float, required=True, help="share of the MACs to remove")
    parser.add_argument("--run", type=Path, required=True, help="where everything is kept")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, help="highest learning rate; by default that of the recipe")
    parser.add_argument("--images", type=int, default=4096, help="training images to recalibrate on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
