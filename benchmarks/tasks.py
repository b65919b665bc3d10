"""Trace networks of many tasks and libraries: exact or not, free share, ONNX, seconds; a table and its summary.

    python benchmarks/tasks.py LOG [--out benchmarks/results/tasks.json] [--only TEXT ...] [--again] [--skip-onnx]

The networks are in benchmarks/tasks_networks.py. The libraries are not dependencies of aacp: install
segmentation_models_pytorch, monai, ultralytics and torchaudio beside it. Each network runs in a process of its own with
a time limit. LOG gets one line per network; networks that it names already are not run again, so the command resumes.
With --again, networks that failed are run again, and those without an ONNX file. Writing and checking that file takes
most of the time; --skip-onnx leaves it out.

The file of --out is written after every network. Rows that it had before and LOG does not have stay in the table until
they are run: networks without a row are run first, then failed ones and those without an ONNX file. Every row names
the commit and the machine that it comes from.

A network is exact if a cut of every free group to half computes what the original computes without these channels, on
the example and on inputs of another size and batch where the network accepts them. Two oracles decide, in float64 and
with random weights. The first sets the weights of the removed channels to zero in the original and uses no code of
aacp's tracer. Where norms or means over channels make that a different network, the second runs the original's program
as if the channels were absent, with the tolerances of `trace` (docs/tracing.md). A network is silently wrong if `trace`
accepted a cut that is not exact.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import multiprocessing
import platform
import statistics
import tempfile
import time
import traceback
from collections import Counter
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import aacp
from aacp.data.examples import tensors_in
from aacp.graph.comparison import compare
from aacp.graph.other_shapes import other_examples
from aacp.graph.tracing import prepare
from aacp.graph.verification import randomised_copy
from aacp.pytorch.modules import named_tensors
from aacp.runs.provenance import machine
from repair_treatments import commit
from tasks_networks import NETWORKS, imported

SKIPPED = "not tried"  # in place of the outcome of the ONNX export
TOLERANCE = 1e-9  # of the variation of an output, in float64
LIBRARIES = "segmentation_models_pytorch monai.networks.nets ultralytics timm torchaudio.models".split()
PACKAGES = "torch torchvision timm segmentation_models_pytorch monai ultralytics torchaudio onnx onnxruntime".split()
PROCESSES = multiprocessing.get_context("fork")  # the parent imports the libraries once and computes nothing


def half_of(graph: aacp.ChannelGraph) -> dict[str, Any]:
    """About half of every free group, at random."""
    generator = np.random.default_rng(1)
    return {g.name: np.sort(generator.permutation(g.width)[: max(1, g.width // 2)]) for g in graph.free}


def zeroed(model: nn.Module, graph: aacp.ChannelGraph, units: Any) -> nn.Module:
    """A copy of the original, at full width, whose weights are zero wherever a removed channel takes part."""
    masked = copy.deepcopy(model)
    values = dict(named_tensors(masked))
    for tensor in graph.tensors:
        if tensor.name not in values or tensor.name.endswith(("running_mean", "running_var")):
            continue
        for dim, lane in enumerate(tensor.lanes):
            if lane is not None:
                stays = torch.from_numpy(units[graph.lanes[lane]] | (graph.lanes[lane] < 0))
                shape = [1] * len(tensor.shape)
                shape[dim] = -1
                values[tensor.name].data.mul_(stays.reshape(shape))
    return masked


def accepted(model: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Arguments of another size and batch that the network accepts, if there are any."""
    network = copy.deepcopy(model)
    for other in other_examples(arguments):
        try:
            with torch.no_grad():
                network(*copy.deepcopy(other))
            return other
        except Exception:  # whatever the network's code raises
            continue
    return None


def differences(model: nn.Module, graph: aacp.ChannelGraph, inputs: tuple[Any, ...]) -> tuple[list[str], str, Any]:
    """What is wrong with a cut to half; the oracle that decided; the other shapes that were tried, or None."""
    kept = half_of(graph)
    units = graph.kept_units(kept)
    arguments = tuple(tensor.double() for tensor in inputs)
    twin = randomised_copy(model, arguments, 1, torch.float64)
    masked = zeroed(twin, graph, units)
    smaller = aacp.shrink(twin, graph, kept)
    other = accepted(twin, arguments)
    shapes = None if other is None else [list(tensor.shape) for tensor in other]
    found: list[float | str] = []
    for given in (arguments, other):
        if given is not None:
            torch.manual_seed(0)  # networks that draw random numbers draw the same ones in both runs
            try:
                with torch.no_grad():
                    expected = tensors_in(masked(*copy.deepcopy(given)))
            except Exception as error:  # the code of the original does not run in double precision
                found.append(str(error))
                continue
            torch.manual_seed(0)
            with torch.no_grad():
                found.append(compare(expected, tensors_in(smaller(*copy.deepcopy(given)))))
    if all(isinstance(difference, float) and difference < TOLERANCE for difference in found):
        return [], "zeroed weights", shapes
    here = prepare(model, inputs if len(inputs) > 1 else inputs[0])
    there = here.elsewhere()
    texts = [place.difference_when(graph, units) for place in (here, there) if place is not None]
    shapes = None if there is None else [list(tensor.shape) for tensor in there.arguments]
    return [text for text in texts if text is not None], "masked program", shapes


def examine(name: str, sender: Connection) -> None:
    """Send one row of the table, then what became of its ONNX file."""
    entry = NETWORKS[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        model = entry.build().eval()
        inputs = tuple(torch.randn(shape) for shape in entry.shapes)
        example = inputs if len(inputs) > 1 else inputs[0]
        start = time.perf_counter()
        graph = aacp.trace(model, example)
        seconds = time.perf_counter() - start
        found, oracle, shapes = differences(model, graph, inputs)
    except Exception as error:
        traceback.print_exc()
        sender.send({"exact": False, "reason": f"{type(error).__name__}: {str(error)[:300]}"})
        return
    sender.send(
        {
            "exact": not found,
            "reason": "; ".join(found),
            "oracle": oracle,
            "other_shapes": shapes,
            "free_share": round(graph.free_share, 4),
            "parts": list(graph.parts),
            "frozen": {g.name: g.frozen for g in graph.groups if g.frozen not in (None, "network output")},
            "seconds": round(seconds, 1),
            "shapes": [list(shape) for shape in entry.shapes],
        }
    )
    sender.send(exported(aacp.shrink(model, graph, half_of(graph)), example))


def exported(model: nn.Module, example: Any) -> str:
    """What became of the ONNX file of the cut network: "equal", or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            aacp.export_onnx(model, Path(folder) / "network.onnx", example)
        except Exception as error:
            return f"{type(error).__name__}: {error}".replace(folder, "")[:300]
    return "equal"


def alone(name: str, limit: float, onnx_limit: float) -> dict[str, Any]:
    """The row of a network, examined in a process of its own within these seconds; 0 for ONNX skips it."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=examine, args=(name, sender))
    process.start()
    sender.close()
    row: dict[str, Any] = {"exact": False, "reason": f"took more than {limit:.0f} s"}
    try:
        if receiver.poll(limit):
            row = receiver.recv()
            if "free_share" in row:
                row["onnx"] = SKIPPED if not onnx_limit else f"took more than {onnx_limit:.0f} s"
                if onnx_limit and receiver.poll(onnx_limit):
                    row["onnx"] = receiver.recv()
    except EOFError:
        reason = f"the process ended with status {process.exitcode}"
        row = row | {"onnx": reason} if "free_share" in row else {"exact": False, "reason": reason}
    process.kill()
    process.join()
    return row


def shown(name: str, row: dict[str, Any]) -> str:
    """A row as a line of the table."""
    entry = NETWORKS[name]
    exact = "exact" if row["exact"] else "-"
    share = f"{row['free_share']:6.1%}" if "free_share" in row else "     -"
    onnx = "equal" if row.get("onnx") == "equal" else "-"
    texts = f"{entry.task:22s} {entry.library:28s} {entry.name:36s}"
    reason = row["reason"] or ("" if onnx == "equal" else f"ONNX: {row['onnx']}")
    return f"{texts} {exact:6s} {share}  ONNX {onnx:6s} {row.get('seconds', 0):6.1f} s  {reason[:160]}"


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The numbers below the table."""
    traced = [row for row in rows.values() if "free_share" in row]
    return {
        "networks": len(rows),
        "exact": sum(row["exact"] for row in rows.values()),
        "silently wrong": sum(not row["exact"] for row in traced),
        "not traced": len(rows) - len(traced),
        "tried at another size or batch": sum(row["other_shapes"] is not None for row in traced),
        "decided by zeroed weights": sum(row["oracle"] == "zeroed weights" for row in traced),
        "ONNX files tried": sum(row["onnx"] != SKIPPED for row in traced),
        "equal in ONNX Runtime": sum(row["onnx"] == "equal" for row in traced),
        "median free share": statistics.median([row["free_share"] for row in traced] or [0.0]),
        "median seconds": statistics.median([row["seconds"] for row in traced] or [0.0]),
        "longest seconds": max([row["seconds"] for row in traced], default=0.0),
        "networks by library": dict(Counter(NETWORKS[name].library for name in rows)),
        "networks by task": dict(Counter(NETWORKS[name].task for name in rows)),
        "command": "python benchmarks/tasks.py LOG --out benchmarks/results/tasks.json",
        "rows by commit": dict(Counter(row["commit"] for row in rows.values())),
        "rows by machine, 1 thread per network": dict(Counter(row["machine"] for row in rows.values())),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def as_markdown(table: dict[str, dict[str, Any]]) -> str:
    """All rows as a table for a page."""
    lines = [
        "| task | library | network | exact | free channels | oracle | also tried at | ONNX | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in table.items():
        network = name.partition(":")[2]
        start = f"| {row['task']} | {row['library']} | {network} | {'yes' if row['exact'] else 'no'} |"
        if "free_share" not in row:
            lines.append(f"{start} - | {row['reason'].replace('|', '/')} | - | - | - |")
            continue
        shapes = ", ".join("x".join(map(str, shape)) for shape in row["other_shapes"] or []) or "-"
        onnx = row["onnx"] if row["onnx"] in ("equal", SKIPPED) else row["onnx"][:80].replace("|", "/")
        lines.append(f"{start} {row['free_share']:.1%} | {row['oracle']} | {shapes} | {onnx} | {row['seconds']} |")
    return "\n".join(lines) + "\n"


def read_log(log: Path) -> dict[str, dict[str, Any]]:
    """The last row of each network in the log, without those of networks that the table no longer has."""
    lines = log.read_text().splitlines() if log.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["name"]: row["row"] for row in rows if row["name"] in NETWORKS}


def read_table(file: Path | None) -> dict[str, dict[str, Any]]:
    """The rows of an earlier table; rows that do not name their origin have the machine of the whole table."""
    if file is None or not file.exists():
        return {}
    table = json.loads(file.read_text())
    unknown = {"commit": "d4e182a or earlier", "machine": table["summary"].get("machine", "")}
    return {name: unknown | row for name, row in table["networks"].items() if name in NETWORKS}


def write_table(file: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Write the table as JSON and, beside it, as Markdown."""
    table = {
        name: {"task": NETWORKS[name].task, "library": NETWORKS[name].library, **rows[name]}
        for name in NETWORKS
        if name in rows
    }
    file.write_text(json.dumps({"summary": summary(rows), "networks": table}, indent=1) + "\n")
    file.with_suffix(".md").write_text(as_markdown(table))


def is_unfinished(row: dict[str, Any]) -> bool:
    """Whether a network failed, or its ONNX file was not tried."""
    return not row["exact"] or row["onnx"] == SKIPPED


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the networks to run")
    parser.add_argument("--again", action="store_true", help="run networks again that failed or have no ONNX file")
    parser.add_argument("--skip-onnx", action="store_true", help="do not write ONNX files")
    parser.add_argument("--limit", type=float, default=600, help="seconds to trace and check one network")
    parser.add_argument("--onnx-limit", type=float, default=60, help="seconds for its ONNX file")
    parser.add_argument("--machine", default=machine(), help="the machine, in words, for the rows of this run")
    options = parser.parse_args()
    earlier = read_table(options.out)
    rows = read_log(options.log)
    for library in LIBRARIES:
        imported(library)
    importlib.import_module("torch._dynamo")
    origin = {"commit": commit(), "machine": options.machine}
    for name in sorted(NETWORKS, key=lambda name: name in earlier and 2 - is_unfinished(earlier[name])):
        wanted = not options.only or any(text in name for text in options.only)
        known = name in rows and not (options.again and is_unfinished(rows[name]))
        if wanted and not known:
            rows[name] = alone(name, options.limit, 0 if options.skip_onnx else options.onnx_limit) | origin
            with options.log.open("a") as file:
                file.write(json.dumps({"name": name, "row": rows[name]}) + "\n")
            print(shown(name, rows[name]), flush=True)
            if options.out:
                write_table(options.out, earlier | rows)
    print(json.dumps(summary(earlier | rows), indent=2))
    if options.out:
        write_table(options.out, earlier | rows)


if __name__ == "__main__":
    main()
