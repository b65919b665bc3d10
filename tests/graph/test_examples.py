"""Example inputs as plain data, and back."""

from __future__ import annotations

import json

import pytest
import torch
from torch.utils import _pytree as pytree

import aacp
from aacp.graph.examples import batch_of, from_plain, in_batches, to_plain, with_batch

EXAMPLE = (
    {"views": [torch.randn(2, 3, 4), torch.randn(2, 1)], "mask": torch.ones(2, 5, dtype=torch.bool)},
    torch.tensor([1, 2]),
    torch.randn(7, dtype=torch.float64),
    3,
    "text",
    None,
)


def test_an_example_comes_back_from_json_with_its_form_shapes_and_types() -> None:
    found = from_plain(json.loads(json.dumps(to_plain(EXAMPLE))))
    assert pytree.tree_structure(found) == pytree.tree_structure(EXAMPLE)
    for ours, theirs in zip(pytree.tree_leaves(EXAMPLE), pytree.tree_leaves(found), strict=True):
        if isinstance(ours, torch.Tensor):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        else:
            assert ours == theirs
    again = from_plain(to_plain(EXAMPLE))
    assert torch.equal(found[0]["views"][0], again[0]["views"][0])


def test_another_batch_size_repeats_the_rows_of_what_has_a_batch() -> None:
    found = with_batch(EXAMPLE, 5)
    assert batch_of(found) == 5
    assert torch.equal(found[1], torch.tensor([1, 2, 1, 2, 1]))
    assert found[2].shape == (7,)
    assert torch.equal(with_batch(EXAMPLE, 1)[0]["views"][0], EXAMPLE[0]["views"][0][:1])


def test_inputs_are_divided_into_batches_of_one_size_and_the_last_is_filled() -> None:
    rows = torch.arange(5)[:, None]
    assert [part.flatten().tolist() for part in in_batches(rows, 2)] == [[0, 1], [2, 3], [4, 4]]
    assert [part.flatten().tolist() for part in in_batches(rows, None)] == [[0, 1, 2, 3, 4]]
    (only,) = in_batches(rows[:1], 3)
    assert only.flatten().tolist() == [0, 0, 0]


def test_what_a_file_cannot_describe_is_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match="holds a Generator"):
        to_plain([torch.Generator()])
    with pytest.raises(aacp.InvalidOption, match="no tensor with a batch dimension"):
        batch_of((3, torch.tensor(1.0)))
