"""Settings: how an estimate is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aacp.data.scores import Score, accuracy
from aacp.errors import InvalidOption
from aacp.estimate.importance import Importance

Execution = Literal["auto", "sliced", "masked"]
Passes = Literal[1, 2, "auto"]


@dataclass(frozen=True)
class Settings:
    """How an estimate is computed; see PSAE."""

    score: Score = accuracy
    importance: Importance = "l1"
    execution: Execution = "auto"
    passes: Passes = 2
    racing: float | None = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("execution", ("auto", "sliced", "masked")), ("passes", (1, 2, "auto"))):
            if getattr(self, name) not in choices:
                raise InvalidOption(f"{name} is {getattr(self, name)!r}, but must be one of {choices}. Choose one.")
        if not callable(self.score):
            raise InvalidOption(f"score is {self.score!r}, not a function. Give one that takes (network, batches).")
        if self.racing is not None and not 0 < self.racing < 1:
            raise InvalidOption(f"racing is {self.racing}, but a probability of error is between 0 and 1. Give one.")
