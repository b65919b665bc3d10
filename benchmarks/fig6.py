"""One limit is fixed and the other one varies (the paper's Fig. 6): VGG16 on CIFAR-10.

In half a, 50 % of the MACs are removed and 0 to 80 % of the parameters; in half b it is the other way round. One
`aacp sweep --train` command for each half and seed searches and fine-tunes all its structures. The paper observes that
accuracy does not fall until the second rate exceeds 0.5, from where on the second limit is the stricter one.

The table has the test accuracy after the last epoch, mean and standard deviation over the seeds, and what is left of
MACs and parameters. `aacp report RUNS/a-0 RUNS/b-0 --out FILE` draws both halves. Everything is kept in --runs: the
same command resumes an interrupted benchmark. It exits with 1 until all structures are trained.

    python benchmarks/fig6.py --weights FILE --data FOLDER [--rates 0 0.2 0.4 0.6 0.8] [--epochs 10]
        [--lr 0.05] [--evaluations 200] [--seeds 0 1 2] [--at-once 6] [--limit 500] [--runs FOLDER] [--device cuda]
        [--out FOLDER]
    python benchmarks/fig6.py --smoke
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import mean

import repair_treatments as shared
from resumable import (
    AACP,
    add_options,
    file_name,
    is_late,
    parsed,
    require_same,
    run_until_deadline,
    set_deadline,
    spread,
)
from search_pays import delivered

FIXED = 0.5
HALVES = {"a": ("macs", "params"), "b": ("params", "macs")}  # the cost with the fixed rate, and the one that varies


def command(options: argparse.Namespace, half: str, seed: int) -> list[str]:
    """The sweep of one half of the figure with one seed."""
    fixed, varied = HALVES[half]
    rates = ",".join(f"{rate:g}" for rate in options.rates)
    words = [options.network, "--data", options.data]
    words += ["--weights", str(options.weights)] if options.weights else []
    words += [f"--prune-{fixed}", str(FIXED), f"--prune-{varied}", rates, "--evaluations", str(options.evaluations)]
    words += ["--train", "--epochs", str(options.epochs), "--train-on-holdout", "--no-export", "--seed", str(seed)]
    words += ["--lr", str(options.lr)] if options.lr else []
    words += ["--device", options.device, "--run", str(options.runs / f"{half}-{seed}")]
    return [*AACP, "sweep", *words]


def run(options: argparse.Namespace, half: str, seed: int) -> None:
    """One sweep, as far as the time allows; what is finished is not searched or trained again."""
    failure = "" if is_late(options) else run_until_deadline(options, command(options, half, seed))
    if failure:
        print(f"half {half} with seed {seed} failed:\n{failure}", flush=True)


def outcome(options: argparse.Namespace, half: str, rate: float, seed: int) -> shared.Row | None:
    """The result of a structure that has been trained."""
    rates = {HALVES[half][0]: FIXED, HALVES[half][1]: rate}
    place = options.runs / f"{half}-{seed}" / f"macs-{rates['macs']:g}_params-{rates['params']:g}"
    file = place / "trainings/finetuned/evaluation.json"
    if not file.exists():
        return None
    return {"half": half, "rate": rate, "seed": seed, **delivered(place / "structure.json", file)}


def summary(options: argparse.Namespace, rows: list[shared.Row]) -> None:
    """Print the table of all finished structures."""
    lines = []
    for half, (fixed, varied) in HALVES.items():
        for rate in options.rates:
            found = [row for row in rows if (row["half"], row["rate"]) == (half, rate)]
            if not found:
                continue
            left = [f"{100 * mean(row[cost] for row in found):.1f}" for cost in ("macs", "params")]
            tests = [row["test"] for row in found]
            lines.append([f"{fixed} -50 %, {varied} -{rate:.0%}", str(len(found)), *left, spread(tests)])
    print(
        shared.table(["limits", "seeds", "MACs left, %", "parameters left, %", "test accuracy, %"], lines), flush=True
    )


def main() -> None:
    options = arguments()
    set_deadline(options)
    settings = {name: getattr(options, name) for name in ("network", "epochs", "lr", "evaluations")}
    require_same(options.runs, settings | {"weights": file_name(options.weights)})
    jobs = [(half, seed) for seed in options.seeds for half in HALVES]
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(lambda job: run(options, *job), jobs))
    points = [(half, rate, seed) for half in HALVES for rate in options.rates for seed in options.seeds]
    rows = [row for point in points if (row := outcome(options, *point)) is not None]
    summary(options, rows)
    given = {name: getattr(options, name) for name in ("network", "rates", "epochs", "lr", "evaluations", "seeds")}
    shared.write(options.out, "fig6", shared.circumstances(options.device) | given | {"rows": rows})
    print(f"{len(rows)} of {len(points)} structures are trained", flush=True)
    sys.exit(len(rows) < len(points))


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    add_options(parser, network="vgg16", runs="runs/fig6", seeds=(0, 1, 2), at_once=6)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    parser.add_argument("--epochs", type=int, default=10, help="of each training")
    parser.add_argument("--lr", type=float, help="highest learning rate; by default that of the recipe")
    parser.add_argument("--evaluations", type=int, default=200, help="of each search")
    return parsed(parser, seeds=[0], epochs=1, evaluations=4, at_once=1, rates=[0.0, 0.4])


if __name__ == "__main__":
    main()
