"""Methods that learn nothing: random search, as EagleEye does it, one width for all groups, and given structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aacp.errors import InvalidOption
from aacp.search.rescaling import Genes, SafeForm
from aacp.search.searcher import NoSettings, Searcher, Settings
from aacp.search.seeds import largest


@dataclass(frozen=True)
class RandomSearchSettings:
    """The settings of RandomSearch: structures per generation, and the form of rescaling."""

    batch: int = 10
    rescaling: SafeForm = "two-sided"

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InvalidOption(
                f"A random search has a batch of {self.batch}, but needs structures to propose. Give 1 or more."
            )


class LearnsNothing(Searcher[Settings]):
    """A method whose proposals do not depend on scores."""

    def begin(self) -> None:
        """There is nothing to set up."""

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        """Scores do not change what is proposed next."""

    def memory(self) -> dict[str, Any]:
        return {}

    def restore(self, memory: Mapping[str, Any]) -> None:
        """There is nothing to restore: `memory` is empty."""


class RandomSearch(LearnsNothing[RandomSearchSettings]):
    """Structures drawn uniformly and rescaled, each independent of all before it."""

    settings_type = RandomSearchSettings

    @property
    def lookahead(self) -> int:
        """One generation, since scores change nothing."""
        return self.settings.batch

    @property
    def proposal_form(self) -> SafeForm:
        return self.settings.rescaling

    def propose(self) -> Genes:
        genes = np.concatenate([self.start, self.sample(self.settings.batch)])
        self.start = self.start[:0]
        return self.rescaling(genes, self.generator, self.settings.rescaling)


class UniformShrinkage(RandomSearch):
    """A single structure: every group shrunk by the same factor, the largest that fits, then widened step by step."""

    @property
    def lookahead(self) -> int:
        """There is nothing else to propose."""
        return 0

    def propose(self) -> Genes:
        if len(self.history):
            return self.start[:0]
        flat = largest(np.ones(len(self.space)), self.rescaling)
        return self.rescaling(flat[None], self.generator)


class GivenStructures(RandomSearch):
    """The structures that the search was started with, and no others."""

    @property
    def lookahead(self) -> int:
        """There is nothing else to propose."""
        return 0

    def propose(self) -> Genes:
        return self.start if not len(self.history) else self.start[:0]


class CurveSearch(LearnsNothing[NoSettings]):
    """A single structure: the first that it is given, which `searcher` computes from error curves."""

    def propose(self) -> Genes:
        return self.start[:0] if len(self.history) else self.start[:1]
