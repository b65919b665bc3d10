"""Ranking: whether the estimate ranks structures of a network as fine-tuning does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from aacp.channels.structure import Structure
from aacp.data.batches import Batches
from aacp.data.scores import scored
from aacp.errors import InvalidOption
from aacp.estimate.psae import PSAE
from aacp.search.correlation import kendall, spearman
from aacp.train.loop import finetune
from aacp.train.recipe import FINETUNE, Recipe
from aacp.train.teaching import Loss
from aacp.user.progress import report_progress, without_progress
from aacp.user.values import counted, score_text


@dataclass(frozen=True)
class Ranking:
    """Estimates and fine-tuned scores of some structures, and their rank correlation: 1 is the same order, 0 chance."""

    structures: tuple[Structure, ...]
    estimates: tuple[float, ...]
    outcomes: tuple[float, ...]

    @property
    def spearman(self) -> float:
        return spearman(self.estimates, self.outcomes)

    @property
    def kendall(self) -> float:
        return kendall(self.estimates, self.outcomes)

    def __str__(self) -> str:
        return (
            f"Over {len(self.structures)} structures, estimate and fine-tuned score agree with a Spearman correlation "
            f"of {self.spearman:.3f} (Kendall {self.kendall:.3f})."
        )


def ranking(
    estimate: PSAE,
    structures: Sequence[Iterable[int]],
    data: Any,
    *,
    outcome: Any = None,
    recipe: Recipe | None = None,
    teacher: nn.Module | None = None,
    loss: Loss | None = None,
) -> Ranking:
    """Estimate some structures, fine-tune each briefly, score them, and compare the two orders.

    Args:
        estimate: the estimate; its own function scores the fine-tuned networks too.
        structures: at least 3, better 12.
        data: training data that contains neither the held-out images nor `outcome`.
        outcome: data to score the fine-tuned networks on; None uses the held-out images of the estimate.
        recipe: how to fine-tune; None is FINETUNE with two epochs, which needs a teacher.
        teacher: a network to distil from.
        loss: a function of (outputs, targets); None is cross-entropy.
    """
    if len(structures) < 3:
        raise InvalidOption(
            f"A ranking of {counted(len(structures), 'structure')} says nothing. Give at least 3, better 12."
        )
    chosen = tuple(Structure(structure) for structure in structures)
    device = estimate.inheritance.device
    scored_on = estimate.holdout if outcome is None else Batches.of(outcome, device=device)
    estimates: list[float] = []
    outcomes: list[float] = []
    for number, structure in enumerate(chosen):
        network = estimate.inheritance.network(structure)
        estimates.append(estimate(structure))
        with without_progress():
            finetune(
                network, data, recipe or FINETUNE.scaled(2, finetuning=True), teacher=teacher, loss=loss, device=device
            )
        outcomes.append(scored(estimate.score, network.eval(), scored_on, "data of the outcome"))
        report_progress(
            f"{number + 1} of {len(chosen)}: {score_text(estimates[-1])}, fine-tuned {score_text(outcomes[-1])}"
        )
    return Ranking(chosen, tuple(estimates), tuple(outcomes))
