"""Sources of functions that cannot be imported: their fingerprints are compared by other processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import partial

import torch

from aacp.user.sources import source_of

SCRIPT = """
import numpy as np
import torch

from aacp.user.sources import source_of

def helper(): pass

def importance(model, graph, by=helper, of=("conv1", {"conv2", "conv3", "conv4"})):
    return [name in {"conv1", "conv2", "conv3"} for name in graph]

def made(names, *values):
    def cost(structure, *, by=helper, of=frozenset(names)): return cost, values, helper, structure in of
    return cost

@torch.no_grad()
def score(network, batches): return 1.0

generator = np.random.default_rng()
print(source_of(importance), source_of(made({"conv1", "conv2", "conv3"}, object(), generator, {1.5: 2})))
print(source_of(score))
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


def test_other_values_of_keywords_and_of_an_enclosing_function_give_another_source() -> None:
    def closing_over(value):
        return lambda structure: (structure, value)

    def with_keyword(default):
        def cost(structure, *, share=default):
            return structure, share

        return cost

    values = (0.3, 0.7, "0.3", (0.3,), {"share": 0.3}, lambda: 0.3, lambda: 0.7, closing_over(0.3), closing_over(0.7))
    for make in (closing_over, with_keyword):
        assert source_of(make(0.3)) == source_of(make(0.3))
        assert source_of(make(0.3)) != source_of(make(0.7))
    assert len({source_of(closing_over(value)) for value in values}) == len(values)


def test_a_partial_has_the_source_of_its_function_and_of_what_it_is_called_with() -> None:
    def cost(structure, of, share=1.0):
        return structure, of, share

    def other(structure, of, share=1.0):
        return of, structure, share

    partials = (
        partial(cost, of=1),
        partial(cost, of=2),
        partial(cost, 1),
        partial(cost, 1, share=2),
        partial(other, 1),
    )
    assert len({source_of(each) for each in partials}) == len(partials)
    assert source_of(partial(cost, of=1)) == source_of(partial(cost, of=1))


def test_what_a_decorator_returns_has_another_source_if_the_decorated_function_is_another() -> None:
    @torch.no_grad()
    def score(network, batches):
        return network(batches)

    first = source_of(score)

    @torch.no_grad()
    def score(network, batches):
        return -network(batches)

    assert source_of(score) != first


def test_functions_that_close_over_each_other_or_over_what_has_no_value_have_a_source() -> None:
    def even(number):
        return number == 0 or odd(number - 1)

    def odd(number):
        return number != 0 and even(number - 1)

    def early(number):
        return later, number

    sources = {source_of(even), source_of(odd), source_of(early)}
    later = 1
    assert len({*sources, source_of(early)}) == 4


def test_a_value_without_a_text_is_described_by_its_class() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise ValueError("no text")

    silent = Silent()
    assert source_of(lambda: silent)


def test_a_source_without_keywords_and_enclosing_variables_is_that_of_older_versions() -> None:
    """Runs that an older version has begun are resumed: a method that uses `super` closes over its class."""

    class Method(list):
        def __init__(self, space, seed=(0, 1)):
            super().__init__(space)

    code = Method.__init__.__code__
    text = "\n".join([code.co_code.hex(), repr(code.co_names), *map(repr, code.co_consts), "((0, 1),)"])
    assert source_of(Method).endswith(f"#{hashlib.sha256(text.encode()).hexdigest()[:8]}")
