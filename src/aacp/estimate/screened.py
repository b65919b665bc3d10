"""ScreenedEstimate: the score of a structure on all images, or on few if that is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from aacp.channels.structure import Structure
from aacp.estimate.psae import PSAE
from aacp.search.queue import OnFewImages


@dataclass(frozen=True, eq=False)
class ScreenedEstimate:
    """structure -> its score on all images; OnFewImages(structure) -> its score on few."""

    few: PSAE
    whole: PSAE

    def __call__(self, work: Structure | OnFewImages) -> float:
        return self.few(work.structure) if isinstance(work, OnFewImages) else self.whole(work)
