"""A ranking fine-tunes the estimated structures and reports how well the two orders agree."""

from __future__ import annotations

import pytest
import torch

import aacp
from aacp.train.recipe import DIGITS


@pytest.mark.slow
def test_on_digits_more_channels_estimate_and_train_better(capsys: pytest.CaptureFixture[str]) -> None:
    data = aacp.load_data("digits")
    model = aacp.build_model("digits_resnet")
    aacp.fit(model, data.train, DIGITS.scaled(3))
    graph = aacp.trace(model, aacp.example_input(model))
    estimate = aacp.PSAE(aacp.Inheritance(model, graph, data.train.subset(range(400))), data.holdout)
    structures = [[max(1, group.width // share) for group in graph.free] for share in (1, 4, 16)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with aacp.show_progress():
        found = aacp.ranking(estimate, structures, data.train, recipe=DIGITS.scaled(1), outcome=data.holdout)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["1 of 3", "2 of 3", "3 of 3"]  # without the epochs of each
    assert found.estimates == tuple(map(estimate, structures))
    assert found.outcomes[0] > found.outcomes[2]
    assert found.spearman > 0
    assert f"{found.spearman:.3f}" in str(found)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_two_structures_are_too_few() -> None:
    data = aacp.load_data("digits")
    model = aacp.build_model("digits_resnet")
    graph = aacp.trace(model, aacp.example_input(model))
    estimate = aacp.PSAE(aacp.Inheritance(model, graph, data.train.subset(range(64))), data.holdout)
    with pytest.raises(aacp.InvalidOption, match="says nothing"):
        aacp.ranking(estimate, [list(graph.full)] * 2, data.train)
