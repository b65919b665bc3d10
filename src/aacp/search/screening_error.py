"""ScreeningError: how far scores on few images are from scores on all, over a sample of the structures of a search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aacp.search.correlation import spearman
from aacp.search.history import History
from aacp.search.screening import sample

MIN_COMPARED = 3  # fewer structures have no spread worth naming


@dataclass(frozen=True)
class ScreeningError:
    """The differences between scores on few images and on all, over structures that were not chosen by their scores."""

    images: tuple[int, int]  # how many images are few, and how many are all
    structures: int
    mean: float  # of the score on few images minus that on all
    deviation: float
    correlation: float  # of the ranks; NaN if all scores are equal

    @classmethod
    def of(cls, searched: History, confirmed: History) -> ScreeningError | None:
        """The error of a search whose sample was scored on all images; None if too few of it were.

        Args:
            searched: what was scored on few images.
            confirmed: what was scored on all.
        """
        both = [(few, confirmed.find(few.structure)) for few in sample(searched)]
        pairs = [(few.score, known.score) for few, known in both if known is not None and few.images is not None]
        if len(pairs) < MIN_COMPARED:
            return None
        few, whole = np.array(pairs).T
        images = searched[0].images
        assert images is not None
        differences = few - whole
        rank = spearman(few.tolist(), whole.tolist())
        return cls(images, len(pairs), float(differences.mean()), float(differences.std(ddof=1)), rank)

    def text(self, scale: float = 1.0, unit: str = "") -> str:
        """A sentence for people.

        Args:
            scale: the factor for scores, 100 for accuracies.
            unit: the unit of scaled scores.
        """
        few, whole = self.images
        return (
            f"Scores on {few:,} images differ from those on {whole:,} by {scale * self.mean:+.2g} ± "
            f"{scale * self.deviation:.2g}{unit} (mean and standard deviation over {self.structures} structures, "
            f"taken at even intervals from the search), with a rank correlation of {self.correlation:.2f}."
        )
