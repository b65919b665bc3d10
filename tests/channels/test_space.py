import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import aacp
from aacp import InvalidOption, InvalidStructure, SearchSpace, Structure

VGG16 = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]


def test_the_papers_step_of_an_eighth_gives_the_papers_space() -> None:
    space = SearchSpace.from_widths(VGG16, 1 / 8)
    assert [choice[0] for choice in space.choices] == [8, 8, 16, 16, 32, 32, 32, 64, 64, 64, 64, 64, 64]
    assert space.size == 8**13
    assert space.full == Structure(VGG16)


# A share of thousandths has an exact step. A float just below one, such as 0.9899999999999999, counts as that share.
SHARES = st.integers(10, 990).map(lambda thousandths: Fraction(thousandths, 1000))


@given(st.integers(1, 300), st.one_of(st.integers(1, 64), SHARES))
def test_choices_are_multiples_of_the_step_and_the_full_width(width: int, step: int | Fraction) -> None:
    is_share = isinstance(step, Fraction)
    (choices,) = SearchSpace.from_widths([width], float(step) if is_share else step).choices
    unit = max(1, math.floor(width * step)) if is_share else step
    assert choices[-1] == width
    assert all(choice % unit == 0 for choice in choices[:-1])
    assert len(choices) == len(set(choices)) == width // unit + (width % unit > 0)


def test_a_hardware_multiple_counts_channels_not_units() -> None:
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.GroupNorm(4, 64), nn.Conv2d(64, 5, 1))
    graph = aacp.trace(net, torch.randn(1, 3, 8, 8))
    assert [(group.width, group.unit_channels) for group in graph.free] == [(16, 4)]
    assert SearchSpace(graph, 8).choices == ((2, 4, 6, 8, 10, 12, 14, 16),)


def test_steps_can_be_given_per_group() -> None:
    assert SearchSpace.from_widths([8, 9], [4, 0.34]).choices == ((4, 8), (3, 6, 9))
    assert SearchSpace.from_widths([8, 9], {"group0": 4, "group1": 9}).choices == ((4, 8), (9,))


@pytest.mark.parametrize("step", [0, -1, 1.0, 0.0, float("nan"), "8", [1], {"group0": 1}, {"x": 1, "group0": 1}])
def test_steps_that_are_none_are_rejected(step: object) -> None:
    with pytest.raises(InvalidOption):
        SearchSpace.from_widths([8, 9], step)  # type: ignore[arg-type]


def test_samples_are_legal_and_reach_every_choice() -> None:
    space, generator = SearchSpace.from_widths([5, 12], 1 / 4), np.random.default_rng(0)
    samples = [space.sample(generator) for _ in range(300)]
    assert all(sample in space for sample in samples)
    assert len(set(samples)) == space.size


def test_snap_rounds_down_into_the_space() -> None:
    space = SearchSpace.from_widths([16, 20], 8)
    assert space.snap([15.9, 19.0]) == Structure([8, 16])
    assert space.snap([-3, 400]) == Structure([8, 20])
    with pytest.raises(InvalidStructure, match="one per group"):
        space.snap([1.0])


@given(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.sampled_from([1 / 8, 1 / 3, 3, 8]), st.integers(0, 99))
def test_genes_and_counts_are_inverse_and_counts_are_choices(widths: list[int], step: float, seed: int) -> None:
    space = SearchSpace.from_widths(widths, step)
    genes = np.random.default_rng(seed).integers(space.levels, size=(5, len(space)))
    counts = space.counts(genes)
    assert (space.genes(counts) == genes).all()
    for row, gene in zip(counts, genes, strict=True):
        assert row.tolist() == [choice[g] for choice, g in zip(space.choices, gene, strict=True)]
        assert space.structure(gene).counts == tuple(row.tolist())
        assert space.structure(gene) in space


# -- tied groups ------------------------------------------------------------------------------------------------------


def test_tied_groups_of_equal_width_share_one_gene() -> None:
    space = SearchSpace.from_widths([16, 8, 16], 1 / 4, ties=[(0, 2)])
    assert len(space) == 2
    assert space.size == 4 * 4
    assert space.coordinates == ((0, 2), (1,))
    structures = {tuple(space.counts([first, second]).tolist()) for first in range(4) for second in range(4)}
    assert structures == {(wide, narrow, wide) for wide in (4, 8, 12, 16) for narrow in (2, 4, 6, 8)}
    assert space.full == Structure([16, 8, 16])
    assert space.smallest == Structure([4, 2, 4])


def nearest_share(count: int, leading_width: int, choices: tuple[int, ...]) -> int:
    """The choice nearest to the same share of its width, by exact fractions; the larger of two."""
    share = Fraction(count, leading_width)
    return min(choices, key=lambda own: (abs(Fraction(own, choices[-1]) - share), -own))


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    st.lists(st.one_of(st.integers(1, 20), st.floats(0.05, 0.6)), min_size=4, max_size=4),
)
def test_tied_groups_of_other_widths_keep_the_nearest_legal_share(widths: list[int], steps: list[float]) -> None:
    groups = len(widths)
    space = SearchSpace.from_widths(widths, steps[:groups], ties=[range(groups)])
    apart = SearchSpace.from_widths(widths, steps[:groups]).choices
    leading = max(range(groups), key=lambda position: (len(apart[position]), -position))
    assert space.levels.tolist() == [len(apart[leading])]
    for gene, count in enumerate(apart[leading]):
        expected = [nearest_share(count, widths[leading], choices) for choices in apart]
        assert space.counts([gene]).tolist() == expected
        assert space.genes(expected).tolist() == [gene]
        assert Structure(expected) in space
        assert space.snap(expected) == Structure(expected)
    assert space.full == Structure(widths)


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 40), min_size=3, max_size=3),
    st.lists(st.one_of(st.integers(1, 20), st.floats(0.05, 0.6)), min_size=3, max_size=3),
    st.data(),
)
def test_the_part_above_a_structure_holds_the_structures_that_are_nowhere_narrower(
    widths: list[int], steps: list[float], data: st.DataObject
) -> None:
    space = SearchSpace.from_widths(widths, steps, ties=[(0, 1)])
    least = [data.draw(st.integers(0, level - 1)) for level in space.levels.tolist()]
    part = space.at_least(space.structure(least))
    above = [space.structure(genes) for genes in np.ndindex(*space.levels.tolist()) if (genes >= np.array(least)).all()]
    assert [part.structure(genes) for genes in np.ndindex(*part.levels.tolist())] == above
    assert all(structure in part and part.snap(structure) == structure for structure in above[:20])
    assert [part.smallest, part.full] == [space.structure(least), space.full]
    assert (part.names, part.producer_counts) == (space.names, space.producer_counts)


def test_a_structure_that_breaks_a_tie_is_not_in_the_space() -> None:
    space = SearchSpace.from_widths([16, 16], 4, ties=[(0, 1)])
    assert Structure([8, 8]) in space
    assert Structure([8, 12]) not in space
    assert Structure([7, 7]) not in space
    assert Structure([8]) not in space
    assert Structure([20, 20]) not in space


def test_snap_narrows_tied_groups_until_none_exceeds_its_width() -> None:
    space = SearchSpace.from_widths([16, 16, 32], 1 / 4, ties=[(0, 2)])
    assert space.snap([15.9, 9, 32]) == Structure([12, 8, 24])
    assert space.snap([16, 16, 15]) == Structure([4, 16, 8])
    assert space.snap([1, 1, 32]) == Structure([4, 4, 8])


def test_samples_of_tied_groups_reach_every_structure() -> None:
    space, generator = SearchSpace.from_widths([6, 4, 12], 1 / 3, ties=[(2, 0)]), np.random.default_rng(0)
    samples = {space.sample(generator) for _ in range(300)}
    assert len(samples) == space.size == 3 * 4
    assert all(2 * first == last for first, _, last in samples)


def test_a_tie_matters_as_much_as_its_most_coupled_group() -> None:
    space = SearchSpace.__new__(SearchSpace)
    space._fill([("a", 8, 1), ("b", 8, 1), ("c", 8, 1)], 1 / 8, (1, 3, 1), [(0, 2)])
    assert space.producer_counts == (1, 3)


def test_the_json_of_a_space_tells_ties_apart() -> None:
    plain = SearchSpace.from_widths([4, 4], 2)
    assert plain.to_json() == [[2, 4], [2, 4]]
    assert SearchSpace.from_widths([4, 4], 2, ties=[(0, 1)]).to_json() == [[[2, 4], [2, 4]]]
