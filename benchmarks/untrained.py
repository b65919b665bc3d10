"""Does a search pay without any training? This scores the networks of search_pays.py before their last training.

For each row of a result of search_pays.py, this cuts the base to the recorded structure as `aacp prune` did before it
trained: channels in the order of the arm, batch norms recalibrated on the same training images, and weights repaired if
the arm has --reconstruction repair. The network is scored on the hold-out and on all test images. Nothing is trained,
and nothing is chosen by test images. Rows of other tools and of the arm scratch are left out.

The estimate of the search is printed beside the score on the hold-out. Both are of the same network, computed in
different ways; for repaired networks the search uses a faster form of repair.

    python benchmarks/untrained.py RESULT --weights FILE --data NAME [--images 4096] [--device cuda] [--out FOLDER]
        [--label _TEXT]
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import torch

import aacp
import repair_treatments as shared
from aacp.data.splits import sampled
from aacp.train.job import network_of
from resumable import spread
from search_pays import ARMS, FROM_NEW_WEIGHTS


def main() -> None:
    options = arguments()
    recorded = json.loads(options.result.read_text())
    data = aacp.load_data(options.data)
    name = f"untrained_{re.sub(r'^search_pays_|_[0-9]+_epochs', '', options.result.stem)}{options.label}"
    given = {"result": options.result.name, "network": recorded["network"], "images": options.images}
    rows: list[shared.Row] = []
    for row in recorded["rows"]:
        if row["arm"] in FROM_NEW_WEIGHTS or row["arm"] not in (*ARMS, "global-l1"):
            continue
        about = {key: row[key] for key in ("arm", "seed", "macs", "params", "counts", "estimate")}
        rows.append(about | scores(options, recorded["network"], data, row))
        print({key: value for key, value in rows[-1].items() if key != "counts"}, flush=True)
        found = {"rows": rows, "summary": summary(rows)}
        shared.write(options.out, name, shared.circumstances(options.device) | given | found)
    print(table_of(rows, summary(rows)))


def scores(options: argparse.Namespace, name: str, data: aacp.Data, row: shared.Row) -> shared.Row:
    """The accuracies of the network that the training of a row began with."""
    words = ARMS.get(row["arm"], [])
    given = dict(zip(words[::2], words[1::2], strict=True))
    plan = aacp.Plan(method=given.get("--method", aacp.Plan.method), scope=given.get("--scope"))
    base = network_of(name, options.weights, row["seed"]).eval()
    example = next(aacp.Batches.of(data.holdout, batch_size=1).inputs())
    inheritance = aacp.Inheritance(
        base,
        aacp.trace(base, example, scope=plan.traced_scope),
        sampled(data.train, options.images, row["seed"]),
        importance=given.get("--importance", "l1"),
        seed=row["seed"],
        reconstruction=given.get("--reconstruction"),
        device=options.device,
    )
    network = inheritance.network(row["counts"])
    parts = {"holdout": data.holdout, "test": data.test}
    return {key: aacp.accuracy(network, aacp.Batches.of(part, device=options.device)) for key, part in parts.items()}


def summary(rows: list[shared.Row]) -> shared.Row:
    """For each arm, the test accuracies of all seeds, and their differences to uniform widths of the same seed."""
    tests = {(row["arm"], row["seed"]): row["test"] for row in rows}
    result = {}
    for arm in dict.fromkeys(row["arm"] for row in rows):
        found = {seed: test for (other, seed), test in tests.items() if other == arm}
        pairs = [test - tests["uniform", seed] for seed, test in found.items() if ("uniform", seed) in tests]
        result[arm] = {"test": list(found.values()), "above_uniform": pairs}
    return result


def table_of(rows: list[shared.Row], result: shared.Row) -> str:
    """The table that is printed."""
    lines = []
    for arm, found in result.items():
        here = [row for row in rows if row["arm"] == arm]
        others = (spread([row[key] for row in here]) for key in ("estimate", "holdout"))
        lines.append([arm, str(len(here)), *others, spread(found["test"]), spread(found["above_uniform"])])
    return shared.table(["", "seeds", "estimate, %", "hold-out, %", "test, %", "above uniform, points"], lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path, help="a JSON file of search_pays.py")
    parser.add_argument("--weights", type=Path, help="the weights of its base")
    parser.add_argument("--data", required=True, help="as in aacp prune, such as cifar10:FOLDER")
    parser.add_argument("--images", type=int, default=4096, help="training images to recalibrate on")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--label", default="", help="end of the name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
