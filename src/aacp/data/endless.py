"""Bounds on loaders of users: one that never ends, or that gives far more than it announces, is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from aacp.data.examples import batch_size_of
from aacp.errors import AACPError, InvalidData
from aacp.user.code import described_failure

MAX_EXAMPLES = 100_000_000  # of any data: their positions are drawn in memory
# What a loader without a length may give in one pass. A larger one only needs a length.
MAX_UNANNOUNCED_BATCHES = 10_000
MAX_UNANNOUNCED_EXAMPLES = 500_000
# A length may be an estimate, so up to twice as many batches are read, and a few more.
TIMES_ANNOUNCED = 2
MORE_THAN_ANNOUNCED = 100


def length_of(source: Any) -> int | None:
    """The length of data, or None if it has none; whatever a user's __len__ raises means that it has none."""
    try:
        return len(source) if isinstance(source, Sized) else None
    except Exception:  # a loader of an iterable data set has __len__ and raises
        return None


def bounded(batches: Iterable[Any], length: int | None, wanted: int = 0) -> Iterator[Any]:
    """The batches of a loader, until it gives more than any loader should.

    Args:
        batches: what the loader gives.
        length: the number of batches that it announces, if any.
        wanted: the number of examples after which the caller stops by itself.
    """
    most_batches = MAX_UNANNOUNCED_BATCHES if length is None else TIMES_ANNOUNCED * length + MORE_THAN_ANNOUNCED
    most_examples = MAX_UNANNOUNCED_EXAMPLES if length is None else MAX_EXAMPLES
    examples = 0
    for number, batch in enumerate(batches, 1):
        size = batch_size_of(batch)
        examples += size
        if number > max(most_batches, wanted) or examples > max(most_examples, wanted) + size:
            announced = "has no length" if length is None else f"announces {length:,} batches"
            raise InvalidData(
                f"The loader {announced}, but has given {number:,} batches with {examples:,} examples and does not "
                "end. Give data that end; a long loader needs a length (__len__)."
            )
        yield batch


def without_worker_traceback(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader; what the user's code raises becomes one sentence that names its line.

    torch puts a worker's traceback into the message of its error: it is removed from ours.
    """
    try:
        yield from loader
    except AACPError as error:
        *before, last = str(error).strip().splitlines()
        if not before:
            raise
        raise type(error)(last.partition(": ")[2]) from None
    except (MemoryError, GeneratorExit):
        raise
    except Exception as error:  # a user's loader or data set may raise anything
        raise InvalidData(
            f"Reading the data failed with {described_failure(error)}. Correct the loader or data set."
        ) from error


def require_countable(examples: int) -> None:
    """Reject data with more examples than positions can be drawn of."""
    if examples > MAX_EXAMPLES:
        raise InvalidData(
            f"The data has {examples:,} examples, but at most {MAX_EXAMPLES:,} can be split and shuffled. Give fewer."
        )
