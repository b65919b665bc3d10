"""Sources of functions that cannot be imported: their fingerprints are compared by other processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

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

STARTING = """
import multiprocessing
from functools import partial
from aacp.user.sources import source_of

class Kind: pass

def loss(outputs, targets, kind=Kind): pass

def printed():
    print(source_of(loss), source_of(Kind), source_of(partial(loss, Kind, Kind())))

if __name__ == "__main__":
    printed()
    process = multiprocessing.get_context("spawn").Process(target=printed)
    process.start()
    process.join()
"""


def test_a_function_of_a_script_has_the_same_source_in_every_process() -> None:
    """Python orders sets of texts, and places objects, anew in every process."""
    environments = [{**os.environ, "PYTHONHASHSEED": str(seed)} for seed in range(1, 4)]
    sources = {
        subprocess.run([sys.executable, "-c", SCRIPT], env=each, check=True, capture_output=True, text=True).stdout
        for each in environments
    }
    assert len(sources) == 1


def test_a_script_and_the_processes_that_it_starts_give_a_function_one_source(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STARTING)
    found = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(found) == 2
    assert found[0] == found[1]
    assert "__main__:loss" in found[0]


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


class Weighted:
    """A function with settings, with one that it keeps under another name, and with what it counts."""

    def __init__(self, share: object, scale: float = 1.0) -> None:
        self.share = share
        self._scale = scale
        self.calls = 0

    def __call__(self, *arguments: object) -> tuple[object, ...]:
        self.calls += 1
        return self.share, self._scale, *arguments

    def cost(self) -> object:
        return self.share


def test_other_settings_of_an_object_give_another_source() -> None:
    settings = (0.3, [0.3], {"a": 0.3}, Weighted(0.3), Weighted(0.7), [Weighted(0.7)], lambda: 0.3, lambda: 0.7)
    for make in (Weighted, lambda share: Weighted(0.0, share), lambda share: Weighted(share).cost):
        assert len({source_of(make(setting)) for setting in settings}) == len(settings)
    for make in (lambda share: partial(print, share), lambda share: partial(print, end=share)):
        assert len({source_of(make(setting)) for setting in settings}) == len(settings)
    losses = (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(torch.ones(2)))
    assert len({source_of(loss) for loss in losses}) == len(losses)


def test_a_path_is_not_part_of_a_source() -> None:
    places = (Path("runs/first"), Path("runs/second"))
    for make in (Weighted, lambda share: Weighted(0.3, [share]).cost, lambda share: lambda: share):
        assert len({source_of(make(place)) for place in places}) == 1
        assert source_of(make(places[0])) != source_of(make("runs/first"))


def test_what_an_object_counts_is_none_of_its_settings() -> None:
    used = Weighted(0.3)
    used(1)
    assert source_of(used) == source_of(Weighted(0.3))


def test_objects_that_hold_themselves_have_a_source() -> None:
    first, second = Weighted(None), Weighted([])
    first.share = first
    second.share.append(second)
    assert source_of(first) != source_of(second)


def test_numbers_that_the_text_of_a_tensor_leaves_out_give_another_source() -> None:
    for kind in (torch.zeros, np.zeros):
        tensors = [kind(5000) for _ in range(3)]
        tensors[2][2500] = 1
        first, same, other = (source_of(Weighted(tensor)) for tensor in tensors)
        assert first == same != other


def test_functions_that_keep_their_results_have_the_source_of_their_code() -> None:
    assert source_of(cache(lambda: 1)) != source_of(cache(lambda: 2))


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

    def early(number):
        return later, number

    later = 1
    assert len({*sources, source_of(early)}) == 4


def test_a_function_keeps_its_source_when_what_it_closes_over_changes_in_a_run() -> None:
    calls: list[object] = []
    count = 0

    def score(network: object, *_: object) -> int:
        nonlocal count
        calls.append(network)
        count += 1
        return count

    shown = partial(print, calls)
    before = source_of(score), source_of(shown)
    score(None)
    assert (source_of(score), source_of(shown)) == before


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
