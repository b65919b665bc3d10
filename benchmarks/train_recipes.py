"""ResNet56 cut uniformly to -50 % MACs: 30 epochs of aacp's recipe and of the paper's, from the same start, 3 seeds.

Test accuracy of the last epoch, mean and spread. Every run has its folder, from which the same command resumes it.
Several runs share the GPU.

    python benchmarks/train_recipes.py --data PATH --weights resnet56.th [--recipe ours paper ...] [--seeds 0 1 2]
        [--at-once 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import aacp
from aacp.data.batches import Batches
from aacp.data.scores import accuracy
from aacp.train.loop import fit
from aacp.train.recipe import CIFAR10_FINETUNE, FINETUNE, FINETUNE_MIXED
from aacp.zoo.data import load_data
from halving import circumstances, pair

RECIPES = {
    "ours": FINETUNE,
    "paper": CIFAR10_FINETUNE,
    # Each of these changes one setting of "ours" or of "paper", or combines such changes.
    "ours, smoothed labels": replace(FINETUNE, label_smoothing=0.1),
    "ours, averaged": replace(FINETUNE, average=0.998),
    "ours, mixed": replace(FINETUNE, mixing=1.0),
    "ours, mixed, wholly distilled": replace(FINETUNE, mixing=1.0, distillation=1.0),
    "ours, patched": replace(FINETUNE, mixing=1.0, mixture="patches"),
    "ours, patched, wholly distilled": replace(FINETUNE, mixing=1.0, mixture="patches", distillation=1.0),
    "ours, patched, half distilled": FINETUNE_MIXED,
    "ours, half distilled": replace(FINETUNE, distillation=0.5),
    "ours, wholly distilled": replace(FINETUNE, distillation=1.0),
    "ours, no decay of norms": replace(FINETUNE, decays_norms=False),
    "ours, no distillation": replace(FINETUNE, distillation=0.0),
    "paper, distilled": replace(CIFAR10_FINETUNE, distillation=0.9),
}


def job(options: argparse.Namespace, name: str, seed: int) -> None:
    """One run, from the cut network to its test accuracy."""
    data = load_data("digits" if options.smoke else f"cifar10:{options.data}", holdout=0.0)
    teacher, student, description = pair("digits_resnet" if options.smoke else "resnet56", options.weights)
    recipe = replace(RECIPES[name].scaled(options.epochs), seed=seed)
    folder, begun = place_of(options, name, seed), time.perf_counter()
    trained = fit(student, data.train, recipe, teacher=teacher if recipe.distillation else None, folder=folder)
    test = accuracy(student.eval(), Batches.of(data.test, batch_size=1000))
    result = {"recipe": name, "seed": seed, "test accuracy": test, "description": description, "settings": str(recipe)}
    result |= {"epochs": options.epochs, "seconds of this call": round(time.perf_counter() - begun, 1)}
    result |= {"seconds per epoch": round(statistics.median(epoch.seconds for epoch in trained.epochs), 3)}
    aacp.RunFolder(folder).write_json("result.json", {**result, **circumstances()})


def place_of(options: argparse.Namespace, name: str, seed: int) -> Path:
    return Path(options.runs) / f"{name.replace(', ', '-').replace(' ', '-')}-{options.epochs}-{seed}"


def run_all(options: argparse.Namespace) -> None:
    """Run everything that has no result yet, `--at-once` runs at a time."""
    wanted = [(name, seed) for seed in options.seeds for name in options.recipe]
    waiting = [one for one in wanted if not (place_of(options, *one) / "result.json").exists()]
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        running = [process for process in running if process.poll() is None]
        while waiting and len(running) < options.at_once:
            name, seed = waiting.pop(0)
            command = [sys.executable, *sys.argv, "--job", name, str(seed)]
            place_of(options, name, seed).mkdir(parents=True, exist_ok=True)
            with (place_of(options, name, seed) / "output.txt").open("ab") as output:
                running.append(subprocess.Popen(command, stdout=output, stderr=output))
        time.sleep(0.5)
        summarise(options)


def summarise(options: argparse.Namespace) -> list[dict[str, object]]:
    """Write all results, grouped by recipe."""
    files = sorted(Path(options.runs).glob(f"*-{options.epochs}-*/result.json"))
    results = [json.loads(path.read_text()) for path in files]
    rows: list[dict[str, object]] = []
    for name in RECIPES:
        scores = [result["test accuracy"] for result in results if result["recipe"] == name]
        if scores:
            spread = statistics.stdev(scores) if len(scores) > 1 else None
            rows.append({"recipe": name, "n": len(scores), "mean": statistics.mean(scores), "deviation": spread})
    if rows:
        options.out.write_text(json.dumps({"rows": rows, "runs": results}, indent=1) + "\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--weights", type=Path, help="public ResNet56 checkpoint")
    parser.add_argument(
        "--recipe", nargs="+", default=["ours, patched, half distilled", "ours", "paper"], choices=list(RECIPES)
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/train_recipes"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "train_recipes.json")
    parser.add_argument("--smoke", action="store_true", help="a short test on a CPU with the digits")
    parser.add_argument("--job", nargs=2, metavar=("RECIPE", "SEED"), help="one run, in this process")
    options = parser.parse_args()
    if options.job:
        return job(options, options.job[0], int(options.job[1]))
    run_all(options)
    for row in summarise(options):
        print(row)
    return None


if __name__ == "__main__":
    main()
