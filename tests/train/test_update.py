"""One update of the weights, compared with a loop written out with torch's own parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from aacp.train.averaging import Average
from aacp.train.fabric import make_fabric
from aacp.train.loop import fit
from aacp.train.optimisers import optimiser_for
from aacp.train.recipe import Recipe
from aacp.train.sources import batches_of
from aacp.train.update import share_correct
from train.small_data import network, same, small_images, weights

RECIPE = Recipe(epochs=3, batch_size=16, lr=0.1, warmup_epochs=1, nesterov=True, weight_decay=1e-3)
TAUGHT = replace(RECIPE, distillation=0.6, temperature=2.0)
CPU = torch.device("cpu")


def written_out(recipe: Recipe, average: float = 0.0) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The same training in the plainest terms: the network, and the moving average of its state."""
    model, teacher = network(), network(5).eval()
    optimiser = torch.optim.SGD(
        model.parameters(), recipe.lr, recipe.momentum, nesterov=recipe.nesterov, weight_decay=recipe.weight_decay
    )
    source = batches_of(small_images(), recipe, make_fabric(device="cpu"))
    mean = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for epoch in range(recipe.epochs):
        for step, (inputs, labels) in enumerate(source.epoch(epoch)):
            optimiser.param_groups[0]["lr"] = recipe.lr_at(epoch * source.steps + step, source.steps)
            outputs = model(inputs)
            loss = F.cross_entropy(outputs, labels)
            if recipe.distillation:
                soft, answer = ((logits / 2).log_softmax(1) for logits in (teacher(inputs).detach(), outputs))
                loss = 0.4 * loss + 0.6 * 4 * F.kl_div(answer, soft, log_target=True, reduction="batchmean")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            for name, tensor in model.state_dict().items():
                if tensor.is_floating_point():
                    mean[name] = average * mean[name] + (1 - average) * tensor
    return model, mean


@pytest.mark.parametrize("recipe", [RECIPE, TAUGHT], ids=["labels", "teacher"])
def test_training_is_the_loop_one_would_write_by_hand(recipe: Recipe) -> None:
    model = network()
    fit(model, small_images(), recipe, teacher=network(5) if recipe.distillation else None, device="cpu")
    expected, _ = written_out(recipe)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_the_average_is_kept_as_the_result_if_the_recipe_says_so() -> None:
    model = network()
    fit(model, small_images(), replace(RECIPE, average=0.8), device="cpu")
    _, expected = written_out(RECIPE, average=0.8)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_an_average_in_place_gives_the_network_back() -> None:
    model = network()
    average, before = Average(model, 0.5), weights(model)
    with torch.no_grad():
        model[0].weight.add_(1.0)  # type: ignore[union-attr,operator]
    average.update()
    with average.in_place():
        torch.testing.assert_close(model[0].weight, before["0.weight"] + 0.5)  # type: ignore[union-attr]
    torch.testing.assert_close(model[0].weight, before["0.weight"] + 1.0)  # type: ignore[union-attr]


def test_an_average_in_place_gives_tied_weights_back() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    average, before = Average(model, 0.5), weights(model)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    average.update()
    for _ in range(2):
        with average.in_place():
            torch.testing.assert_close(model[1].weight, before["0.weight"] + 0.5)
        torch.testing.assert_close(model[1].weight, before["0.weight"] + 1.0)


def test_norms_and_biases_are_exempt_from_weight_decay_if_the_recipe_says_so() -> None:
    model = network()
    optimiser = optimiser_for(model, replace(RECIPE, decays_norms=False), CPU)
    decay = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    found = {name: decay[id(parameter)] for name, parameter in model.named_parameters()}
    assert found == {"0.weight": 1e-3, "1.weight": 0.0, "1.bias": 0.0, "6.weight": 1e-3, "6.bias": 0.0}


def test_the_share_of_correct_labels_is_nan_if_targets_are_not_labels() -> None:
    assert float(share_correct(torch.eye(4), torch.tensor([0, 1, 0, 0]))) == 0.5
    assert share_correct(torch.zeros(4, 1), torch.zeros(4)).isnan()
    assert float(share_correct(torch.eye(4), torch.tensor([0, -100, -100, 0]))) == 0.5  # ignored labels do not count


def test_a_faster_update_is_used_if_there_is_one_and_the_user_does_not_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    steps: list[float] = []

    def door(name: str, *arguments: Any) -> Any:
        requests.append(name)
        if name != "update_for":
            return None
        plain = arguments[0]

        def faster(inputs: Any, targets: Any, lr: float) -> torch.Tensor:
            steps.append(lr)
            return plain(inputs, targets, lr)

        return faster

    monkeypatch.setattr("aacp.train.session.accelerated", door)
    monkeypatch.setattr("aacp.train.loop.accelerated", door)
    one, other = network(), network()
    fit(one, small_images(), RECIPE, device="cpu", accelerate=False)
    assert (requests, steps) == ([], [])
    fit(other, small_images(), RECIPE, device="cpu")
    assert requests == ["network_for", "update_for"]
    assert steps == pytest.approx([RECIPE.lr_at(step, 6) for step in range(18)])
    assert same(weights(one), weights(other))
