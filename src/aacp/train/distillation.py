"""Distillation: how far the outputs of a network are from those of its teacher, for outputs of any kind.

Outputs are tensors, or tuples, lists, dictionaries and data classes that hold them. Each tensor in them is a head whose
name consists of the keys and positions that lead to it, such as "boxes" or "features.0".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aacp.data.examples import call, tensors_in
from aacp.errors import InvalidData
from aacp.pytorch.modules import private_copy, require_network
from aacp.train.heads import Heads, checked_heads
from aacp.user.values import real_number

SMALLEST_SQUARE = 1e-6  # added to the mean square of a teacher's head, which may be all zeros


def distillation_loss(outputs: Any, taught: Any, *, heads: Heads = "auto", temperature: float = 4.0) -> Tensor:
    """The distance of a network's outputs from those of a teacher, a loss for any training loop.

    Args:
        outputs: the outputs of the network that is trained: a tensor, or a tuple, list, dictionary or data class.
        taught: the outputs of the teacher for the same inputs, best computed under torch.no_grad().
        heads: how outputs are compared. "classes" is the divergence of the probabilities over dimension 1; "values" is
            the squared error over the mean square of the teacher's output; "auto" is "classes" for one tensor of shape
            (examples, two or more classes), and "values" for anything else. A mapping from the names of heads to these
            words compares the named heads only.
        temperature: divides the outputs before their probabilities are compared.

    Returns:
        The mean of the distances of all heads that are compared.
    """
    real_number("temperature", temperature, 0.01, 1e3)
    return distance(outputs, [taught], checked_heads(heads), temperature)


class Distillation:
    """A teacher for any training loop: it adds the distance from the teacher's outputs to the loss of a batch.

    It is not a module, so that trainers do not train, wrap or save the teacher. The teacher is copied, kept in
    evaluation mode, and moved to the device of the inputs.

    Args:
        teacher: the network to imitate, usually the unpruned one; it is not changed.
        share: the teacher's share of the loss, 0 to 1.
        heads: how outputs are compared, see `distillation_loss`.
        temperature: divides the outputs before their probabilities are compared.
    """

    def __init__(
        self, teacher: nn.Module, *, share: float = 0.9, heads: Heads = "auto", temperature: float = 4.0
    ) -> None:
        require_network(teacher, "The teacher")
        self.share = real_number("share", share, 0.0, 1.0)
        self.heads = checked_heads(heads)
        self.temperature = real_number("temperature", temperature, 0.01, 1e3)
        self._teacher = private_copy(teacher).requires_grad_(False)

    def __call__(self, inputs: Any, outputs: Any, loss: Tensor) -> Tensor:
        """The loss of a batch, of which the teacher has its share.

        Args:
            inputs: what the network was called with: a tensor, a tuple of arguments, or a dictionary by their names.
            outputs: what the network returned.
            loss: the loss of these outputs without a teacher.
        """
        imitation = distillation_loss(outputs, self.answer(inputs), heads=self.heads, temperature=self.temperature)
        return (1 - self.share) * loss + self.share * imitation

    def answer(self, inputs: Any) -> Any:
        """The outputs of the teacher for a batch, without gradients."""
        device = next((tensor.device for tensor in tensors_in(inputs)), None)
        with torch.no_grad():
            return call(self._teacher.to(device), inputs)


def distance(
    outputs: Any, answers: Sequence[Any], heads: Heads, temperature: float, *, are_classes: bool | None = None
) -> Tensor:
    """What `distillation_loss` returns, for the answers of one or several teachers.

    Args:
        outputs: the outputs of the network that is trained.
        answers: the outputs of each teacher.
        heads: how outputs are compared, as `checked_heads` returns it.
        temperature: divides the outputs before their probabilities are compared.
        are_classes: what "auto" means for one tensor, if the targets show it; None decides by the shape.
    """
    found = heads_of(outputs)
    taught = [heads_of(answer) for answer in answers]
    if isinstance(heads, str):
        found = _without_auxiliary(found, taught)
    distances = []
    for name, comparison in _chosen(found, taught, heads).items():
        expected = [each[name] for each in taught]
        _require_same_shape(name, found[name], expected)
        if comparison == "auto":
            is_alone = not name  # one tensor that is the whole output
            comparison = "classes" if is_alone and _has_classes(found[name], are_classes) else "values"
        distances.append(
            _divergence(found[name], expected, temperature)
            if comparison == "classes"
            else _squared_error(found[name], expected)
        )
    return torch.stack(distances).mean()


def heads_of(outputs: Any) -> dict[str, Tensor]:
    """All tensors of real numbers in outputs, by name; the name of one tensor alone is empty."""
    return dict(_heads("", outputs))


def _heads(name: str, value: Any) -> Iterable[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name, value
        return
    if isinstance(value, Mapping):
        parts = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, (tuple, list)):
        parts = [(str(place), part) for place, part in enumerate(value)]
    elif is_dataclass(value):
        parts = [(each.name, getattr(value, each.name)) for each in fields(value)]
    else:
        return
    for key, part in parts:
        yield from _heads(f"{name}.{key}" if name else key, part)


def _chosen(found: Mapping[str, Tensor], taught: Sequence[Mapping[str, Tensor]], heads: Heads) -> dict[str, str]:
    """How each head is compared, by its name; a name that was given stands for all heads inside of it."""
    if isinstance(heads, str):
        for each in taught:
            if each.keys() != found.keys():
                raise InvalidData(
                    f"The outputs have the heads {_listed(found)}, those of the teacher {_listed(each)}. Choose heads "
                    "that both have by their names, such as heads={'logits': 'classes'}."
                )
        if not found:
            raise InvalidData("The outputs hold no tensor of real numbers to compare. Train without a teacher.")
        return dict.fromkeys(found, heads)
    chosen: dict[str, str] = {}
    pairs = heads.items() if isinstance(heads, Mapping) else heads
    for wanted, comparison in pairs:
        inside = [name for name in found if name == wanted or name.startswith(f"{wanted}.")]
        if not inside or any(name not in each for name in inside for each in taught):
            raise InvalidData(
                f"There is no head {wanted!r} in the outputs of both the network and the teacher: the network has "
                f"{_listed(found)}. Name heads that both have."
            )
        chosen |= dict.fromkeys(inside, str(comparison))
    return chosen


def _without_auxiliary(found: dict[str, Tensor], taught: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The outputs that the teachers have too.

    A network may return auxiliary outputs in training mode, and one tensor in evaluation mode, as its teacher does: the
    first output of the shape of this tensor is compared, and one whose name contains "aux" only if there is no other.
    """
    if not taught or any(each.keys() != {""} for each in taught):
        return found
    alike = [name for name, output in found.items() if output.shape == taught[0][""].shape]
    alike.sort(key=lambda name: "aux" in name.lower())
    return {"": found[alike[0]]} if alike else found


def _has_classes(output: Tensor, are_classes: bool | None) -> bool:
    """Whether one tensor holds a number for each of two or more classes; one channel has no probabilities."""
    if output.dim() < 2 or output.size(1) < 2:
        return False
    return output.dim() == 2 if are_classes is None else are_classes


def _divergence(output: Tensor, expected: Sequence[Tensor], temperature: float) -> Tensor:
    """Kullback-Leibler divergence from the teachers' mean, scaled so that its gradients keep their size (Hinton)."""
    if output.dim() < 2 or output.size(1) < 2:
        raise InvalidData(
            f"An output of shape {tuple(output.shape)} has no probabilities of two or more classes in dimension 1. "
            "Compare it by its values: heads='values'."
        )
    answers = F.log_softmax(_precise(output) / temperature, 1)
    taught = log_probabilities(expected, temperature)
    divergence = F.kl_div(answers, taught, reduction="none", log_target=True).sum(1).mean()
    return temperature**2 * divergence


def log_probabilities(expected: Sequence[Tensor], temperature: float) -> Tensor:
    """The logarithms of the mean of the teachers' probabilities, softened by a temperature."""
    answers = [F.log_softmax(_precise(each) / temperature, 1) for each in expected]
    if len(answers) == 1:
        return answers[0]
    return torch.logsumexp(torch.stack(answers), 0) - math.log(len(answers))


def _squared_error(output: Tensor, expected: Sequence[Tensor]) -> Tensor:
    """The squared error relative to the mean square of the teachers' mean: heads of any scale weigh the same."""
    taught = torch.stack([_precise(each) for each in expected]).mean(0)
    return F.mse_loss(_precise(output), taught) / (taught.square().mean() + SMALLEST_SQUARE)


def _precise(output: Tensor) -> Tensor:
    """Outputs of half precision in single precision, in which they are compared."""
    return output if output.dtype == torch.float64 else output.float()


def _require_same_shape(name: str, output: Tensor, expected: Sequence[Tensor]) -> None:
    for each in expected:
        if each.shape != output.shape:
            head = f"head {name!r}" if name else "output"
            raise InvalidData(
                f"The {head} has shape {tuple(output.shape)}, that of the teacher {tuple(each.shape)}. Give a teacher "
                "with the same outputs."
            )


def _listed(heads: Mapping[str, Tensor]) -> str:
    return ", ".join(repr(name) for name in heads) or "none"
