"""Batches and losses that cannot work are rejected before a run folder is written; valid ones are not."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import aacp
from aacp.data.likeness import Likeness
from aacp.pipeline.data_check import check_data
from aacp.pipeline.task import chosen_score
from pipeline.small_tasks import (
    INPUTS,
    LABELS,
    SEARCHED,
    TRAINED,
    Examples,
    Noisy,
    Plain,
    dictionary,
    own_score,
    pair,
    task_of,
    task_of_network,
)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (dictionary, "a dictionary of 'image', 'label'"),
        (lambda image, label: (image, label, label), r"a (list|tuple) of 3"),
    ],
)
def test_batches_without_targets_are_named_and_rejected(form: Any, words: str, tmp_path: Path) -> None:
    known = task_of(form)
    advice = r"it must be \(inputs, targets\)\. Let the loader \(by its collate_fn\)"
    message = rf"A batch of the held-out data is {words}, but {advice}"
    with pytest.raises(aacp.InvalidData, match=message):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)
    assert not list(tmp_path.glob("run/*"))
    with pytest.raises(aacp.InvalidData, match=message):
        aacp.sweep(known.model, known.data, [{"macs": 0.5}], tmp_path / "sweep")
    assert not [path for path in tmp_path.glob("sweep/**/*") if path.is_file() and path.name != ".lock"]


def alone(image: Tensor, label: Tensor) -> Any:
    return image


def test_inputs_without_labels_cannot_be_trained_on_nor_have_an_accuracy(tmp_path: Path) -> None:
    known = task_of(alone)
    words = r"the training data have none: a batch is a tensor of shape \(2, 1, 6, 6\)\. Give batches of"
    with pytest.raises(aacp.InvalidData, match=f"Training needs labels, but {words}"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)
    assert not list(tmp_path.glob("run/*"))
    with pytest.raises(aacp.InvalidData, match="Accuracy compares outputs with labels, but the held-out data have"):
        aacp.sweep(known.model, known.data, [{"macs": 0.5}], tmp_path / "sweep", score=aacp.accuracy)


def test_the_score_without_labels_is_likeness_unless_one_is_given() -> None:
    labelled, unlabelled = task_of(pair), task_of(alone)
    assert chosen_score(None, labelled.model, labelled.data) is aacp.accuracy
    assert isinstance(chosen_score(None, unlabelled.model, unlabelled.data), Likeness)
    assert chosen_score(own_score, unlabelled.model, unlabelled.data) is own_score
    dictionaries = task_of(dictionary)  # which may hold labels
    assert chosen_score(None, dictionaries.model, dictionaries.data) is aacp.accuracy


@pytest.mark.parametrize(("part", "name"), [("train", "training"), ("holdout", "held-out")])
def test_the_part_that_is_wrong_is_named(part: str, name: str) -> None:
    with pytest.raises(aacp.InvalidData, match=f"A batch of the {name} data is"):
        check_data(task_of(pair, **{part: Examples(dictionary)}), TRAINED)


NOTHING = TensorDataset(INPUTS[:0], LABELS[:0])


@pytest.mark.parametrize("nothing", [DataLoader(NOTHING, 4), NOTHING, NOTHING.tensors], ids=["loader", "set", "pair"])
@pytest.mark.parametrize(
    ("part", "name", "advice"),
    [
        ("train", "training", "Give at least one batch"),
        ("holdout", "held-out", r"Hold out more of the training data \(holdout, --holdout\)"),
        ("test", "test", "Give at least one batch"),
    ],
)
def test_the_part_that_is_empty_is_named(part: str, name: str, advice: str, nothing: Any, tmp_path: Path) -> None:
    known = task_of(pair, **{part: nothing})
    words = rf"^The {name} data has no examples\. {advice}\.$"
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)


def test_a_loader_that_drops_all_examples_is_told_from_one_that_has_none(tmp_path: Path) -> None:
    known = task_of(pair, train=DataLoader(TensorDataset(INPUTS[:3], LABELS[:3]), 4, drop_last=True))
    with pytest.raises(aacp.InvalidData, match=r"^The loader of the training data has no batches, as with drop_last"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)


def test_training_data_that_are_empty_are_named_if_the_hold_out_is_split_off_them(tmp_path: Path) -> None:
    data = aacp.Data.of(DataLoader(NOTHING, 4), DataLoader(Examples(pair), 4))
    with pytest.raises(aacp.InvalidData, match=r"^The training data has no examples\."):
        aacp.prune(Noisy(), data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)


@pytest.mark.parametrize(
    ("form", "score", "plan"),
    [
        (pair, aacp.accuracy, TRAINED),
        (lambda image, label: ({"image": image}, label), aacp.accuracy, TRAINED),
        (lambda image, label: ((image,), label), aacp.accuracy, TRAINED),
        (lambda image, label: image, own_score, SEARCHED),
        (lambda image, label: {"image": image}, own_score, SEARCHED),
    ],
)
def test_what_works_is_not_rejected(form: Any, score: Any, plan: aacp.Plan) -> None:
    check_data(task_of(form, score), plan)


def test_a_dictionary_is_no_input_of_a_network_without_such_arguments() -> None:
    with pytest.raises(aacp.InvalidData, match="a dictionary of 'image', 'label'"):
        check_data(task_of(dictionary, own_score), SEARCHED)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"a tensor of shape \(2,\)"),
        (lambda outputs, targets: F.cross_entropy(outputs, targets).item(), "a float"),
        (lambda outputs, targets: None, "a NoneType"),
    ],
)
def test_a_loss_that_is_not_one_number_is_rejected_before_the_search(loss: Any, words: str, tmp_path: Path) -> None:
    known = task_of(pair)
    with pytest.raises(aacp.InvalidOption, match=rf"returned {words} for a batch, not one number\. Return the mean"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED, loss=loss)
    assert not list(tmp_path.glob("run/*"))
    with pytest.raises(aacp.InvalidOption, match=r"returned .* not one number"):
        aacp.fit(known.model, known.data.train, TRAINED.recipe, loss=loss, device="cpu")


def test_a_loss_that_fails_here_may_work_in_training() -> None:
    def of_two_answers(outputs: Any, targets: Tensor) -> Tensor:
        first, second = outputs["both"]
        return F.cross_entropy(first, targets) + F.cross_entropy(second, targets)

    check_data(task_of(pair, loss=of_two_answers), TRAINED)


def test_neither_the_model_nor_the_random_state_is_touched() -> None:
    seen: list[bool] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(outputs.requires_grad)
        return F.cross_entropy(outputs, targets) + torch.rand(())

    known = task_of(pair, loss=loss)
    known.model.train()
    before, state = copy.deepcopy(known.model.state_dict()), torch.random.get_rng_state()
    check_data(known, TRAINED)
    assert seen == [False]
    assert all(torch.equal(value, before[name]) for name, value in known.model.state_dict().items())
    assert all(module.training for module in known.model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_lists_and_pairs_that_may_be_meant_in_another_way_are_explained() -> None:
    class Both(nn.Module):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return left + right

    examples = [(image, int(label)) for image, label in zip(INPUTS, LABELS, strict=True)]
    known = replace(task_of(pair), data=aacp.Data(examples, examples, examples))
    with pytest.raises(aacp.InvalidData, match=r"examples go into a DataLoader, since a list is read as batches\.$"):
        check_data(known, SEARCHED)
    known = replace(task_of(lambda image, _: (image, image)), model=Both(), score=Likeness(Both()))
    words = r"dictionary by argument name, since a pair is read as inputs and labels\.$"
    with pytest.raises(aacp.InvalidData, match=words):
        check_data(known, SEARCHED)


@pytest.mark.parametrize(
    ("form", "score", "plan", "shapes"),
    [
        (lambda image, label: (image.expand(3, 6, 6), label), aacp.accuracy, TRAINED, "(2, 3, 6, 6)"),
        (lambda image, label: (image, label, label), own_score, SEARCHED, "(2, 1, 6, 6), (2,), (2,)"),
    ],
)
def test_data_that_the_network_does_not_run_on_are_rejected_before_the_run_starts(
    form: Any, score: Any, plan: aacp.Plan, shapes: str, tmp_path: Path
) -> None:
    known = task_of(form, score)
    words = f"^Noisy does not run on the held-out data, a batch of shape {re.escape(shapes)}: .*Give data"
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=plan, score=score)
    assert not (tmp_path / "run").exists()


def test_a_network_that_writes_into_its_inputs_is_rejected() -> None:
    class Writing(Noisy):
        def forward(self, image: Tensor) -> Tensor:
            image -= 5.0
            return super().forward(image)

    with pytest.raises(aacp.InvalidOption, match="writes into its inputs"):
        check_data(task_of_network(Writing()), SEARCHED)


def test_state_that_is_no_tensor_is_rejected() -> None:
    class Stateful(Noisy):
        def get_extra_state(self) -> Any:
            return {"k": 9.0}

    with pytest.raises(aacp.InvalidOption, match=r"The network has state that is not a tensor .* Keep it in a buffer"):
        check_data(task_of_network(Stateful()), SEARCHED)


@pytest.mark.slow
def test_images_of_several_shapes_cannot_be_repaired_and_are_rejected_before_the_search(tmp_path: Path) -> None:
    batches = [(torch.randn(8, 1, size, size), LABELS[:8]) for size in (6, 8)]
    data = aacp.Data(DataLoader(batches, None), DataLoader(batches, None), DataLoader(batches, None))
    plan = replace(SEARCHED, evaluations=2, export=False)
    words = r"The calibration images have several shapes, but repair needs one\. .* --reconstruction none"
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.prune(Plain(), data, {"macs": 0.3}, tmp_path / "run", plan=plan)
    assert not (tmp_path / "run/history.jsonl").exists()
    aacp.prune(Plain(), data, {"macs": 0.3}, tmp_path / "other", plan=replace(plan, reconstruction=None))
