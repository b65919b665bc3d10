"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable

import click

from aacp.commands.gathering import Command
from aacp.commands.parameters import Name, names, part, shape
from aacp.pipeline import defaults


def metric_option(default: str) -> Callable[[Command], Command]:
    """The score function."""
    words = "Score, higher is better: package.module:function, called with (network, batches)."
    return click.option("--metric", metavar="FUNCTION", show_default=default, help=words)


def loss_option(default: str) -> Callable[[Command], Command]:
    """The loss function."""
    words = "What training minimises: package.module:function, called with (outputs, targets)."
    return click.option("--loss", metavar="FUNCTION", show_default=default, help=words)


def run_option(default: str) -> Callable[[Command], Command]:
    """The run folder."""
    words = "Folder for all results; the same command with the same folder resumes an interrupted run."
    return click.option("--run", "folder", type=click.Path(), show_default=default, help=words)


DEVICE = click.option(
    "--device",
    show_default="the GPU if there is one",
    help="Where to compute: cpu, cuda, or cuda:1 for the second GPU.",
)
TRUST = click.option(
    "--trust", is_flag=True, help="Import the code that the folder or file names. Only for those whose maker you trust."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
FROM = click.option(
    "--from", "known_from", multiple=True, type=click.Path(), metavar="RUN",
    help="Folder of an earlier run of the same network, whose evaluations are reused. Repeatable.",
)  # fmt: skip

HOLDOUT = click.option(
    "--holdout", type=part, show_default="0.1, and at most 5000 examples",
    help="Part of the training data that is held out for the search: a share such as 0.1, or a number such as 5000.",
)  # fmt: skip
CACHE = click.option(
    "--cache", type=click.Path(file_okay=False), metavar="DIR",
    help="Folder for decoded images of imagefolder:PATH, which later passes and commands read instead of the files.",
)  # fmt: skip
DATA_HELP = (
    "digits, cifar10:PATH, imagefolder:PATH, tensors:FILE, or package.module:function that returns (training, test), "
    "each a loader or a data set, or aacp.Data."
)
FROZEN = click.option(
    "--frozen", multiple=True, metavar="PATTERN", help="Layers that are not pruned, such as 'head.*'. Repeatable."
)
SCOPE_CHOICES = Name(["all", "inner", "paper"])
SCOPE_HELP = (
    "Where to prune: all, inner to leave residual streams alone, or paper for the coordinates that the paper's authors "
    "searched."
)
SCOPE = click.option("--scope", type=SCOPE_CHOICES, default=defaults.SCOPE, show_default=True, help=SCOPE_HELP)
SEARCH_SCOPE = click.option(
    "--scope", type=SCOPE_CHOICES, show_default=f"{defaults.SCOPE}; inner for --method uniform", help=SCOPE_HELP
)
TIE = click.option(
    "--tie", multiple=True, type=names, metavar="GROUPS",
    help="Groups that keep the same share of their widths, such as layer1.0.conv1,layer1.0.conv2. Repeatable.",
)  # fmt: skip
PARTS = click.option(
    "--part", "parts", multiple=True, metavar="NAME",
    help="A part of the network that is pruned, such as backbone; the rest is left as it is. Repeatable.",
)  # fmt: skip
INPUT = click.option(
    "--input", "shapes", multiple=True, type=shape, show_default="what MODEL says, or 1x3x224x224",
    help="Shape of an input. Repeatable: one for each argument of the network.",
)  # fmt: skip
STEP_HELP = (
    "Steps in which widths are reduced: a share of each such as 0.125, channels such as 8, or auto: found by timing."
)
RUNTIME = click.option(
    "--runtime", default="onnxruntime", show_default=True, metavar="RUNTIME",
    help="Runtime that latency is measured in: onnxruntime, torch, torch-compile, cuda-graphs, openvino, executorch, "
    "ncnn, or package.module:NAME.",
)  # fmt: skip
BATCH = click.option(
    "--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Inputs in a timed batch."
)
THREADS = click.option(
    "--threads", type=click.IntRange(min=1), default=2, show_default=True, help="CPU threads of the runtime."
)
PRECISION = click.option(
    "--precision", type=Name(["float32", "int8"]), default="float32", show_default=True,
    help="Precision that the network runs in there: float32, or int8 for a quantised network (onnxruntime, openvino, "
    "executorch).",
)  # fmt: skip
