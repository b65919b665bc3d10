"""Does a search deliver a better network than uniform widths, and does it still after a training?

For each arm and seed one `aacp prune` command prunes a network to the same share of its MACs, with the same last
training on all training images. The arms:

    uniform           --method uniform: the same share of channels in every layer, residual streams untouched
    uniform-repaired  the same widths; --reconstruction repair --importance obs
    random            --method random: the best of as many random structures as the search evaluates
    search            the default search by the estimate
    repaired          the default search by the repaired estimate: --reconstruction repair --importance obs
    finalists         the default search, then a comparison of its best by short trainings: --finalists and --rungs
    released          the search as the paper's authors released it, with its 2,000 evaluations, in their coordinates
    scratch           the default search; its structure is trained from new weights, twice as long
    l2, activation, obs, random-channels
                      the default search, with channels in this order (the paper's Table 3) instead of l1
    torch-pruning, torch-pruning-global, modelopt
                      other tools, which peers.py describes and runs

The table has the test accuracy after the last epoch of each, its mean and standard deviation over the seeds, and the
difference to uniform widths, paired by seed. Neither the search nor the rungs use test images. The rungs cost epochs
on top of the last training, which the table states beside the result.

The weights should be those of a network that was not trained on the hold-out (`aacp train resnet56`): a public
checkpoint has learnt all training images, the hold-out among them, and the hold-out says less about it.
Everything is kept in --runs: the same command resumes an interrupted benchmark, also in the middle of a training.

    python benchmarks/search_pays.py --network resnet56 --weights FILE --data FOLDER [--arms search uniform]
        [--rate 0.5] [--params-rate 0.5] [--finalists 16] [--rungs 3,10,30] [--epochs 100]
        [--evaluations 200] [--seeds 0 1 2] [--at-once 3] [--limit 500] [--runs FOLDER] [--device cuda]
        [--out FOLDER] [--label _TEXT]
    python benchmarks/search_pays.py --smoke
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev

import torch

import repair_treatments as shared
from aacp.runs.finalists import Finalists, rung_sizes

UNIFORM = ["--method", "uniform"]
REPAIRED = ["--reconstruction", "repair", "--importance", "obs"]
ARMS = {  # the options of each arm; finalists get the numbers of the command line too
    "uniform": UNIFORM,
    "uniform-repaired": UNIFORM + REPAIRED,
    "random": ["--method", "random"],
    "search": [],
    "repaired": REPAIRED,
    "finalists": [],
    "released": ["--method", "released", "--scope", "paper"],
    "scratch": ["--scratch"],
    "l2": ["--importance", "l2"],
    "activation": ["--importance", "activation"],
    "obs": ["--importance", "obs"],
    "random-channels": ["--importance", "random"],
}
PEERS = ("torch-pruning", "torch-pruning-global", "modelopt")
OWN_LENGTH = ("uniform", "uniform-repaired", "released")  # searches whose number of evaluations is not an option here


# -- the commands -----------------------------------------------------------------------------------------------------


def place_of(options: argparse.Namespace, arm: str, seed: int) -> Path:
    """The run folder of a command."""
    return options.runs / f"{arm}-{seed}"


def training_of(options: argparse.Namespace, arm: str, seed: int) -> Path:
    """The folder of the last training of a command."""
    return place_of(options, arm, seed) / "trainings" / ("scratch" if arm == "scratch" else "finetuned")


def epochs_of(options: argparse.Namespace, arm: str) -> int:
    """The epochs of the last training; new weights get twice as many, as in the paper."""
    return options.epochs * (2 if arm == "scratch" else 1)


def command(options: argparse.Namespace, arm: str, seed: int) -> list[str]:
    """The command of an arm and a seed."""
    words = [options.network, "--data", "digits" if options.smoke else f"cifar10:{options.data}"]
    words += ["--weights", str(options.weights)] if options.weights else []
    words += ["--epochs", str(epochs_of(options, arm)), "--seed", str(seed), "--device", options.device]
    words += ["--run", str(place_of(options, arm, seed))]
    rate, images = str(options.rate), str(options.images)
    if arm in PEERS:
        script = str(Path(__file__).with_name("peers.py"))
        return [sys.executable, script, arm, *words, "--rate", rate, "--images", images]
    words += ["--prune-macs", rate, "--calibration", images, "--train-on-holdout", "--no-export", *ARMS[arm]]
    words += ["--prune-params", str(options.params_rate)] if options.params_rate else []
    words += [] if arm in OWN_LENGTH else ["--evaluations", str(options.evaluations)]
    if arm == "finalists":
        words += ["--finalists", str(options.finalists), "--rungs", options.rungs]
    return [sys.executable, "-m", "aacp.cli", "prune", *words]


def run(options: argparse.Namespace, arm: str, seed: int) -> None:
    """One command, unless its outcome is known or the time is over; the seconds of all calls are added up."""
    place = place_of(options, arm, seed)
    if (training_of(options, arm, seed) / "evaluation.json").exists() or is_late(options):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    clock = place.parent / f"{place.name}.seconds"
    begun = time.monotonic()
    failure = run_until_deadline(options, command(options, arm, seed))
    if failure:
        print(f"{arm} with seed {seed} failed:\n{failure}", flush=True)
    earlier = float(clock.read_text()) if clock.exists() else 0.0
    clock.write_text(str(earlier + time.monotonic() - begun))


def set_deadline(options: argparse.Namespace) -> None:
    """Count the limit from now, and let commands listen to interrupts, which background jobs of a shell ignore."""
    options.deadline = time.monotonic() + options.limit
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_late(options: argparse.Namespace) -> bool:
    """Whether too little time is left to begin with a command."""
    return bool(options.deadline - time.monotonic() < 5)


def run_until_deadline(options: argparse.Namespace, words: list[str]) -> str:
    """Run a command; the same command resumes it if it is interrupted at the deadline.

    Returns:
        The end of its messages if it failed, otherwise nothing.
    """
    threads = max(1, (os.cpu_count() or 1) // options.at_once)  # more threads would wait for each other
    process = subprocess.Popen(
        words, env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, messages = process.communicate(timeout=max(0.0, options.deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # under MPS, killing it could stop all other processes on the GPU
        process.communicate()
        return ""
    return messages[-1500:] if process.returncode else ""


# -- the outcomes -----------------------------------------------------------------------------------------------------


def outcome(options: argparse.Namespace, arm: str, seed: int) -> shared.Row | None:
    """The result of a finished command."""
    place = place_of(options, arm, seed)
    file = training_of(options, arm, seed) / "evaluation.json"
    if not file.exists():
        return None
    clock = place.parent / f"{place.name}.seconds"  # not written if this benchmark was killed
    row: shared.Row = {
        "arm": arm,
        "seed": seed,
        **delivered(place / "structure.json", file),
        "seconds": round(float(clock.read_text()), 1) if clock.exists() else None,
    }
    if arm == "finalists":
        found = Finalists.from_json(json.loads((place / "finalists.json").read_text()))
        row |= {"summary": str(found), "finalists": found.to_json()}
    return row


def delivered(structure_file: Path, evaluation_file: Path) -> shared.Row:
    """The scores and the costs of a trained network, and its structure with its estimate."""
    evaluation = json.loads(evaluation_file.read_text())
    structure = json.loads(structure_file.read_text())
    return {
        "test": evaluation["after"]["test"],
        "unpruned": evaluation["before"]["test"],
        "macs": evaluation["after"]["macs"] / evaluation["before"]["macs"],
        "params": evaluation["after"]["params"] / evaluation["before"]["params"],
        "counts": structure["counts"],
        "estimate": structure["score"],
    }


def rung_epochs(options: argparse.Namespace) -> int:
    """The epochs of all rungs together."""
    rungs = [int(epochs) for epochs in options.rungs.split(",")]
    return sum(size * epochs for size, epochs in zip(rung_sizes(options.finalists, len(rungs)), rungs, strict=True))


def summary(options: argparse.Namespace, rows: list[shared.Row]) -> shared.Row:
    """The table of all finished commands, which is printed, as numbers."""
    by_arm = {arm: {row["seed"]: row for row in rows if row["arm"] == arm} for arm in options.arms}
    result = {}
    lines = []
    for arm, found in by_arm.items():
        tests = [row["test"] for row in found.values()]
        if not tests:
            continue
        uniform = by_arm.get("uniform", {})
        pairs = [row["test"] - uniform[seed]["test"] for seed, row in found.items() if seed in uniform]
        epochs = epochs_of(options, arm) + (rung_epochs(options) if arm == "finalists" else 0)
        result[arm] = {"test": tests, "above_uniform": pairs, "epochs": epochs}
        known = [row["seconds"] for row in found.values() if row["seconds"] is not None]
        seconds = f"{mean(known):.0f}" if known else "-"
        lines.append([arm, str(len(tests)), spread(tests), spread(pairs), str(epochs), seconds])
    heads = ["", "seeds", "test accuracy, %", "above uniform, points", "epochs in all", "seconds"]
    print(shared.table(heads, lines), flush=True)
    for row in rows:
        if "summary" in row:
            print(f"seed {row['seed']}: {row['summary']}", flush=True)
    return result


def spread(values: list[float]) -> str:
    """Mean and standard deviation in points; a single value has no deviation."""
    if not values:
        return "-"
    return f"{100 * mean(values):.2f}" + (f" ± {100 * stdev(values):.2f}" if len(values) > 1 else "")


def main() -> None:
    options = arguments()
    set_deadline(options)
    jobs = [(arm, seed) for seed in options.seeds for arm in options.arms]
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(lambda job: run(options, *job), jobs))
    rows = [row for job in jobs if (row := outcome(options, *job)) is not None]
    print(f"{len(rows)} of {len(jobs)} commands are finished", flush=True)
    names = ("network", "arms", "rate", "params_rate", "finalists", "rungs", "epochs", "evaluations", "seeds")
    given = {name: getattr(options, name) for name in names}
    result = shared.circumstances(options.device) | given | {"rows": rows, "summary": summary(options, rows)}
    rates = f"{100 * options.rate:.0f}" + (f"_{100 * options.params_rate:.0f}" if options.params_rate else "")
    case = "smoke" if options.smoke else f"{options.network}_{rates}_{options.epochs}_epochs{options.label}"
    shared.write(options.out, f"search_pays_{case}", result)


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="resnet56")
    parser.add_argument("--weights", type=Path, help="the weights of the network")
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--arms", nargs="+", choices=(*ARMS, *PEERS), default=["uniform", "search", "finalists"])
    parser.add_argument("--rate", type=float, default=0.5, help="share of the MACs to remove")
    parser.add_argument("--params-rate", type=float, help="share of the parameters to remove; for arms of aacp only")
    parser.add_argument("--finalists", type=int, default=16)
    parser.add_argument("--rungs", default="3,10,30")
    parser.add_argument("--epochs", type=int, default=100, help="of the last training")
    parser.add_argument("--evaluations", type=int, default=200, help="of each search")
    parser.add_argument("--images", type=int, default=4096, help="training images to recalibrate on")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--at-once", type=int, default=3, help="commands that share the GPU")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds after which this call ends")
    parser.add_argument("--runs", type=Path, default=Path("runs/search_pays"), help="where everything is kept")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--label", default="", help="end of the name of the result file")
    parser.add_argument("--smoke", action="store_true", help="an untrained network on the digits, to see that it runs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not options.smoke and not (options.weights and options.data):
        parser.error("Give --weights and --data, or --smoke.")
    if options.params_rate and set(options.arms) & set(PEERS):
        parser.error("Other tools take one limit. Leave --params-rate out, or these arms.")
    if options.smoke:
        smallest = {"finalists": 3, "rungs": "1,2", "epochs": 2, "evaluations": 6, "images": 64, "at_once": 1}
        vars(options).update(smallest, network="digits_resnet", seeds=options.seeds[:2])
    return options


if __name__ == "__main__":
    main()
