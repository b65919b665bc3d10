"""Does an estimate of repaired networks rank structures better, as fine-tuning ranks them, than the plain estimate?

Two searches, by the plain and by the repaired estimate, propose structures of ResNet56 at the same MACs. Of those that
either estimate has among its best, N are drawn, so that they end close to each other. Each is scored by all estimates,
then trained from the same start (inherited by l1, recalibrated) on the training images without the hold-out. The
outcome is the accuracy on the test images, averaged over the seeds. The table has Spearman's correlation between each
estimate and the outcomes, with the standard deviation over bootstrap samples of the structures, and the difference to
the plain estimate, paired within the samples.
Everything is kept in --runs: the same command resumes an interrupted benchmark, also in the middle of a training.

    python benchmarks/repair_ranking.py --weights FILE --data FOLDER [--rate 0.7] [--structures 24] [--epochs 10]
        [--seeds 0] [--only INDEX ...] [--at-once 4] [--limit 500] [--runs FOLDER] [--device cuda] [--out FOLDER]
    python benchmarks/repair_ranking.py --smoke
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

import aacp
import repair_treatments as shared
from aacp.data.splits import sampled
from aacp.search.correlation import spearman
from aacp.train.recipe import FINETUNE_MIXED
from resumable import is_late, run_until_deadline, set_deadline

# The estimates that are compared: the order of channels, and whether networks are repaired before they are scored.
ESTIMATES = {
    "plain": ("l1", False),
    "repaired": ("l1", True),
    "repaired, activation": ("activation", True),
    "repaired, obs": ("obs", True),
}
POOL = ("plain", "repaired, obs")  # the estimates whose searches propose structures
BEST = 0.3  # a structure may be drawn if it is in this share of the best by one of them
SAMPLES = 2000  # of the bootstrap


def subject_of(options: argparse.Namespace) -> tuple[shared.Subject, aacp.Data]:
    """The network and its data."""
    name, source = ("digits_resnet", "digits") if options.smoke else ("resnet56", f"cifar10:{options.data}")
    model = aacp.build_model(name).eval()
    if options.weights:
        aacp.load_weights(model, options.weights)
    data = aacp.load_data(source)
    graph = aacp.trace(model, data.test[0][0][None])
    images = sampled(data.train, options.images, 0)
    return shared.Subject(model, graph, images, data.test, options.device), data


# -- structures and their estimates -----------------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> shared.Row:
    """The structures to train, with all estimates; computed once and kept."""
    place = options.runs / "structures.json"
    if place.exists():
        return json.loads(place.read_text())
    subject, data = subject_of(options)
    estimates = {
        name: subject.estimate(data.holdout, order, repaired=repaired) for name, (order, repaired) in ESTIMATES.items()
    }
    proposed: set[tuple[int, ...]] = set()
    for name in POOL:
        found = shared.searched(subject.graph, options.rate, estimates[name], options.evaluations, seed=0)
        proposed |= {tuple(structure) for _, structure in found["history"]}
    pool = sorted(proposed)
    scores = {name: np.array([estimates[name](structure) for structure in pool]) for name in POOL}
    best = [scores[name] >= np.quantile(scores[name], 1 - BEST) for name in POOL]
    close = np.flatnonzero(np.any(best, axis=0))
    drawn = np.random.default_rng(0).permutation(close)[: options.structures]
    structures = [list(pool[index]) for index in drawn]
    result: shared.Row = {"structures": structures, "pool": len(pool)}
    result["estimates"] = {name: [estimate(one) for one in structures] for name, estimate in estimates.items()}
    options.runs.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(result) + "\n")
    return result


# -- trainings --------------------------------------------------------------------------------------------------------


def recipe_of(options: argparse.Namespace, seed: int) -> aacp.Recipe:
    """Fine-tuning as `aacp prune` does it on CIFAR-10, with this number of epochs."""
    return replace(FINETUNE_MIXED.scaled(options.epochs), seed=seed)


def place_of(options: argparse.Namespace, index: int, seed: int) -> Path:
    """The folder of one training."""
    return options.runs / f"{options.epochs}-epochs" / f"{index}-{seed}"


def train(options: argparse.Namespace, index: int, seed: int) -> None:
    """One training, resumed if it was interrupted; its outcome is written at the end."""
    subject, data = subject_of(options)
    structure = chosen(options)["structures"][index]
    network, _ = subject.network(structure, "l1", "recalibrated")
    place = place_of(options, index, seed)
    recipe = recipe_of(options, seed)
    aacp.finetune(network, data.train, recipe, teacher=subject.model, folder=place, device=options.device)
    outcome = {"index": index, "seed": seed, "epochs": options.epochs, **subject.judged(network.eval())}
    (place / "outcome.json").write_text(json.dumps(outcome) + "\n")


def train_in_process(options: argparse.Namespace, index: int, seed: int) -> None:
    """One training in a process of its own, unless its outcome is known or the time is over."""
    if (place_of(options, index, seed) / "outcome.json").exists() or is_late(options):
        return
    words = [sys.executable, __file__, *options.given, "--job", str(index), str(seed)]
    if failure := run_until_deadline(options, words):
        print(f"Training {index} with seed {seed} failed:\n{failure}", flush=True)


def outcomes_of(options: argparse.Namespace) -> list[shared.Row]:
    """The outcomes of all finished trainings with this number of epochs."""
    files = sorted((options.runs / f"{options.epochs}-epochs").glob("*/outcome.json"))
    return [json.loads(file.read_text()) for file in files]


# -- correlations -----------------------------------------------------------------------------------------------------


def correlations(estimates: dict[str, list[float]], outcomes: dict[int, float]) -> dict[str, shared.Row]:
    """Spearman's correlation of each estimate with the outcomes, and its spread over bootstrap samples."""
    known = sorted(outcomes)
    reached = np.array([outcomes[index] for index in known])
    values = {name: np.array(scores)[known] for name, scores in estimates.items()}
    generator = np.random.default_rng(0)
    samples: dict[str, list[float]] = {name: [] for name in values}
    for _ in range(SAMPLES):
        drawn = generator.integers(0, len(known), len(known))
        if len(set(reached[drawn])) > 1 and all(len(set(scores[drawn])) > 1 for scores in values.values()):
            for name, scores in values.items():
                samples[name].append(spearman(scores[drawn], reached[drawn]))
    rows = {}
    for name, scores in values.items():
        apart = np.array(samples[name]) - np.array(samples["plain"])
        row = {"spearman": spearman(scores, reached), "deviation": float(np.std(samples[name]))}
        rows[name] = row | {"above_plain": float(apart.mean()), "deviation_above_plain": float(apart.std())}
    return rows


def summary(options: argparse.Namespace, found: shared.Row) -> shared.Row:
    """The correlations of the trainings that are finished so far."""
    trained = outcomes_of(options)
    by_index: dict[int, list[float]] = {}
    for row in trained:
        by_index.setdefault(row["index"], []).append(row["score"])
    outcomes = {index: float(np.mean(scores)) for index, scores in by_index.items()}
    print(f"{len(trained)} trainings of {len(outcomes)} of {len(found['structures'])} structures are finished")
    result: shared.Row = {"trained": trained, "recipe": asdict(recipe_of(options, 0))}
    if len(outcomes) < 3:
        return result
    reached = np.array(list(outcomes.values()))
    lowest, highest, deviation = 100 * reached.min(), 100 * reached.max(), 100 * reached.std()
    print(f"they end between {lowest:.2f} and {highest:.2f} %, with a standard deviation of {deviation:.2f} points")
    rows = correlations(found["estimates"], outcomes)
    lines = []
    for name, row in rows.items():
        above = f"{row['above_plain']:+.3f} ± {row['deviation_above_plain']:.3f}"
        lines.append([name, f"{row['spearman']:.3f} ± {row['deviation']:.3f}", above])
    print(shared.table(["estimate", "Spearman's correlation", "above the plain estimate"], lines), flush=True)
    return result | {"correlations": rows, "outcomes": outcomes}


def main() -> None:
    options = arguments()
    if options.job:
        train(options, *options.job)
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Choose the structures, train as many as the time allows, and print the correlations so far."""
    set_deadline(options)
    found = chosen(options)
    print(f"{len(found['structures'])} structures of {found['pool']} are chosen", flush=True)
    indices = range(len(found["structures"])) if options.only is None else options.only
    jobs = [(index, seed) for seed in options.seeds for index in indices]
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(lambda job: train_in_process(options, *job), jobs))
    result = shared.circumstances(options.device) | {"rate": options.rate, "epochs": options.epochs, **found}
    result |= summary(options, found)
    name = (
        "repair_ranking_smoke" if options.smoke else f"repair_ranking_{100 * options.rate:.0f}_{options.epochs}_epochs"
    )
    shared.write(options.out, name, result)


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="the checkpoint of ResNet56")
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--rate", type=float, default=0.7, help="share of the MACs to remove")
    parser.add_argument("--structures", type=int, default=24)
    parser.add_argument("--evaluations", type=int, default=150, help="of each search that proposes structures")
    parser.add_argument("--images", type=int, default=1000, help="training images to recalibrate and repair on")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--only", nargs="+", type=int, help="the indices of the structures to train; all by default")
    parser.add_argument("--at-once", type=int, default=4, help="trainings that share the GPU")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds after which this call ends")
    parser.add_argument("--runs", type=Path, default=Path("runs/repair_ranking"), help="where everything is kept")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="an untrained network on the digits, to see that it runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", nargs=2, type=int, metavar=("INDEX", "SEED"), help="one training, in this process")
    options = parser.parse_args()
    options.given = sys.argv[1:]
    if not options.smoke and not (options.weights and options.data):
        parser.error("Give --weights and --data, or --smoke.")
    if options.smoke:
        options.structures = 4
        options.evaluations = 6
        options.epochs = 1
        options.images = 64
        options.at_once = 1
    return options


if __name__ == "__main__":
    main()
