"""Every option that takes a number, of every command, with values that are not a number it can use."""

from __future__ import annotations

from typing import Any

import click

from aacp.cli import main
from aacp.commands.parameters import Number, part, shape, step
from faults.cases import USAGE, Case
from faults.catalogue.options import NAMED, NET, TASK

GROUP = "option that takes a number"
ODD = ("nan", "inf", "-1", "1" + 400 * "0", "''", "½")
NUMERIC = (click.types.IntParamType, click.types.FloatParamType, click.IntRange, Number)
FUNCTIONS = (part, shape, step)
SEARCH = "--prune-channels 0.1 --evaluations 4 --calibration 16 --run new"
TRAINING = "--epochs 1 --batch-size 8"
# A call of each command that would succeed without the odd value.
CALLS = {
    "prune": f"{TASK} {SEARCH} {TRAINING} --no-export",
    "search": f"{TASK} {SEARCH}",
    "sweep": f"{TASK} {SEARCH} --train {TRAINING} --no-export",
    "train": f"{TASK} {TRAINING} --run new",
    "finetune": f"searched{NAMED} {TRAINING} --no-export",
    "scratch": f"searched{NAMED} {TRAINING} --no-export",
    "evaluate": f"{NET} --data faults.subjects:data",
    "measure": f"{NET} --input 1x1x8x8 --runtime faults.subjects:EXACT --device npu --structures 8 --seconds 0.01 --out t.json",
    "export": "done --model faults.subjects:net",
    "trace": f"{NET} --input 1x1x8x8",
}  # fmt: skip
LIMITS = ("--prune-", "--max-")  # of costs, which are text such as 0.5 or 2MB


def _numeric(command: str) -> list[str]:
    """The options of a command that take a number."""
    options = [option for option in main.commands[command].params if isinstance(option, click.Option)]
    return [
        option.opts[0]
        for option in options
        if _is_numeric(option.type) or option.opts[0].startswith(LIMITS)
        if option.opts[0] != "--prune-channels"
    ]


def _is_numeric(kind: click.ParamType[Any]) -> bool:
    return isinstance(kind, NUMERIC) or getattr(kind, "func", None) in FUNCTIONS


def _word(option: str) -> str:
    """The part of an option's name that a message about it contains."""
    name = option.removeprefix("--").removeprefix("prune-").removeprefix("max-")
    return {"holdout": "hold-out|holdout|part of the data", "batch-size": "batch", "probe-epochs": "probe"}.get(
        name, name
    )


CASES = tuple(
    Case(GROUP, f"aacp {command} {call} {option}={value}", f"InvalidOption|InvalidData|{USAGE}", (_word(option),))
    for command, call in CALLS.items()
    for option in _numeric(command)
    for value in ODD
)
