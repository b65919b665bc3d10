"""Replay: repeat a search whose state is lost, with the scores that its history still holds.

A method proposes the same structures again if it gets the same scores. Only scores that are lost are evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aacp.runs.files import CHECKPOINT, HISTORY
from aacp.runs.folder import RunFolder
from aacp.runs.mending import announce, set_aside
from aacp.search.history import Candidate
from aacp.search.searcher import Searcher
from aacp.structure import Structure

Ask = Callable[[], list[Structure]]
Evaluate = Callable[[list[Structure]], Iterable[float]]


def replay(method: Searcher[Any], scored: Sequence[Candidate], folder: RunFolder, ask: Ask, evaluate: Evaluate) -> None:
    """Bring a new search to where the recorded one was, and write the history that results.

    Until then the folder keeps the recorded history, and every new score is added to it: if this is interrupted, the
    next call begins with all of them.

    Args:
        method: a search that has not begun.
        scored: the candidates of the recorded history.
        folder: the folder of the search, which has no state of it.
        ask: the next structures that the bounds of the search allow; none if a bound is reached.
        evaluate: the scores of structures, in their order.
    """
    scores = {candidate.structure: candidate.score for candidate in scored}
    unused = set(scores)
    if not unused:
        return
    announce(folder.path, f"without {CHECKPOINT}, the search is repeated with the {len(unused)} recorded scores.")
    while unused and (batch := ask()):
        missing = [structure for structure in batch if structure not in scores]
        for structure, score in zip(missing, evaluate(missing), strict=True):
            for candidate in method.tell([(structure, score)]):
                folder.append(HISTORY, candidate.to_json())
        method.tell([(structure, scores[structure]) for structure in batch if structure in scores])
        unused -= {*batch}
    if unused:
        set_aside(folder, HISTORY, f"has {len(unused)} evaluations that are not part of this search")
    folder.write_log(HISTORY, [candidate.to_json() for candidate in method.history])
