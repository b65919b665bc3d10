"""Training on data of the user that are wrong: the message names the data, not the learning rate or the network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

import aacp
from aacp.train.sources import check_batches

RECIPE = aacp.Recipe(epochs=1, batch_size=4, lr=0.01)
X = torch.randn(16, 1, 4, 4)
Y = torch.arange(16) % 3


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_inputs_that_are_not_finite_are_named_as_training_data(value: float) -> None:
    inputs = X.clone()
    inputs[5, 0, 0, 0] = value
    with pytest.raises(aacp.InvalidData, match=r"^The training data hold inputs that are NaN or infinite, at step \d"):
        aacp.fit(network(), (inputs, Y), RECIPE, device="cpu")


def test_a_learning_rate_that_is_too_high_is_still_named_as_such() -> None:
    with pytest.raises(aacp.Diverged, match="Lower the learning rate"):
        aacp.fit(network(), (1e30 * X, Y), aacp.Recipe(epochs=9, batch_size=4, lr=1000), device="cpu")


@pytest.mark.parametrize("labels", [torch.full((16,), 0.7), torch.rand(16, 2)])
def test_labels_with_a_fraction_are_named(labels: torch.Tensor) -> None:
    with pytest.raises(aacp.InvalidData, match=r"have labels of torch.float32 .*, such as 0\.\d+, but cross-entropy"):
        aacp.fit(network(), (X, labels), RECIPE, device="cpu")


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.bool])
def test_labels_of_a_type_that_cross_entropy_does_not_take_are_named(kind: torch.dtype) -> None:
    with pytest.raises(aacp.InvalidData, match=rf"labels of {kind}, .*\. Give int64 labels: labels\.long\(\)\."):
        aacp.fit(network(), (X, (Y > 0).to(kind)), RECIPE, device="cpu")


@pytest.mark.parametrize("mixing", [0.0, 1.0])
def test_labels_of_bytes_are_labels(mixing: float) -> None:
    aacp.fit(network(), (X, Y.to(torch.uint8)), replace(RECIPE, mixing=mixing), device="cpu")


def test_a_probability_for_each_class_is_a_label() -> None:
    aacp.fit(network(), (X, torch.full((16, 3), 1 / 3)), RECIPE, device="cpu")


class Stream(IterableDataset[Any]):
    """Examples in an order of their own, whose number is known."""

    def __len__(self) -> int:
        return len(X)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(X, Y, strict=True)


def test_a_stream_of_examples_is_trained_on_through_a_loader() -> None:
    with pytest.raises(aacp.InvalidData, match=r"^Stream is an IterableDataset, .* Give a loader of it: DataLoader\("):
        aacp.fit(network(), Stream(), RECIPE, device="cpu")
    aacp.fit(network(), DataLoader(Stream(), 4), RECIPE, device="cpu")


class Endless:
    """A loader that announces two batches and never ends."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat((X[:4], Y[:4]))


@pytest.mark.slow
def test_an_epoch_without_end_is_rejected() -> None:
    with pytest.raises(aacp.InvalidData, match="announces 2 batches, but has given 105 batches"):
        aacp.fit(network(), Endless(), RECIPE, device="cpu")


class Failing(Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        raise KeyError("no such example")


def test_a_data_set_that_fails_is_named_with_its_line() -> None:
    with pytest.raises(
        aacp.InvalidData, match=r"Reading the data failed with KeyError.*__getitem__, test_bad_data.py, line"
    ):
        aacp.fit(network(), Failing(), RECIPE, device="cpu")


def test_a_scripted_network_and_an_example_without_data_are_rejected() -> None:
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(network())
    with pytest.raises(aacp.UntraceableModel, match="is a TorchScript module"):
        aacp.fit(scripted, (X, Y), RECIPE)
    with pytest.raises(aacp.InvalidExample, match="The example is on the meta device"):
        aacp.trace(network(), X.to("meta"))


def test_a_loader_that_shares_examples_among_processes_is_rejected_if_training_does_so() -> None:
    pairs = TensorDataset(X, Y)
    loader = DataLoader(pairs, 4, sampler=DistributedSampler(pairs, 2, 0))
    check_batches(loader, RECIPE, 1)
    with pytest.raises(aacp.InvalidData, match="DistributedSampler gives each process a share of the examples"):
        check_batches(loader, RECIPE, 2)


def test_inputs_are_trained_on_without_the_operations_that_computed_them() -> None:
    factor = torch.ones((), requires_grad=True)
    batches = aacp.Batches.of((factor * X, Y), batch_size=8)
    assert not any(inputs.requires_grad for inputs, _ in batches)
    aacp.fit(network(), DataLoader(TensorDataset(factor * X, Y), 4), RECIPE, device="cpu")
    assert factor.grad is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_training_turns_on_gradients_that_its_caller_has_turned_off(mode: Any) -> None:
    given = network()
    before = given[0].weight.detach().clone()
    with mode():
        aacp.fit(given, (X, Y), RECIPE, device="cpu")
    assert not torch.equal(given[0].weight, before)


def test_a_network_made_without_gradients_for_good_is_rejected() -> None:
    with torch.inference_mode():
        made = network()
    with pytest.raises(aacp.UntraceableModel, match=r"was made in torch.inference_mode, .* from 0\.weight with"):
        aacp.fit(made, (X, Y), RECIPE, device="cpu")
