"""Racing stops losers early, and almost never a trial that would have reached its incumbent."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.estimate.racing import LOOKS, _chance_of_so_few, is_losing


def test_the_chance_of_so_few_is_counted_over_all_draws() -> None:
    total, needed, seen = 8, 5, 4
    right = [sum(index < needed for index in draw) for draw in combinations(range(total), seen)]
    for most in range(seen + 1):
        expected = sum(count <= most for count in right) / len(right)
        assert _chance_of_so_few(most, seen, needed, total) == pytest.approx(expected)


@pytest.mark.parametrize("error", [0.01, 0.1])
def test_a_trial_as_good_as_its_incumbent_is_stopped_no_more_often_than_stated(error: float) -> None:
    generator, total, share, trials = np.random.default_rng(0), 1000, 0.8, 3000
    stopped = 0
    for _ in range(trials):
        order = generator.permutation(total) < share * total
        looks = [int(look * total) for look in LOOKS]
        stopped += any(is_losing(int(order[:n].sum()), n, total, share, error) for n in looks)
    assert stopped / trials <= error + 3 * np.sqrt(error / trials)


def test_a_clear_loser_is_stopped_at_the_first_look_and_a_winner_never() -> None:
    assert is_losing(right=60, seen=125, total=1000, incumbent=0.9, error=0.01)
    assert not is_losing(right=115, seen=125, total=1000, incumbent=0.9, error=0.01)
    assert not is_losing(right=0, seen=125, total=1000, incumbent=1.5, error=0.01)  # nothing could reach it


class Constant(nn.Module):
    """Always says class 0; a convolution gives it something to prune."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 8, 3)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3))) * 0 + torch.tensor([1.0, 0.0])


def estimate(racing: float | None) -> aacp.PSAE:
    model = Constant()
    images, labels = torch.randn(800, 1, 4, 4), (torch.arange(800) >= 480).long()  # 60 % are class 0, sorted
    graph = aacp.trace(model, images[:1])
    return aacp.PSAE(model, graph, calibration=images, holdout=(images, labels), batch_size=50, racing=racing)


def test_a_loser_sees_part_of_the_images_and_keeps_an_unbiased_score() -> None:
    psae = estimate(0.01)
    seen = []
    original = psae.score
    psae.score = lambda network, batches: seen.append(batches.images) or original(network, batches)
    score = psae.raced([4], 0.9)
    assert sum(seen) < 800
    assert score == pytest.approx(0.6, abs=0.15)  # shuffled: the sorted first images alone would give 1.0
    assert psae([4]) == score  # each structure once


@pytest.mark.parametrize(("racing", "incumbent"), [(0.01, 0.55), (None, 0.9)])
def test_a_contender_is_scored_on_all_images(racing: float | None, incumbent: float) -> None:
    assert estimate(racing).raced([4], incumbent) == 0.6


def test_a_search_tells_its_estimate_what_to_beat_and_resumes_exactly(tmp_path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.Conv2d(16, 12, 1), nn.Conv2d(12, 14, 1), nn.Conv2d(14, 2, 1))
    graph = aacp.trace(model, torch.randn(1, 1, 4, 4))
    space = aacp.SearchSpace(graph, pruning_step=1)
    budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=0.1))

    class Racer:
        def __init__(self) -> None:
            self.told: list[tuple[float | None, tuple[int, ...]]] = []

        def __call__(self, structure) -> float:
            return self.scored(structure, None)

        def raced(self, structure, incumbent: float) -> float:
            return self.scored(structure, incumbent)

        def scored(self, structure, incumbent) -> float:
            self.told.append((incumbent, tuple(structure)))
            return float(sum(structure))

    def method() -> aacp.ImprovedDifferentialEvolution:
        return aacp.ImprovedDifferentialEvolution(space, budget, seed=0)

    whole, first, second = Racer(), Racer(), Racer()
    result = aacp.run_search(method(), whole, evaluations=25)
    assert whole.told[0][0] is None
    assert [incumbent for incumbent, _ in whole.told if incumbent is not None]
    aacp.run_search(method(), first, evaluations=14, folder=tmp_path)
    resumed = aacp.run_search(method(), second, evaluations=25, folder=tmp_path)
    assert first.told + second.told == whole.told
    assert resumed.history == result.history
