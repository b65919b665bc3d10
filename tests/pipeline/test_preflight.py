"""Preflight: batches and losses that cannot work are rejected before a run folder is written; valid ones are not."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import aacp
from aacp.data.likeness import Likeness
from aacp.data.scores import accuracy
from aacp.pipeline.preflight import (
    check_data,
    check_deployment,
    check_scoring,
    check_training,
    check_training_step,
    warning_about_holdout,
    warning_about_network,
)
from aacp.pipeline.task import PruningTask, chosen_score

TRAINED = aacp.Plan(recipe=aacp.Recipe(epochs=1, batch_size=4, lr=0.1))
SEARCHED = replace(TRAINED, recipe=None)
INPUTS, LABELS = torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2


class Noisy(nn.Module):
    """A network that draws numbers, and counts in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2)

    def forward(self, image: Tensor) -> Tensor:
        noise = torch.rand_like(image) if image.dim() else image
        answer: Tensor = self.last(self.norm(self.first(image + noise)).relu().mean((2, 3)))
        return answer


class Examples(Dataset[Any]):
    def __init__(self, form: Any) -> None:
        self.form = form

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> Any:
        return self.form(INPUTS[index], LABELS[index])


def subject(form: Any, score: Any = aacp.accuracy, loss: Any = None, **parts: Any) -> PruningTask:
    part = DataLoader(Examples(form), 4)
    given = {"train": part, "holdout": DataLoader(Examples(form), 4), "test": DataLoader(Examples(form), 4)} | parts
    return PruningTask(Noisy(), aacp.Data(**given), "noisy", torch.device("cpu"), score, loss=loss)


def pair(image: Tensor, label: Tensor) -> Any:
    return image, label


def dictionary(image: Tensor, label: Tensor) -> Any:
    return {"image": image, "label": label}


def own_score(network: nn.Module, batches: aacp.Batches) -> float:
    return 0.5


def test_processes_share_the_batches_of_a_loader_not_of_the_recipe() -> None:
    loaders = subject(pair)  # batches of 4
    images = replace(loaders, data=aacp.Data(*[TensorDataset(INPUTS, LABELS)] * 3))
    for batch_size, processes, error in ((1, 2, aacp.InvalidOption), (2, 2, aacp.InvalidData)):
        plan = replace(TRAINED, recipe=replace(TRAINED.recipe, batch_size=batch_size))
        check_training(loaders, plan, processes)
        with pytest.raises(error, match=f"A batch of {batch_size} "):
            check_training(images, plan, processes)
    with pytest.raises(aacp.InvalidData, match=r"A batch of 4 leaves at most one example for each process"):
        check_training(loaders, TRAINED, 3)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (dictionary, "a dictionary of 'image', 'label'"),
        (lambda image, label: (image, label, label), r"a (list|tuple) of 3"),
    ],
)
def test_batches_without_targets_are_named_and_rejected(form: Any, words: str, tmp_path: Path) -> None:
    known = subject(form)
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
    known = subject(alone)
    words = r"the training data have none: a batch is a tensor of shape \(2, 1, 6, 6\)\. Give batches of"
    with pytest.raises(aacp.InvalidData, match=f"Training needs labels, but {words}"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)
    assert not list(tmp_path.glob("run/*"))
    with pytest.raises(aacp.InvalidData, match="Accuracy compares outputs with labels, but the held-out data have"):
        aacp.sweep(known.model, known.data, [{"macs": 0.5}], tmp_path / "sweep", score=aacp.accuracy)


def test_the_score_without_labels_is_likeness_unless_one_is_given() -> None:
    labelled, unlabelled = subject(pair), subject(alone)
    assert chosen_score(None, labelled.model, labelled.data) is aacp.accuracy
    assert isinstance(chosen_score(None, unlabelled.model, unlabelled.data), Likeness)
    assert chosen_score(own_score, unlabelled.model, unlabelled.data) is own_score
    dictionaries = subject(dictionary)  # which may hold labels
    assert chosen_score(None, dictionaries.model, dictionaries.data) is aacp.accuracy


@pytest.mark.parametrize(("part", "name"), [("train", "training"), ("holdout", "held-out")])
def test_the_part_that_is_wrong_is_named(part: str, name: str) -> None:
    with pytest.raises(aacp.InvalidData, match=f"A batch of the {name} data is"):
        check_data(subject(pair, **{part: Examples(dictionary)}), TRAINED)


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
    known = subject(pair, **{part: nothing})
    words = rf"^The {name} data has no examples\. {advice}\.$"
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)


def test_a_loader_that_drops_all_examples_is_told_from_one_that_has_none(tmp_path: Path) -> None:
    known = subject(pair, train=DataLoader(TensorDataset(INPUTS[:3], LABELS[:3]), 4, drop_last=True))
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
    check_data(subject(form, score), plan)


def test_a_dictionary_is_no_input_of_a_network_without_such_arguments() -> None:
    with pytest.raises(aacp.InvalidData, match="a dictionary of 'image', 'label'"):
        check_data(subject(dictionary, own_score), SEARCHED)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"a tensor of shape \(2,\)"),
        (lambda outputs, targets: F.cross_entropy(outputs, targets).item(), "a float"),
        (lambda outputs, targets: None, "a NoneType"),
    ],
)
def test_a_loss_that_is_not_one_number_is_rejected_before_the_search(loss: Any, words: str, tmp_path: Path) -> None:
    known = subject(pair)
    with pytest.raises(aacp.InvalidOption, match=rf"returned {words} for a batch, not one number\. Return the mean"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED, loss=loss)
    assert not list(tmp_path.glob("run/*"))
    with pytest.raises(aacp.InvalidOption, match=r"returned .* not one number"):
        aacp.fit(known.model, known.data.train, TRAINED.recipe, loss=loss, device="cpu")


def test_a_loss_that_fails_here_may_work_in_training() -> None:
    def of_two_answers(outputs: Any, targets: Tensor) -> Tensor:
        first, second = outputs["both"]
        return F.cross_entropy(first, targets) + F.cross_entropy(second, targets)

    check_data(subject(pair, loss=of_two_answers), TRAINED)


def test_neither_the_model_nor_the_random_state_is_touched() -> None:
    seen: list[bool] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(outputs.requires_grad)
        return F.cross_entropy(outputs, targets) + torch.rand(())

    known = subject(pair, loss=loss)
    known.model.train()
    before, state = copy.deepcopy(known.model.state_dict()), torch.random.get_rng_state()
    check_data(known, TRAINED)
    assert seen == [False]
    assert all(torch.equal(value, before[name]) for name, value in known.model.state_dict().items())
    assert all(module.training for module in known.model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(("part", "name"), [("test", "Test"), ("holdout", "Held-out")])
def test_labels_of_no_class_are_rejected_before_the_search_with_the_part_they_are_in(
    part: str, name: str, tmp_path: Path
) -> None:
    known = subject(pair, **{part: (INPUTS, LABELS + 1)})
    with pytest.raises(aacp.InvalidData, match=rf"^{name} data: 6 of 12 labels are outside 0\.\.1, .*\. Give labels"):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=TRAINED)
    assert not (tmp_path / "run" / "run.json").exists()


def test_test_batches_without_targets_are_rejected_before_the_search() -> None:
    with pytest.raises(aacp.InvalidData, match="A batch of the test data is a dictionary"):
        check_scoring(subject(pair, test=Examples(dictionary)))


def test_lists_and_pairs_that_may_be_meant_in_another_way_are_explained() -> None:
    class Both(nn.Module):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return left + right

    examples = [(image, int(label)) for image, label in zip(INPUTS, LABELS, strict=True)]
    known = replace(subject(pair), data=aacp.Data(examples, examples, examples))
    with pytest.raises(aacp.InvalidData, match=r"examples go into a DataLoader, since a list is read as batches\.$"):
        check_data(known, SEARCHED)
    known = replace(subject(lambda image, _: (image, image)), model=Both(), score=Likeness(Both()))
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
    known = subject(form, score)
    words = f"^Noisy does not run on the held-out data, a batch of shape {re.escape(shapes)}: .*Give data"
    with pytest.raises(aacp.InvalidData, match=words):
        aacp.prune(known.model, known.data, {"macs": 0.5}, tmp_path / "run", plan=plan, score=score)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_unpruned_network_is_scored_once(tmp_path: Path) -> None:
    widths: list[int] = []

    def counted(network: Any, batches: aacp.Batches) -> float:
        widths.append(network[0].out_channels)
        return aacp.accuracy(network, batches)

    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)]
    model, data = nn.Sequential(*layers), subject(pair).data
    plan = replace(SEARCHED, evaluations=3, calibration_images=12, export=False)
    pruned = aacp.prune(model, data, {"macs": 0.3}, tmp_path / "run", plan=plan, score=counted)
    assert widths.count(8) == 2  # on test data, and on the hold-out
    assert widths[:2] == [8, 8]  # before the search
    with torch.no_grad():
        right = (model.eval()(INPUTS).argmax(1) == LABELS).float().mean()
    assert pruned.evaluation.before.test == pytest.approx(float(right))


class CountsCalls(nn.Module):
    """A network that counts its calls in whole numbers, in a list and in a tensor, of which a copy has its own."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(8, 2))
        self.calls = 0
        self.log: list[int] = []
        self.total = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.log.append(len(x))
        self.total += 1
        return self.layers(x)  # type: ignore[no-any-return]

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.calls, len(self.log), int(self.total)


@pytest.mark.slow
def test_a_network_that_counts_its_calls_is_as_it_was_after_a_run_which_is_resumed(tmp_path: Path) -> None:
    model, data = CountsCalls(), subject(pair).data
    plan = replace(TRAINED, evaluations=3, calibration_images=12, export=False)
    for _ in range(2):
        aacp.prune(model, data, {"macs": 0.3}, tmp_path / "run", plan=plan, loss=nn.CrossEntropyLoss())
        assert model.counts == (0, 0, 0)


def test_scoring_draws_no_random_numbers_from_what_follows() -> None:
    known, state = subject(pair), torch.random.get_rng_state()
    check_scoring(known)
    assert torch.equal(torch.random.get_rng_state(), state)


def of_network(network: nn.Module, form: Any = pair, **parts: Any) -> PruningTask:
    return replace(subject(form, **parts), model=network)


def test_a_network_that_writes_into_its_inputs_is_rejected() -> None:
    class Writing(Noisy):
        def forward(self, image: Tensor) -> Tensor:
            image -= 5.0
            return super().forward(image)

    with pytest.raises(aacp.InvalidOption, match="writes into its inputs"):
        check_data(of_network(Writing()), SEARCHED)


def test_state_that_is_no_tensor_is_rejected() -> None:
    class Stateful(Noisy):
        def get_extra_state(self) -> Any:
            return {"k": 9.0}

    with pytest.raises(aacp.InvalidOption, match=r"The network has state that is not a tensor .* Keep it in a buffer"):
        check_data(of_network(Stateful()), SEARCHED)


def test_test_data_that_the_network_cannot_read_are_rejected_before_the_search() -> None:
    wide = (torch.randn(4, 3, 6, 6), torch.zeros(4, dtype=torch.long))
    with pytest.raises(
        aacp.InvalidData, match=r"Test data: the network does not run on them: RuntimeError: .*channels"
    ):
        check_scoring(subject(pair, test=wide))


class WithHead(Noisy):
    """Uses a head in training alone, on channels that may be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, image: Tensor) -> Tensor:
        features = self.norm(self.first(image)).relu().mean((2, 3))
        answer: Tensor = self.last(features)
        return answer + self.head(features) if self.training else answer


class Answers(Noisy):
    def forward(self, image: Tensor) -> Any:
        return {"logits": super().forward(image)}


class Single(Noisy):
    def forward(self, image: Tensor) -> Any:
        return super().forward(image)[:, :1]


def as_number(image: Tensor, label: Tensor) -> Any:
    return image, label[None].float()


def halved_loss(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"], targets)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "distillation", "words"),
    [
        (of_network(Noisy()), 0.5, None),
        (of_network(WithHead()), 0.0, None),  # a head that only runs in training is cut too
        (of_network(Answers()), 0.0, r"cross-entropy needs probabilities of classes, but .* 'logits'\. Give a loss"),
        (of_network(Answers(), loss=halved_loss), 0.0, None),
        (of_network(Answers(), loss=halved_loss), 0.5, None),
        (
            of_network(Single(), as_number),
            0.0,
            r"cross-entropy needs .* classes, but the outputs are a tensor of shape \(4, 1\)",
        ),
        (of_network(Single(), as_number, loss=F.mse_loss), 0.0, None),
    ],
)
def test_what_cannot_be_trained_is_rejected_before_the_search(
    known: PruningTask, distillation: float, words: str | None
) -> None:
    graph = aacp.trace(WithHead().eval() if isinstance(known.model, WithHead) else Plain(), INPUTS[:1])
    before = {name: value.clone() for name, value in known.model.state_dict().items()}
    plan = replace(TRAINED, recipe=replace(TRAINED.recipe, distillation=distillation))
    if words is None:
        check_training_step(known, plan, graph)
        check_training_step(known, SEARCHED, graph)
    else:
        with pytest.raises(aacp.InvalidOption, match=words):
            check_training_step(known, plan, graph)
    assert all(torch.equal(value, before[name]) for name, value in known.model.state_dict().items())


def test_a_network_that_needs_single_precision_is_not_trained_in_another() -> None:
    known = of_network(SinglePrecision())
    graph = aacp.trace(SinglePrecision(), INPUTS[:1])
    check_training_step(known, TRAINED, graph)
    half = replace(TRAINED, recipe=replace(TRAINED.recipe, precision="bf16-mixed"))
    check_training_step(known, half, graph, Fabric(accelerator="cpu"))
    words = (
        r"precision bf16-mixed: RuntimeError: no kernel for torch\.bfloat16\. Train in single precision, with '32-true'"
    )
    in_half = Fabric(accelerator="cpu", precision="bf16-mixed")
    for plan, fabric in ((half, None), (TRAINED, in_half)):
        with pytest.raises(aacp.InvalidOption, match=words):
            check_training_step(known, plan, graph, fabric)


@pytest.mark.parametrize("kind", [torch.int32, torch.bool])
def test_labels_that_cross_entropy_does_not_take_are_rejected_before_the_search(kind: torch.dtype) -> None:
    known = of_network(Plain(), lambda image, label: (image, label.to(kind)))
    with pytest.raises(aacp.InvalidData, match=rf"training data have labels of {kind}, .*\. Give int64 labels"):
        check_training_step(known, TRAINED, aacp.trace(Plain(), INPUTS[:1]))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            lambda image, label: (image, F.one_hot(label, 2).float()),
            "needs one tensor of inputs and one label for each",
        ),
        (lambda image, label: (image, label.new_tensor(-100)), "the label -100, which losses ignore"),
    ],
)
def test_examples_that_cannot_be_mixed_are_rejected_before_the_search(form: Any, words: str) -> None:
    plan = replace(TRAINED, recipe=replace(TRAINED.recipe, mixing=1.0, mixture="patches"))
    known = of_network(Plain(), form)
    with pytest.raises(aacp.InvalidData, match=words):
        check_training_step(known, plan, aacp.trace(Plain(), INPUTS[:1]))


def infinite(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) / 0


def broken_inputs(image: Tensor, label: Tensor) -> Any:
    return image.clone().fill_(float("nan")), label


@pytest.mark.parametrize(
    ("known", "error", "words"),
    [
        (
            lambda: of_network(Plain(), loss=infinite),
            aacp.InvalidLoss,
            "The loss of the unpruned network is inf on a batch of the training data. Check the loss function",
        ),
        (lambda: of_network(Plain(), broken_inputs), aacp.InvalidData, "The training data hold inputs that are NaN"),
    ],
)
def test_a_loss_that_is_not_finite_is_rejected_before_the_search(known: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        check_training_step(known(), TRAINED, aacp.trace(Plain(), INPUTS[:1]))


class Plain(Noisy):
    """The same without noise, to be traced."""

    def forward(self, image: Tensor) -> Tensor:
        answer: Tensor = self.last(self.norm(self.first(image)).relu().mean((2, 3)))
        return answer


class SinglePrecision(Plain):
    """A network with an operation that has no kernel in half precision, as the Fourier transforms of a GPU."""

    def forward(self, image: Tensor) -> Tensor:
        found = self.first(image)
        if found.dtype is not torch.float32:
            raise RuntimeError(f"no kernel for {found.dtype}")
        return super().forward(image)


class Reader(nn.Module):
    """A network that reads the class from a pixel: it knows everything whose pixel is right."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.one_hot(x[:, 0, 0, 0].long(), 4).float()


def marked(wrong: int = 0) -> tuple[Tensor, Tensor]:
    """200 images that carry their label in all pixels; the first `wrong` carry another one."""
    labels = torch.arange(200) % 4
    carried = torch.where(torch.arange(200) < wrong, (labels + 1) % 4, labels)
    return carried.view(-1, 1, 1, 1).expand(-1, 1, 4, 4).float(), labels


@pytest.mark.parametrize(
    ("train", "holdout", "change", "is_doubted"),
    [
        (marked(), marked(), {}, True),
        (marked(), marked(wrong=1), {}, False),  # it knows its training data better
        (marked(wrong=20), marked(wrong=20), {}, False),  # it knows neither by heart
        (marked(), marked(), {"max_drop": None}, False),
        (marked(), marked(), {"probe_epochs": 1, "recipe": aacp.Recipe(epochs=1, batch_size=8, lr=0.1)}, False),
    ],
)
def test_a_hold_out_that_the_network_knows_by_heart_is_doubted_before_a_search_for_a_drop(
    train: Any, holdout: Any, change: dict[str, Any], is_doubted: bool
) -> None:
    task = PruningTask(Reader(), aacp.Data(train, holdout, marked(wrong=100)), None, torch.device("cpu"))
    said = warning_about_holdout(task, replace(aacp.Plan(recipe=None, max_drop=0.01), **change))
    assert bool(said) == is_doubted
    if is_doubted:
        assert said.startswith("The unpruned network is right on 100.0% of the held-out data")
        assert "Hold out data that it was not trained on" in said


@pytest.mark.parametrize(
    ("holdout", "score", "is_doubted"),
    [
        (marked(wrong=150), accuracy, True),  # 25 %: as many as each of the four labels has
        (marked(wrong=138), accuracy, True),  # 31 %, and two standard errors above 25 % are 31.1 %
        (marked(wrong=137), accuracy, False),  # 31.5 %
        (marked(), accuracy, False),
        (tuple(part[::4] for part in marked()), accuracy, False),  # one label alone says nothing
        (marked(wrong=150), lambda model, batches: 0.25, False),  # not an accuracy
    ],
)
def test_a_network_that_is_no_better_than_a_constant_answer_is_doubted(
    holdout: Any, score: Any, is_doubted: bool
) -> None:
    task = PruningTask(Reader(), aacp.Data(marked(), holdout, marked()), None, torch.device("cpu"), score)
    said = warning_about_network(task)
    assert bool(said) == is_doubted
    if is_doubted:
        assert "of the held-out data, and one constant answer on 25.0%. Check that its trained weights" in said


class OutOfDevice(Plain):
    """A network on a GPU that other processes have filled."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


@pytest.mark.parametrize(
    "known",
    [lambda: of_network(OutOfDevice()), lambda: replace(of_network(Plain()), teacher=OutOfDevice())],
    ids=["network", "teacher"],
)
def test_a_failure_of_the_device_is_not_blamed_on_the_loss(known: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^CUDA error: CUBLAS_STATUS_ALLOC_FAILED"):
        check_training_step(known(), TRAINED, aacp.trace(Plain(), INPUTS[:1]))


def test_a_network_without_gradients_is_not_trained() -> None:
    known = subject(pair)
    graph = aacp.trace(Plain(), INPUTS[:1])
    known.model.requires_grad_(False)
    with pytest.raises(
        aacp.InvalidOption, match=r"^No parameter of the network requires a gradient, .*\. Call requires_grad_"
    ):
        check_training_step(known, TRAINED, graph)
    check_training_step(known, SEARCHED, graph)


def test_a_runtime_that_is_not_installed_is_rejected_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(runtime: aacp.Runtime) -> None:
        raise aacp.MissingPackage(f"{runtime.name} is not installed. Install it.")

    monkeypatch.setattr(aacp.Runtime, "require_installed", missing)
    with pytest.raises(aacp.MissingPackage, match=r"openvino is not installed\."):
        check_deployment(aacp.Plan(deployment=aacp.Deployment("openvino")))
    check_deployment(aacp.Plan())
    check_deployment(aacp.Plan(deployment=aacp.Deployment("openvino"), export=False))
