"""Channel ids: which of them are tied, and which must stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aacp.graph.labels import Ties, along, compact, core, varying

PAIRS = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60)


def components_by_search(pairs: list[tuple[int, int]], count: int) -> list[set[int]]:
    """Connected components by walking the graph: slow and plain."""
    neighbours: dict[int, set[int]] = {i: {i} for i in range(count)}
    for a, b in pairs:
        neighbours[a].add(b)
        neighbours[b].add(a)
    found = []
    for start in range(count):
        reached, edge = {start}, [start]
        while edge:
            edge = [n for node in edge for n in neighbours[node] if n not in reached and not reached.add(n)]  # type: ignore[func-returns-value]
        found.append(reached)
    return found


@pytest.mark.slow
@given(PAIRS, PAIRS)
def test_ids_share_a_root_exactly_if_a_chain_of_ties_joins_them(first: list, second: list) -> None:
    ties = Ties()
    ids = ties.fresh(20)
    assert ids.tolist() == list(range(20))
    early = [(a, b) for a, b in first if max(a, b) < 20]
    for a, b in early:
        ties.tie(np.array([a]), np.array([b]), "")
    ties.roots()  # asking in between changes nothing
    ties.fresh(10)
    if second:
        ties.tie(np.array([a for a, _ in second]), np.array([b for _, b in second]), "")
    roots = ties.roots()
    for i, reached in enumerate(components_by_search(early + second, 30)):
        assert set(np.flatnonzero(roots == roots[i]).tolist()) == reached


def test_an_id_tied_to_nothing_must_stay_and_so_must_its_partners() -> None:
    ties = Ties()
    ids = ties.fresh(4)
    ties.tie(ids[:2], ids[2:], "a sum")
    ties.tie(np.array([0, -1]), np.array([-1, 3]), "an image")
    reasons, roots = ties.reasons(), ties.roots()
    assert [reasons.get(int(root)) for root in roots] == ["tied to channels that must stay: an image"] * 4


def test_the_first_reason_is_the_one_that_is_told() -> None:
    ties = Ties()
    ids = ties.fresh(2)
    ties.tie(ids[:1], ids[1:], "")
    ties.fix(ids[1:], "first")
    ties.fix(ids[:1], "second")
    assert list(ties.reasons().values()) == ["first"]


def test_labels_cost_no_memory_along_dimensions_without_change() -> None:
    label = along(np.arange(5), 1, (2, 5, 100, 100))
    assert varying(label) == (1,)
    assert core(label).shape == (1, 5, 1, 1)
    copied = label.contiguous()
    assert varying(compact(copied)) == (1,)
    assert torch.equal(compact(copied), label)
    assert varying(compact(torch.arange(6).reshape(2, 3))) == (0, 1)
