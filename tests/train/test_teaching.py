"""The loss of a training step compared with formulas, and that a teacher is never changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from aacp.errors import InvalidOption
from aacp.train.distillation import log_probabilities
from aacp.train.recipe import BASE
from aacp.train.teaching import Objective, Teacher
from train.small_data import network, same, weights

CPU = torch.device("cpu")
INPUTS = torch.randn(5, 2, 6, 6, generator=torch.Generator().manual_seed(1))
TARGETS = torch.tensor([0, 1, 2, 3, 0])


def test_distillation_is_hintons_loss_written_out() -> None:
    teacher, student = network(1).eval(), network(2).eval()
    recipe = replace(BASE, distillation=0.7, temperature=3.0, label_smoothing=0.1)
    outputs, shown = student(INPUTS), teacher(INPUTS)
    soft, answer = (shown / 3).softmax(1), (outputs / 3).softmax(1)
    divergence = (soft * (soft / answer).log()).sum(1).mean()
    smooth = 0.9 * F.one_hot(TARGETS, 4) + 0.1 / 4
    labelled = -(smooth * outputs.log_softmax(1)).sum(1).mean()
    found = Objective(recipe)(outputs, TARGETS, Teacher(teacher, CPU, None)(INPUTS))
    torch.testing.assert_close(found, 0.3 * labelled + 0.7 * 9 * divergence)


def test_a_student_that_equals_its_teacher_has_nothing_to_learn_from_it() -> None:
    teacher = network(1).eval()
    objective = Objective(replace(BASE, distillation=1.0))
    outputs = teacher(INPUTS).detach().requires_grad_()
    loss = objective(outputs, TARGETS, Teacher(teacher, CPU, None)(INPUTS))
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert float(gradient.abs().max()) < 1e-6


def test_several_teachers_say_the_mean_of_their_probabilities() -> None:
    teachers = [network(seed).eval() for seed in range(3)]
    mean = torch.stack([(teacher(INPUTS) / 2).softmax(1) for teacher in teachers]).mean(0)
    answers = Teacher(teachers, CPU, None)(INPUTS)
    torch.testing.assert_close(log_probabilities(answers, 2.0).exp(), mean)


def test_a_teacher_is_neither_changed_nor_put_into_another_mode() -> None:
    teacher = network(1).train()
    before, modes = weights(teacher), [module.training for module in teacher.modules()]
    answering = Teacher(teacher, CPU, torch.bfloat16)
    assert not answering(INPUTS.bfloat16())[0].requires_grad
    assert same(weights(teacher), before)
    assert [module.training for module in teacher.modules()] == modes
    assert all(parameter.requires_grad for parameter in teacher.parameters())


def test_a_teacher_answers_as_in_evaluation_mode() -> None:
    teacher = network(1, dropout=0.5).train()
    expected = copy.deepcopy(teacher).eval()(INPUTS)
    torch.testing.assert_close(Teacher(teacher, CPU, None)(INPUTS)[0], expected)


def test_an_empty_ensemble_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="empty"):
        Teacher([], CPU, None)


def squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.flatten(1).mean(1) - targets.float().flatten(1).mean(1)).square().mean()


@pytest.mark.parametrize(
    ("shape", "targets", "are_classes"),
    [
        ((5, 4), torch.zeros(5, dtype=torch.long), True),
        ((5, 4, 2, 2), torch.zeros(5, 2, 2, dtype=torch.long), True),
        ((5, 4), torch.full((5, 4), 0.25), True),  # shares of classes
        ((5, 3, 2, 2), torch.full((5, 3, 2, 2), 0.5), False),  # colours
        ((5, 1), torch.zeros(5, dtype=torch.long), False),  # one channel
        ((5, 4, 2, 2), torch.zeros(5, 7), False),  # nothing is known, and four dimensions are more likely features
        ((5, 4), torch.zeros(5, 7), True),  # nothing is known, and two dimensions are more likely classes
    ],
)
def test_targets_and_shapes_show_whether_outputs_are_classes(
    shape: tuple[int, ...], targets: torch.Tensor, are_classes: bool
) -> None:
    outputs, shown = torch.randn(shape), torch.randn(shape)
    objective = Objective(replace(BASE, distillation=1.0, temperature=1.0), squares)
    objective.look_at(outputs, targets)
    found = objective.taught(outputs, [shown])
    if are_classes:
        soft, answer = shown.softmax(1), outputs.softmax(1)
        expected = (soft * (soft / answer).log()).sum(1).mean()
    else:
        expected = (outputs - shown).square().mean() / shown.square().mean()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
