"""Prune a network by one ranking of all its channels, then train it as `aacp prune` does: one arm of search_pays.py.

    global-l1  channels are ranked by their l1-norm relative to the mean of their group, as in repair_mobilenet.py, and
               the last ones are removed until the network meets the limit on MACs; a group keeps any number

`aacp.prune` evaluates and trains this structure alone, with the settings of the other arms. The same command resumes an
interrupted run.

    python benchmarks/global_l1.py global-l1 NETWORK --data NAME --rate 0.5 --run FOLDER [--weights FILE]
        [--epochs 100] [--lr 0.05] [--images 4096] [--seed 0] [--device cuda]
"""

from __future__ import annotations

import aacp
import repair_treatments as shared
from aacp.estimate.importance import unit_importance
from aacp.search.baselines import GivenStructures
from aacp.train.job import network_of
from peers import arguments, recipe_of


class Ranking(GivenStructures):
    """A search that proposes only the structure of a ranking."""

    structure: aacp.Structure

    def begin(self) -> None:
        self.start = self.space.genes(self.structure)[None]


def main() -> None:
    options = arguments(["global-l1"])
    data = aacp.load_data(options.data)
    model = network_of(options.network, options.weights, options.seed).eval()
    graph = aacp.trace(model, next(aacp.Batches.of(data.holdout, batch_size=1).inputs()))
    Ranking.structure = shared.ranked_globally(graph, unit_importance(model, graph, "l1"), options.rate, relative=True)
    plan = aacp.Plan(
        pruning_step=1,
        method=Ranking,
        evaluations=1,
        recipe=recipe_of(options),
        train_on_holdout=True,
        calibration_images=options.images,
        export=False,
        seed=options.seed,
    )
    budget = {"macs": options.rate}
    aacp.prune(model, data, budget, options.run, plan=plan, name=options.network, device=options.device)


if __name__ == "__main__":
    main()
