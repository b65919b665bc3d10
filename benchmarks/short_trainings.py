"""Which learning rate, and which recipe, suits a training of few epochs?

A network with uniform widths within a limit on MACs is fine-tuned from inherited weights (plain) and from repaired
ones, with every given recipe, highest learning rate and number of epochs, on the training images without the hold-out.
The table has the accuracy on the hold-out. The weights must be those of a network that was not trained on the hold-out
either. Test images are not used, because defaults are chosen by this table. The same command resumes an interrupted
benchmark; it exits with 1 until all trainings are finished. Networks are distilled from the unpruned one or, with
--teacher, from another one.

    python benchmarks/short_trainings.py --network resnet56 --weights FILE --data FOLDER [--rate 0.7]
        [--starts plain repaired] [--epochs 1 3 10] [--lr 0.05 0.016 0.005] [--recipe finetune finetune-mixed]
        [--teacher NAME --teacher-weights FILE] [--seeds 0 1 2] [--at-once 9] [--limit 500] [--runs FOLDER]
        [--device cuda] [--out FOLDER] [--label _TEXT]
    python benchmarks/short_trainings.py --smoke
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import repair_treatments as shared
from resumable import (
    AACP,
    add_options,
    add_teacher,
    file_name,
    parsed,
    require_same,
    run_once,
    set_deadline,
    spread,
    teacher_of,
)
from search_pays import REPAIRED, UNIFORM

STARTS = {"plain": [], "repaired": REPAIRED}
Job = tuple[str, str, int, float, int]  # start, recipe, epochs, learning rate, seed


def search(options: argparse.Namespace, start: str) -> None:
    """Find the structure, in a run folder that every training from the same start copies."""
    place = options.runs / start
    words = [options.network, "--data", options.data, "--device", options.device, "--run", str(place)]
    words += ["--weights", str(options.weights)] if options.weights else []
    words += ["--prune-macs", str(options.rate), "--calibration", str(options.images), *UNIFORM, *STARTS[start]]
    run_once(options, place, place / "structure.json", [*AACP, "search", *words])


def train(options: argparse.Namespace, job: Job) -> None:
    """Run one training."""
    start, recipe, epochs, lr, seed = job
    place = place_of(options, job)
    if not place.exists():  # a folder of its own, because only one command at a time may write to a run folder
        shutil.copytree(options.runs / start, place)
    words = [str(place), "--recipe", recipe, "--epochs", str(epochs)]
    words += ["--lr", str(lr), "--seed", str(seed), "--no-export", "--device", options.device, *teacher_of(options)]
    file = evaluation_of(options, job)
    run_once(options, place, file, [*AACP, "finetune", *words])


def place_of(options: argparse.Namespace, job: Job) -> Path:
    """The run folder of a training."""
    start, recipe, epochs, lr, seed = job
    teacher = [options.teacher] if options.teacher else []
    return Path(options.runs / "-".join([start, recipe, *teacher, f"{epochs}-{lr:g}-{seed}"]).replace(":", "-"))


def evaluation_of(options: argparse.Namespace, job: Job) -> Path:
    """The file that a training ends with."""
    return place_of(options, job) / "trainings" / "finetuned" / "evaluation.json"


def outcome(options: argparse.Namespace, job: Job) -> shared.Row | None:
    """The result of a training; None if it is not finished."""
    file = evaluation_of(options, job)
    if not file.exists():
        return None
    named = dict(zip(("start", "recipe", "epochs", "lr", "seed"), job, strict=True))
    return named | {"holdout": json.loads(file.read_text())["after"]["holdout"]}


def show(options: argparse.Namespace, rows: list[shared.Row]) -> None:
    """Print a table of means over seeds: a row for each start, recipe and number of epochs, a column for each rate."""
    lines = []
    for start, recipe, epochs in product(options.starts, options.recipe, options.epochs):
        cells = []
        for lr in options.lr:
            wanted = (start, recipe, epochs, lr)
            found = [r["holdout"] for r in rows if (r["start"], r["recipe"], r["epochs"], r["lr"]) == wanted]
            cells.append(spread(found))
        lines.append([start, recipe, str(epochs), *cells])
    print(shared.table(["weights", "recipe", "epochs", *[f"{lr:g}" for lr in options.lr]], lines), flush=True)


def main() -> None:
    options = arguments()
    set_deadline(options)
    settings = {name: getattr(options, name) for name in ("network", "rate", "images")}
    files = {"weights": options.weights, f"teacher {options.teacher}": options.teacher_weights}
    settings |= {name: file_name(file) for name, file in files.items()}
    require_same(options.runs, settings)
    for start in options.starts:
        search(options, start)
    ready = [start for start in options.starts if (options.runs / start / "structure.json").exists()]
    jobs = [
        (start, recipe, epochs, lr, seed)
        for seed, epochs, start, recipe, lr in product(
            options.seeds, sorted(options.epochs, reverse=True), ready, options.recipe, options.lr
        )
    ]
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(lambda job: train(options, job), jobs))
    rows = [row for job in jobs if (row := outcome(options, job)) is not None]
    show(options, rows)
    names = ("network", "rate", "starts", "epochs", "lr", "recipe", "teacher", "teacher_weights", "seeds", "images")
    names += ("at_once",)
    given = {name: getattr(options, name) for name in names}
    case = f"{options.network.replace(':', '_')}_{100 * options.rate:.0f}{options.label}"
    case = "smoke" if options.smoke else case
    shared.write(options.out, f"short_trainings_{case}", shared.circumstances(options.device) | given | {"rows": rows})
    print(f"{len(rows)} of {len(jobs)} trainings are finished", flush=True)
    sys.exit(len(rows) < len(jobs) or len(ready) < len(options.starts))


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    add_options(parser, network="resnet56", runs="runs/short_trainings", seeds=(0,), at_once=1)
    parser.add_argument("--rate", type=float, default=0.7, help="share of the MACs to remove")
    parser.add_argument("--starts", nargs="+", choices=list(STARTS), default=list(STARTS))
    parser.add_argument("--epochs", nargs="+", type=int, default=[1, 3, 10])
    parser.add_argument("--lr", nargs="+", type=float, default=[0.05, 0.016, 0.005], help="highest learning rates")
    parser.add_argument("--recipe", nargs="+", default=["finetune", "finetune-mixed"])
    add_teacher(parser)
    parser.add_argument("--images", type=int, default=4096, help="training images to recalibrate on")
    parser.add_argument("--label", default="", help="end of the name of the result file")
    smallest = {"epochs": [1], "lr": [0.05], "recipe": ["digits-finetune"], "images": 64, "starts": ["plain"]}
    return parsed(parser, **smallest, rate=0.5, seeds=[0, 1], at_once=2)


if __name__ == "__main__":
    main()
