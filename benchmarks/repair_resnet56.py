"""ResNet56 of the public checkpoint on CIFAR-10, cut by 50 and 70 % of its MACs and delivered without any training.

First `aacp prune --no-training` is run and timed as a user runs it: as a process, from the start of Python to the last
file, on 1,000 training images to fit on. Its search scores structures on the labelled hold-out, or, without any labels,
by likeness on as many other images as it is fitted on; these images then come from a file of tensors. The method
`curves` evaluates nothing. The seconds of its stages are the times at which it wrote their files.
Then every treatment is compared on the same structures: uniform widths without the residual streams, the method
`curves`, and searches by the plain and by the repaired estimate, each with channels in the order of l1, activation and
obs. Scores are those of all test images, which nothing is fitted, searched or chosen on.

    python benchmarks/repair_resnet56.py --weights FILE --data FOLDER [--rates 0.5 0.7] [--images 1000]
        [--evaluations 200] [--mimic 300] [--parts product table] [--device cuda] [--out FOLDER]
    python benchmarks/repair_resnet56.py --weights FILE --data FOLDER --again benchmarks/results/repair_resnet56_l1.json
    python benchmarks/repair_resnet56.py --smoke
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import aacp
import repair_treatments as shared
from aacp.data.splits import sampled

# The files that mark the end of a stage of `aacp prune`, in the order in which they are written.
STAGES = {
    "start, data, unpruned score": "run.json",
    "tracing": "graph.json",
    "search": "structure.json",
    "repair and saving": "trainings/NAME/pruned.safetensors",
    "scores of all treatments": "trainings/NAME/evaluation.json",
}
RUNS = ("as it is", "curves", "without labels", "mimicked")


def subject_of(options: argparse.Namespace) -> tuple[str, str]:
    """The name of the network and of the data."""
    return ("digits_resnet", "digits") if options.smoke else ("resnet56", f"cifar10:{options.data}")


# -- the product ------------------------------------------------------------------------------------------------------


def command(options: argparse.Namespace, rate: float, data: str, choices: list[str], folder: Path) -> list[str]:
    """The command line of one run."""
    network, _ = subject_of(options)
    weights = ["--weights", options.weights] if options.weights else []
    size = ["--calibration", str(options.images), "--device", options.device, "--no-training", "--no-export"]
    line = ["prune", network, *weights, "--data", data, "--prune-macs", str(rate), *size, *choices]
    return [sys.executable, "-m", "aacp.cli", *line, "--run", str(folder), "--json"]


def stages_of(folder: Path, training: str, begun: float, ended: float) -> dict[str, float]:
    """The seconds of each stage, from the times of the files that it wrote; `training` is the name of the training."""
    seconds = {}
    last = begun
    for stage, file in STAGES.items():
        written = (folder / file.replace("NAME", training)).stat().st_mtime
        seconds[stage] = round(written - last, 2)
        last = written
    return seconds | {"report and end": round(ended - last, 2)}


def run_product(options: argparse.Namespace, rate: float, data: str, choices: list[str]) -> shared.Row:
    """One `aacp prune` as a process: the network's score, the seconds of the command, and those of its stages."""
    with tempfile.TemporaryDirectory() as nowhere:
        folder = Path(nowhere) / "run"
        line = command(options, rate, data, choices, folder)
        begun = time.time()
        done = subprocess.run(line, capture_output=True, text=True)
        ended = time.time()
        if done.returncode:
            sys.exit(f"{' '.join(line)}\n{done.stderr[-3000:]}")
        training = "mimicked" if "--mimic" in choices else "untrained"
        row = {"rate": rate, "choices": choices, "seconds": round(ended - begun, 1)}
        row["stages"] = stages_of(folder, training, begun, ended)
        row["structure"] = json.loads((folder / "structure.json").read_text())
        for name in ("evaluation", "recovery"):
            row[name] = json.loads((folder / "trainings" / training / f"{name}.json").read_text())
        network = aacp.load(folder / "trainings" / training / "pruned.safetensors").to(options.device)
    test = aacp.Batches.of(aacp.load_data(subject_of(options)[1]).test, device=options.device)
    score = aacp.accuracy(network, test)
    return row | {"score": score, "n": test.images, "standard_error": shared.standard_error(score, test.images)}


def write_unlabelled(options: argparse.Namespace, file: Path) -> None:
    """Training images without labels: of 2.5 N, aacp takes a fifth to test on; N are held out, and N are left."""
    images = sampled(aacp.load_data(subject_of(options)[1]).train, 5 * options.images // 2, options.seed)
    save_file({"images": images.normalised(images.pixels)}, file)


def product(options: argparse.Namespace) -> list[shared.Row]:
    """The product's own command: with its defaults, without labels, without evaluations, and with mimicking."""
    few = ["--evaluations", str(options.evaluations)]
    few += ["--importance", options.importance] if options.importance else []
    labelled = subject_of(options)[1]
    rows = []
    with tempfile.TemporaryDirectory() as nowhere:
        file = Path(nowhere) / "images.safetensors"
        write_unlabelled(options, file)
        unlabelled = [*few, "--holdout", str(options.images)]
        runs = {"as it is": (labelled, few), "curves": (labelled, [*few, "--method", "curves"])}
        runs["without labels"] = (f"tensors:{file}", unlabelled)
        runs |= {"mimicked": (f"tensors:{file}", [*unlabelled, "--mimic", str(options.mimic)])} if options.mimic else {}
        chosen = {name: run for name, run in runs.items() if name in options.runs}
        for rate in options.rates:
            for name, (data, choices) in chosen.items():
                row = {"name": name, **run_product(options, rate, data, choices)}
                rows.append(row)
                print(f"-{100 * rate:.0f} % {name}: {shared.per_cent(row)} in {row['seconds']} s", flush=True)
                print(f"    {row['stages']}\n    {row['recovery']}", flush=True)
                options.save(product=rows)
    return rows


# -- every treatment on the same structures ---------------------------------------------------------------------------


def structures_of(
    options: argparse.Namespace, subject: shared.Subject, rate: float, data: Any
) -> dict[str, shared.Row]:
    """The structures of one rate by the way in which they were found."""
    graph = subject.graph
    inner = aacp.trace(subject.model, data.test[0][0][None].to(options.device), scope="inner")
    found = {"uniform": {"structure": list(shared.uniform(graph, inner, shared.budget_of(inner, rate)))}}
    found["curves"] = shared.by_curves(subject, rate)
    plain = subject.estimate(data.holdout, "l1", repaired=False)
    found["searched by the plain estimate"] = shared.searched(graph, rate, plain, options.evaluations, options.seed)
    alike = subject.estimate(data.holdout, "obs", repaired=True, score=subject.likeness)
    found["searched without labels, obs"] = shared.searched(graph, rate, alike, options.evaluations, options.seed)
    for order in options.orders:
        estimate = subject.estimate(data.holdout, order, repaired=True)
        row = shared.searched(graph, rate, estimate, options.evaluations, options.seed)
        found[f"searched by the repaired estimate, {order}"] = row
    return found


def subject_for(options: argparse.Namespace, data: aacp.Data) -> shared.Subject:
    """The network with the images to fit on and to test on."""
    network, _ = subject_of(options)
    model = aacp.build_model(network).eval()
    if options.weights:
        aacp.load_weights(model, options.weights)
    images = sampled(data.train, options.images, options.seed)
    graph = aacp.trace(model, data.test[0][0][None])
    subject = shared.Subject(model, graph, images, data.test, options.device)
    print(f"unpruned: {100 * subject.judged(model)['score']:.2f}", flush=True)
    return subject


def again(options: argparse.Namespace) -> list[shared.Row]:
    """The structures that recorded runs of the product delivered, repaired by the present code."""
    subject = subject_for(options, aacp.load_data(subject_of(options)[1]))
    rows = []
    for file in options.again:
        for run in json.loads(file.read_text())["product"]:
            order = run["choices"][run["choices"].index("--importance") + 1]
            row = subject.row(run["structure"]["counts"], order, "repaired")
            rows.append({"name": run["name"], "rate": run["rate"], "recorded": run["score"], **row})
            print(
                f"-{100 * run['rate']:.0f} % {run['name']}, {order}: recorded {100 * run['score']:.2f}, "
                f"now {shared.per_cent(row)} in {row['seconds']} s",
                flush=True,
            )
            options.save(again=rows)
    return rows


def table(options: argparse.Namespace) -> list[shared.Row]:
    """Every structure with every order of channels after every treatment."""
    data = aacp.load_data(subject_of(options)[1])
    subject = subject_for(options, data)
    rows = []
    for rate in options.rates:
        for name, found in structures_of(options, subject, rate, data).items():
            for order in options.orders:
                for treatment in shared.TREATMENTS:
                    row = subject.row(found["structure"], order, treatment)
                    rows.append({"rate": rate, "widths": name, "search": found, **row})
                    options.save(table=rows)
            print(shared.by_order(rows[-len(options.orders) * len(shared.TREATMENTS) :]), flush=True)
    return rows


def main() -> None:
    options = arguments()
    result = shared.circumstances(options.device) | {"seed": options.seed, "images": options.images}
    result["evaluations"] = options.evaluations

    def save(**part: list[shared.Row]) -> None:
        result.update(part)
        name = "repair_digits" if options.smoke else "repair_resnet56"
        shared.write(options.out, f"{name}_again" if options.again else name, result)

    options.save = save
    if options.again:
        save(again=again(options))
        return
    if "product" in options.parts:
        save(product=product(options))
    if "table" in options.parts:
        save(table=table(options))


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="the checkpoint of ResNet56")
    parser.add_argument("--data", help="folder of the CIFAR-10 binaries")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.5, 0.7])
    parser.add_argument("--images", type=int, default=1000, help="training images to fit on, without labels")
    parser.add_argument("--orders", nargs="+", default=list(shared.ORDERS))
    parser.add_argument("--evaluations", type=int, default=200, help="of each search")
    parser.add_argument("--mimic", type=int, default=0, help="steps of mimicking in one more run of the product")
    parser.add_argument("--parts", nargs="+", default=["product", "table"], choices=["product", "table"])
    parser.add_argument("--importance", help="order of channels in the runs of the product")
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=RUNS, help="of the product")
    parser.add_argument("--again", nargs="+", type=Path, help="results whose structures are only repaired again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="an untrained network on the digits, to see that it runs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not options.smoke and not (options.weights and options.data):
        parser.error("Give --weights and --data, or --smoke.")
    if options.smoke:
        options.images = 64
        options.evaluations = 3
        options.orders = ["l1", "obs"]
        options.rates = [0.5]
    return options


if __name__ == "__main__":
    main()
