"""The MobileNetV2 structure that the paper's authors published, beside one found by our search at the same MACs.

Both are structures of the same space: the authors' 24 coordinates in steps of an eighth. The network has torchvision's
weights, none is trained further. Batch norms are recalibrated on the pictures of `fit`, without labels. The search
scores structures on `search`; the pictures of `test` score only the structures that are compared: the unpruned network,
the authors' structure, uniform widths without the residual streams, and the one found. With 1,000 pictures the standard
error of a score is about 1.5 points. Numbers, versions: results/released_structures.json.

    python benchmarks/released_structures.py --weights FILE --pictures FOLDER [--evaluations 200] [--seeds 0 1]
        [--device cuda] [--out FOLDER]
    python benchmarks/released_structures.py --smoke

FOLDER holds fit, search and test, each with folders of pictures of 224 x 224 named by ImageNet's class index.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import aacp
from aacp.runs.provenance import Provenance
from repair_treatments import uniform

NETWORK = "torchvision:mobilenet_v2"
AUTHORS = (
    24, 84, 90, 126, 96, 48, 192, 144, 96, 48, 384, 504, 144, 576, 720, 720, 720,  # the stem, the expanded widths
    16, 24, 32, 64, 96, 160, 320,  # the outputs of the stages, all at full width
)  # fmt: skip
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def pictures_of(folder: Path, count: int | None) -> aacp.Images:
    """The pictures of a folder as bytes, at most `count` of them, spread over the classes."""
    files = sorted(folder.glob("*/*"))
    if not files:
        sys.exit(f"There are no pictures in {folder}. Give the folder that holds fit, search and test.")
    chosen = files if count is None else [files[i] for i in np.linspace(0, len(files) - 1, count).astype(int)]
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in chosen])
    labels = torch.tensor([int(file.parent.name) for file in chosen])
    return aacp.Images(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), labels, MEAN, STD)


def noise(count: int, seed: int) -> aacp.Images:
    """Random pictures of 32 x 32 with random labels, to see that the benchmark runs."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return aacp.Images(pixels, torch.randint(0, 1000, (count,), generator=generator), MEAN, STD)


def parts_of(options: argparse.Namespace) -> tuple[aacp.Images, aacp.Images, aacp.Images]:
    """The pictures to recalibrate on, to search with and to test on."""
    if options.smoke:
        return noise(16, 0), noise(8, 1), noise(8, 2)
    fit, search, test = (pictures_of(options.pictures / part, options.count) for part in ("fit", "search", "test"))
    return fit, search, test


def bounded(graph: aacp.ChannelGraph) -> aacp.Budget:
    """At most the MACs of the authors' structure."""
    cost = aacp.macs(graph)
    return aacp.Budget(aacp.Limit(cost, at_most=float(cost(aacp.paper_structure(graph, AUTHORS)))))


def searched(graph: aacp.ChannelGraph, estimate: aacp.PSAE, evaluations: int, seed: int) -> dict[str, Any]:
    """The structure that the default search recommends at the same MACs, with everything that it evaluated."""
    begun = time.perf_counter()
    method = aacp.searcher("default", aacp.SearchSpace(graph), bounded(graph), seed=seed)
    found = aacp.run_search(method, estimate, evaluations=evaluations)
    history = [[candidate.score, list(candidate.structure)] for candidate in found.history]
    seconds = time.perf_counter() - begun
    return {"structure": found.recommended.structure, "seed": seed, "seconds": seconds, "history": history}


def main() -> None:
    options = arguments()
    model = aacp.build_model(NETWORK).eval()
    if options.weights:
        aacp.load_weights(model, options.weights)
    fit, search, test = parts_of(options)
    example = fit[0][0][None]
    graph = aacp.trace(model, example, scope="paper")
    inner = aacp.trace(model, example, scope="inner", frozen=("features.18.0",))
    inheritance = aacp.Inheritance(model, graph, fit, device=options.device)
    estimate = aacp.PSAE(inheritance, search)
    final = aacp.PSAE(inheritance, test)
    runs = [searched(graph, estimate, options.evaluations, seed) for seed in options.seeds]
    compared = {
        "unpruned": graph.full,
        "the authors'": aacp.paper_structure(graph, AUTHORS),
        "uniform, without streams": uniform(graph, inner, bounded(inner)),
        **{f"found, seed {run['seed']}": run["structure"] for run in runs},
    }
    cost = aacp.macs(graph)
    rows = []
    for name, structure in compared.items():
        row = {"structure": list(structure), "removed": 1 - float(cost(structure)) / cost.full}
        row |= {"estimate": estimate(structure), "test": final(structure)}
        rows.append({"name": name, **row})
        print(f"{name:26s} {-100 * row['removed']:6.2f} % MACs, search {row['estimate']:.4f}, test {row['test']:.4f}")
    mean = statistics.mean(row["test"] for row in rows if row["name"].startswith("found"))
    print(f"{'found, mean of the seeds':26s} test {mean:.4f}")
    if options.out:
        result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
        result |= {"torch": torch.__version__, "device": options.device, "evaluations": options.evaluations}
        result |= {"pictures": [len(part) for part in (fit, search, test)], "rows": rows}
        result["searches"] = [{**run, "structure": list(run["structure"])} for run in runs]
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "released_structures.json").write_text(json.dumps(result) + "\n")


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="torchvision's file of MobileNetV2")
    parser.add_argument("--pictures", type=Path, help="the folder that holds fit, search and test")
    parser.add_argument("--count", type=int, help="use only this many pictures of each part")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="untrained, with a few random pictures")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not options.smoke and not (options.weights and options.pictures):
        parser.error("Give --weights and --pictures, or --smoke.")
    if options.smoke:
        options.evaluations = 3
        options.seeds = [0]
    return options


if __name__ == "__main__":
    main()
