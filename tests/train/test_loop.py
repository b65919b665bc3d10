"""The training loop: its results, what it rejects, and what it does not change."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aacp.data.images import Images
from aacp.data.splits import Data
from aacp.errors import AACPError, CorruptImage, InvalidData, InvalidOption
from aacp.runs.files import LOG, WEIGHTS
from aacp.train.fabric import make_fabric
from aacp.train.loop import finetune, fit, train_from_scratch
from aacp.train.new_weights import draw_weights
from aacp.train.recipe import Recipe
from aacp.train.sources import batches_of
from aacp.zoo.folders import image_folder
from train.small_data import CLASSES, network, same, small_images, weights

RECIPE = Recipe(epochs=4, batch_size=16, lr=0.1)


def tensors(count: int = 96) -> TensorDataset:
    images = small_images(count)
    return TensorDataset(images.normalised(images.pixels), images.labels)


@pytest.mark.slow
def test_training_learns_and_the_holdout_of_the_data_is_scored() -> None:
    data = SimpleNamespace(train=small_images(), holdout=small_images(40, seed=1))
    trained = fit(network(), data, replace(RECIPE, epochs=8), device="cpu")
    assert [epoch.epoch for epoch in trained.epochs] == list(range(1, 9))
    assert trained.last.loss < trained.epochs[0].loss / 2
    assert trained.last.holdout is not None
    assert trained.last.holdout > 0.9


@pytest.mark.parametrize("kind", ["images", "dataset", "loader", "tensors"])
def test_any_data_trains(kind: str) -> None:
    sources = {
        "images": small_images(),
        "dataset": tensors(),
        "loader": DataLoader(tensors(), batch_size=16, shuffle=True),
        "tensors": tensors().tensors,
    }
    model = network()
    trained = fit(model, sources[kind], replace(RECIPE, epochs=6), device="cpu")
    assert trained.last.accuracy is not None
    assert trained.last.accuracy > 0.9


def test_the_network_comes_home_in_its_mode() -> None:
    model = network()
    model[1].eval()  # type: ignore[union-attr]
    modes = [module.training for module in model.modules()]
    fit(model, small_images(), replace(RECIPE, epochs=1), device="cpu", holdout=small_images(20))
    assert [module.training for module in model.modules()] == modes
    assert all(tensor.is_contiguous() for tensor in model.state_dict().values())


def test_networks_with_an_attribute_called_modules_train_like_others(tmp_path: Path) -> None:
    trained = []
    for is_named in (False, True):
        models = [network(seed) for seed in range(2)]
        for model in models if is_named else []:
            model.modules = list(model)  # type: ignore[assignment, call-overload]
        recipe = replace(RECIPE, epochs=2, distillation=0.5)
        place = tmp_path / str(is_named)
        fit(models[0], small_images(), recipe, teacher=models[1], holdout=small_images(20), folder=place, device="cpu")
        trained.append(weights(models[0]))
    assert same(*trained)


def test_training_leaves_torchs_generator_alone() -> None:
    model = network(dropout=0.5)
    before = torch.get_rng_state()
    fit(model, DataLoader(tensors(), batch_size=16, shuffle=True), replace(RECIPE, epochs=1), device="cpu")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_the_same_seed_trains_the_same_network_and_another_seed_another() -> None:
    found = []
    for seed in (0, 0, 1):
        model = network(dropout=0.3)
        fit(model, small_images(), replace(RECIPE, seed=seed), device="cpu")
        found.append(weights(model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_from_scratch_forgets_every_weight_and_says_what_it_could_not_draw() -> None:
    model, other = network(1), network(2)
    draw_weights(model, 0)
    draw_weights(other, 0)
    assert same(weights(model), weights(other))
    assert not same(weights(model), weights(network(1)))

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.full((1,), 5.0))

    with pytest.warns(UserWarning, match=r"keep their weights: 0 \(Scaled\)"):
        draw_weights(nn.Sequential(Scaled()), 0)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize(
    "normalised",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.weight_norm,
        partial(nn.utils.weight_norm, dim=None),
        partial(nn.utils.weight_norm, dim=1),
    ],
)
def test_weights_that_are_normalised_are_drawn_like_others(normalised: Callable[[nn.Module], nn.Module]) -> None:
    plain, layer = nn.Conv2d(3, 4, 3), normalised(nn.Conv2d(3, 4, 3))
    image = torch.randn(2, 3, 8, 8)
    draw_weights(plain, 0)
    draw_weights(layer, 0)
    torch.testing.assert_close(layer(image), plain(image))


@pytest.mark.parametrize("normalised", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_weights_behind_a_spectral_norm_are_drawn(normalised: Callable[[nn.Module], nn.Module]) -> None:
    plain, layer = nn.Linear(5, 4), normalised(nn.Linear(5, 4))
    draw_weights(plain, 0)
    draw_weights(layer, 0)
    hidden = layer.weight_orig if hasattr(layer, "weight_orig") else layer.parametrizations.weight.original
    assert torch.equal(hidden, plain.weight)
    assert hidden.requires_grad


def test_weights_that_a_network_computes_by_itself_are_not_drawn() -> None:
    class Computed(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            del self._parameters["weight"]
            self.weight = torch.ones(2, 2)

    with pytest.raises(InvalidOption, match=r"The weight of 0 is computed from other parameters"):
        draw_weights(nn.Sequential(Computed()), 0)


def test_training_from_scratch_does_not_depend_on_the_weights_before() -> None:
    models = [network(1), network(2)]
    for model in models:
        train_from_scratch(model, small_images(), RECIPE, device="cpu")
    assert same(weights(models[0]), weights(models[1]))


def test_finetuning_asks_the_teacher_if_there_is_one() -> None:
    taught, alone = network(1), network(1)
    finetune(taught, small_images(), replace(RECIPE, distillation=0.9), teacher=network(9), device="cpu")
    finetune(alone, small_images(), replace(RECIPE, distillation=0.9), device="cpu")
    assert not same(weights(taught), weights(alone))


def test_a_loss_and_a_score_of_ones_own_train_other_tasks() -> None:
    inputs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    model = nn.Linear(3, 1)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))

    def score(model: nn.Module, batches: object) -> float:
        return -float(sum(((model(x) - y) ** 2).mean().detach() for x, y in batches))  # type: ignore[attr-defined]

    trained = fit(
        model,
        data,
        replace(RECIPE, epochs=20, weight_decay=0.0),
        loss=nn.MSELoss(),
        score=score,
        holdout=data,
        device="cpu",
    )
    assert trained.last.holdout is not None
    assert -0.05 < trained.last.holdout < 0
    assert trained.last.accuracy is None


def folder_of_pictures(root: Path, corrupt: bool) -> Data:
    """Six images of each of two plain colours, and a file that is not an image."""
    for part in ("train", "val"):
        for name, colour in (("dark", (20, 30, 40)), ("light", (200, 210, 190))):
            (root / part / name).mkdir(parents=True)
            for number in range(6):
                Image.new("RGB", (40, 32), tuple(c + number for c in colour)).save(root / part / name / f"{number}.jpg")
    if corrupt:
        (root / "train" / "dark" / "broken.jpg").write_bytes(b"no image")
    return image_folder(root, holdout=0.0, size=24, on_corrupt="refuse")


@pytest.mark.slow
def test_folders_of_images_train_and_their_random_crops_follow_from_the_seed(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path, corrupt=False)
    models = [nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)) for _ in range(2)]
    for model in models:
        draw_weights(model, 0)
        torch.manual_seed(id(model) % 1000)  # what happens to be there must not matter
        trained = fit(model, data, replace(RECIPE, epochs=5, batch_size=4), device="cpu", holdout=data.test)
    assert trained.last.holdout == 1.0
    assert same(weights(models[0]), weights(models[1]))


def test_a_corrupt_image_ends_training_with_its_name(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path, corrupt=True)
    with pytest.raises(CorruptImage, match=r"broken\.jpg cannot be read"):
        fit(nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 2)), data, replace(RECIPE, batch_size=4), device="cpu")


# -- what is rejected --------------------------------------------------------------------------------------------------


def rejected(data: object, recipe: Recipe = RECIPE, model: nn.Module | None = None, **settings: object) -> str:
    with pytest.raises(AACPError) as caught:
        fit(model or network(), data, recipe, device="cpu", **settings)  # type: ignore[arg-type]
    return str(caught.value)


def test_data_that_cannot_be_trained_on_is_rejected() -> None:
    empty = Images(torch.zeros(0, 2, 6, 6, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64), (0, 0), (1, 1))
    for nothing in (empty, [], (torch.zeros(0, 2, 6, 6), torch.zeros(0, dtype=torch.int64))):
        assert rejected(nothing) == "The training data has no examples. Give at least one batch."
    assert "has no length" in rejected(iter([(torch.zeros(2, 2, 6, 6), torch.zeros(2))]))
    assert "only 96 examples" in rejected(small_images(), replace(RECIPE, batch_size=97))
    assert "only 96 examples" in rejected(tensors(), replace(RECIPE, batch_size=97))


@pytest.mark.parametrize("wrong", [-1, 4])
def test_labels_without_an_output_are_named(wrong: int) -> None:
    images = small_images()
    labels = images.labels.clone()
    labels[50] = wrong
    said = rejected(replace(images, labels=labels))
    assert f"There is a label {wrong} in the training data, but the network has 4 classes" in said
    loader = DataLoader(TensorDataset(images.normalised(images.pixels), labels), batch_size=16)
    assert f"There is a label {wrong}" in rejected(loader)
    labels[:16] = wrong  # the first batch, from which the number of classes is known
    assert f"There is a label {wrong}" in rejected(loader)


def test_a_batch_of_one_with_batch_norm_is_rejected_but_a_last_one_is_skipped() -> None:
    assert "Batch norm has no statistics of one example" in rejected(small_images(), replace(RECIPE, batch_size=1))
    assert "Batch norm has no statistics of one example" in rejected(DataLoader(tensors(), batch_size=1))
    ragged = DataLoader(tensors(33), batch_size=16)
    trained = fit(network(), ragged, replace(RECIPE, epochs=1), device="cpu")
    assert math.isfinite(trained.last.loss)


def test_outputs_that_are_not_classes_are_rejected() -> None:
    assert "Give a loss function of your own" in rejected(small_images(), model=nn.Sequential(network(), nn.Flatten(0)))
    assert "No parameter of the network requires a gradient" in rejected(small_images(), model=nn.Flatten())
    assert "Give a teacher of the same classes" in rejected(
        small_images(), replace(RECIPE, distillation=0.5), teacher=network(classes=5)
    )


def test_a_teacher_without_a_share_and_a_share_without_a_teacher_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="no share of the loss"):
        fit(network(), small_images(), RECIPE, teacher=network())
    with pytest.raises(InvalidOption, match="there is none"):
        fit(network(), small_images(), replace(RECIPE, distillation=0.5))


def test_a_device_given_with_a_fabric_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="The fabric is on cpu, and cuda would be ignored"):
        fit(network(), small_images(), RECIPE, fabric=make_fabric(device="cpu"), device="cuda")


def test_inputs_that_are_not_finite_end_the_run_and_the_step_is_named() -> None:
    images = small_images(96)
    inputs = images.normalised(images.pixels)
    inputs[40] = torch.nan
    loader = DataLoader(TensorDataset(inputs, images.labels), batch_size=16)
    with pytest.raises(InvalidData, match=r"inputs that are NaN or infinite, at step 3 of epoch 1"):
        fit(network(), loader, RECIPE, device="cpu")


def test_a_loader_that_dies_says_so_itself_and_the_network_comes_home() -> None:
    class Dying(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            if index == 70:
                raise OSError("disk gone")
            return super().__getitem__(index)

    model = network().eval()
    with pytest.raises(InvalidData, match="disk gone"):
        fit(model, Dying(*tensors().tensors), RECIPE, device="cpu")
    assert not model.training


def test_a_device_that_is_not_there_is_rejected() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(InvalidOption, match="no CUDA device"):
        fit(network(), small_images(), RECIPE, device="cuda")


def test_too_many_processes_for_a_batch_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="batch of 16 cannot be divided among 3"):
        batches_of(small_images(), RECIPE, SimpleNamespace(world_size=3))  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [small_images(50), tensors(50)])
def test_a_batch_larger_than_the_data_is_rejected_with_both_numbers(data: object) -> None:
    with pytest.raises(InvalidData, match=r"batch size is 64, but the data has only 50 examples"):
        fit(network(), data, replace(RECIPE, batch_size=64), device="cpu")


def test_a_loader_that_gives_nothing_is_rejected() -> None:
    with pytest.raises(InvalidData, match="no batch"):
        fit(network(), _NoBatches(), RECIPE, device="cpu")


class _NoBatches:
    """A loader that promises more than it gives."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> object:
        return iter(())


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_stopped_after_an_epoch_and_continued_a_run_ends_with_the_same_bytes(tmp_path: Path, average: float) -> None:
    """The rates are those of the whole recipe, and the weights of every stop stay."""
    recipe = replace(RECIPE, average=average)
    whole = network()
    fit(whole, small_images(), recipe, folder=tmp_path / "whole", device="cpu")
    stopped = network()
    for until in (1, 3, None):
        stopped = network()
        found = fit(stopped, small_images(), recipe, folder=tmp_path / "stopped", device="cpu", until=until)
        assert found.last.epoch == (until or recipe.epochs)
        name = f"weights-{until}.safetensors" if until else WEIGHTS
        saved = load_file(tmp_path / "stopped" / name)
        assert all(torch.equal(value, saved[key]) for key, value in stopped.state_dict().items())
    assert (tmp_path / "stopped" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
    lines = [(tmp_path / place / LOG).read_text().splitlines() for place in ("whole", "stopped")]
    assert [json.loads(line)["lr"] for line in lines[0]] == [json.loads(line)["lr"] for line in lines[1]]
    with pytest.raises(InvalidOption, match=r"trained for 4 epochs, so it cannot stop after 2. Use its weights-2"):
        fit(network(), small_images(), recipe, folder=tmp_path / "stopped", device="cpu", until=2)
    with pytest.raises(InvalidOption, match="until is 0"):
        fit(network(), small_images(), recipe, device="cpu", until=0)


def test_a_network_that_writes_into_its_inputs_does_not_change_the_hold_out() -> None:
    class Writing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.sub_(1))

    inputs, labels = torch.randn(16, 4, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 3
    held = inputs.clone()
    fit(Writing(4, 3), (inputs.clone(), labels), Recipe(epochs=2, batch_size=8, lr=0.01), holdout=(held, labels))
    assert torch.equal(held, inputs)


class Drawing(nn.Module):
    """A network that draws random numbers in every mode, counts its calls, and reads what a hook keeps for it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(72, 8), nn.ReLU(), nn.Linear(8, CLASSES))
        self.calls = 0
        self.kept = kept = {}
        self.layers.register_forward_hook(lambda _, __, outputs: kept.update(outputs=outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.layers(nn.functional.dropout(x, 0.3, training=True))
        return self.kept.pop("outputs")


def test_the_trial_of_a_network_changes_neither_its_attributes_nor_the_numbers_of_an_epoch(tmp_path: Path) -> None:
    recipe = Recipe(epochs=3, batch_size=16, lr=0.05)
    networks = [Drawing() for _ in range(3)]
    fit(networks[0], small_images(64), recipe, device="cpu")
    assert networks[0].calls == 3 * 4
    fit(networks[1], small_images(64), recipe, folder=tmp_path, device="cpu", until=1)
    fit(networks[2], small_images(64), recipe, folder=tmp_path, device="cpu")
    assert networks[2].calls == 2 * 4
    assert same(weights(networks[2]), weights(networks[0]))
