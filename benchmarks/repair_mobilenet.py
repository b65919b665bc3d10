"""MobileNetV2 with torchvision's ImageNet weights, cut by 10, 20 and 30 % of its MACs and delivered without training.

The pictures are in three parts: `fit` is what networks are recalibrated and repaired on, without labels; `search`
scores the structures of a search; `test` scores only the final networks. The searches without labels score structures
by the likeness of their outputs to those of the unpruned network, on the pictures of `search`.
Beside them, in the same run, are what users have otherwise: uniform widths and one ranking of all channels by l1, both
only recalibrated. With 1,000 pictures the standard error of a score is about 1.5 points; it is printed with each.

    python benchmarks/repair_mobilenet.py --weights FILE --pictures FOLDER [--rates 0.3 0.2 0.1] [--evaluations 200]
        [--orders obs activation] [--mimic 300 1000] [--parts baselines product searched] [--device cuda] [--out FOLDER]
        [--label _TEXT]
    python benchmarks/repair_mobilenet.py --smoke

FOLDER holds fit, search and test, each with folders of pictures of 224 x 224 named by ImageNet's class index.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import aacp
import repair_treatments as shared
from aacp.estimate.importance import unit_importance
from released_structures import NETWORK, parts_of

RUNS = ("labels", "no labels", "curves")
PARTS = ("baselines", "product", "searched")


class Comparison:
    """All rows of a run, saved after each one."""

    def __init__(self, options: argparse.Namespace, runs: Path) -> None:
        self.options = options
        self.runs = runs
        self.fit, self.search, self.test = parts_of(options)
        model = aacp.build_model(NETWORK).eval()
        if options.weights:
            aacp.load_weights(model, options.weights)
        example = self.fit[0][0][None]
        graph = aacp.trace(model, example)
        self.inner = aacp.trace(model, example, scope="inner")
        self.subject = shared.Subject(model, graph, self.fit, self.test, options.device)
        self.result = shared.circumstances(options.device) | {"seed": options.seed, "rows": [], "searches": []}
        self.result |= {"pictures": {"fit": len(self.fit), "search": len(self.search), "test": len(self.test)}}
        self.result["unpruned"] = self.subject.judged(self.subject.model)
        print(f"unpruned: {shared.per_cent(self.result['unpruned'])} of {len(self.test)} test pictures", flush=True)

    def add(self, rate: float, widths: str, row: shared.Row) -> None:
        """Print and save one row."""
        self.result["rows"].append({"rate": rate, "widths": widths, **row})
        how = f"{row['importance']}, {row['treatment']}"
        seconds = f"{row['seconds']:6.1f} s" if "seconds" in row else ""
        removed = f"{-100 * row['removed']:6.2f} % MACs"
        print(
            f"{widths:44s} {removed}  {how:32s} {shared.per_cent(row)}, likeness {row['likeness']:.3f} {seconds}",
            flush=True,
        )
        self.save()

    def save(self) -> None:
        shared.write(self.options.out, f"repair_mobilenet{self.options.label}", self.result)

    # -- what users have otherwise ------------------------------------------------------------------------------------

    def baselines(self, rate: float) -> None:
        """Uniform widths and global rankings by l1, recalibrated; the same widths repaired."""
        graph = self.subject.graph
        scores = unit_importance(self.subject.model, graph, "l1")
        structures = {
            "uniform": shared.uniform(graph, self.inner, shared.budget_of(self.inner, rate)),
            "global l1 ranking": shared.ranked_globally(graph, scores, rate, relative=False),
            "global l1 ranking, relative to the group": shared.ranked_globally(graph, scores, rate, relative=True),
        }
        for name, structure in structures.items():
            for treatment in ("recalibrated", "repaired"):
                self.add(rate, name, self.subject.row(structure, "l1", treatment))
        for order in self.options.orders:
            self.add(rate, "uniform", self.subject.row(structures["uniform"], order, "repaired"))

    # -- ours ---------------------------------------------------------------------------------------------------------

    def product(self, rate: float) -> None:
        """`aacp.prune` as a user calls it without training: searched with labels and without, and by curves alone."""
        options = self.options
        searched: dict[str, Any] = {"evaluations": options.evaluations}
        if "labels" in options.runs:
            self.deliver(rate, "aacp.prune", searched)
        if "no labels" in options.runs:
            self.deliver(rate, "aacp.prune, without labels", searched, self.subject.likeness)
            for steps in options.mimic:
                mimicked = {**searched, "mimic": steps, "training": f"mimicked-{steps}"}
                self.deliver(rate, f"aacp.prune, without labels, {steps} steps", mimicked, self.subject.likeness)
        if "curves" in options.runs:
            self.deliver(rate, "aacp.prune, curves", {"method": "curves"})

    def deliver(self, rate: float, name: str, fields: dict[str, Any], score: Any = None) -> None:
        """One call of `aacp.prune`; a search that was made before for the same rate and score is reused.

        Args:
            rate: the share of the MACs to remove.
            name: the name of the row.
            fields: fields of the plan.
            score: what scores a structure; None is the accuracy.
        """
        options = self.options
        order = {"importance": options.importance} if options.importance else {}
        plan = aacp.Plan(
            recipe=None, export=False, calibration_images=len(self.fit), seed=options.seed, **order, **fields
        )
        data = aacp.Data(self.fit, self.search, self.test, "pictures")
        folder = self.runs / f"{rate}-{plan.method}-{'likeness' if score else 'accuracy'}"
        begun = time.perf_counter()
        found = aacp.prune(
            self.subject.model, data, {"macs": rate}, folder, plan=plan, device=options.device, score=score
        )
        row: shared.Row = {"seconds": time.perf_counter() - begun, "structure": list(found.choice.structure)}
        row |= {
            "importance": plan.importance,
            "treatment": "as delivered",
            "plan": {k: str(v) for k, v in fields.items()},
        }
        cost = aacp.macs(self.subject.graph)
        row["removed"] = 1 - float(cost(found.choice.structure)) / cost.full
        self.add(rate, name, row | self.subject.judged(found.network))

    def searched(self, rate: float) -> None:
        """Searches by the repaired estimate, with and without labels, by the plain estimate, and no search: curves."""
        subject = self.subject
        self.compare(rate, "curves", shared.by_curves(subject, rate))
        self.compare(rate, "searched by the plain estimate", self.found(rate, "l1", repaired=False, labels=True))
        for order in self.options.orders:
            for labels in (True, False):
                name = f"searched by the repaired estimate, {order}{'' if labels else ', without labels'}"
                self.compare(rate, name, self.found(rate, order, repaired=True, labels=labels))

    def found(self, rate: float, order: str, *, repaired: bool, labels: bool) -> shared.Row:
        """One search: what it evaluated, and the structure that it recommends."""
        subject = self.subject
        score = None if labels else subject.likeness
        estimate = subject.estimate(self.search, order, repaired=repaired, score=score)
        row = shared.searched(subject.graph, rate, estimate, self.options.evaluations, self.options.seed)
        about = {"rate": rate, "order": order, "repaired": repaired, "labels": labels, "notes": estimate.notes}
        self.result["searches"].append({**about, **row})
        print(f"search of {row['seconds']} s ({estimate.execution}): {row['estimate']:.4f}", flush=True)
        return row

    def compare(self, rate: float, name: str, found: shared.Row) -> None:
        """A structure with every order of channels, recalibrated and repaired."""
        for order in dict.fromkeys([*self.options.orders, "l1"]):
            for treatment in ("recalibrated", "repaired"):
                self.add(rate, name, self.subject.row(found["structure"], order, treatment))


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as runs:
        comparison = Comparison(options, Path(runs))
        for part in PARTS:
            for rate in options.rates:
                if part in options.parts:
                    getattr(comparison, part)(rate)


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="torchvision's file of MobileNetV2")
    parser.add_argument("--pictures", type=Path, help="the folder that holds fit, search and test")
    parser.add_argument("--count", type=int, help="use only this many pictures of each part")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.3, 0.2, 0.1])
    parser.add_argument("--orders", nargs="+", default=["obs", "activation"])
    parser.add_argument("--importance", help="order of channels in the runs of the product")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--mimic", nargs="*", type=int, default=[], help="steps of mimicking; one more run for each")
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=RUNS, help="of the product")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="untrained, with a few random pictures")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--label", default="", help="end of the name of the result file")
    options = parser.parse_args()
    if not options.smoke and not (options.weights and options.pictures):
        parser.error("Give --weights and --pictures, or --smoke.")
    if options.smoke:
        options.label = "_smoke"
        options.rates = [0.3]
        options.evaluations = 3
        options.orders = ["activation"]
    return options


if __name__ == "__main__":
    main()
