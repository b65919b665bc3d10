"""Sources of functions that cannot be imported: their fingerprints are compared by other processes."""

from __future__ import annotations

import os
import subprocess
import sys

from aacp.user.sources import source_of

SCRIPT = """
from aacp.user.sources import source_of

def helper(): pass

def importance(model, graph, by=helper, of=("conv1", {"conv2", "conv3", "conv4"})):
    return [name in {"conv1", "conv2", "conv3"} for name in graph]

print(source_of(importance))
"""


def test_a_function_of_a_script_has_the_same_source_in_every_process() -> None:
    """Python orders sets of texts, and places objects, anew in every process."""
    environments = [{**os.environ, "PYTHONHASHSEED": str(seed)} for seed in range(1, 4)]
    sources = {
        subprocess.run([sys.executable, "-c", SCRIPT], env=each, check=True, capture_output=True, text=True).stdout
        for each in environments
    }
    assert len(sources) == 1


def test_other_constants_and_defaults_give_another_source() -> None:
    functions = (
        lambda name: name in {"conv1", "conv2"},
        lambda name: name in {"conv1", "conv3"},
        lambda name, of=("conv1",): name in of,
        lambda name, of=("conv2",): name in of,
        lambda name, of=("conv1", "conv2"): name in of,
    )
    assert len({source_of(function) for function in functions}) == len(functions)
