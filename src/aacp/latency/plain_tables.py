"""Latency tables as plain data from a file, checked before predictions are fitted to them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from aacp.disk.plain_checks import (
    checks_of,
    is_list,
    is_list_of,
    is_positive,
    is_text,
    is_truth,
    is_whole,
    require,
    require_fields,
)
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure, Width


def _is_multiple(pair: Any) -> bool:
    """Whether a value is the name of a group with a number."""
    return is_list(pair) and len(pair) == 2 and is_text(pair[0]) and is_whole(0)(pair[1])


COUNT = is_whole(1)
CONDITIONS = checks_of(MeasurementConditions, batch=COUNT, threads=COUNT)
WIDTH = checks_of(Width, groups=is_list_of(_is_multiple))
PIECE = checks_of(Piece, widths=is_list)
TIMED = checks_of(
    TimedStructure,
    structure=is_list_of(COUNT),
    whole=is_positive,
    reference=is_positive,
    reference_pieces=is_positive,
)


def require_table(data: Any) -> None:
    """Reject data that do not describe a latency table."""
    require(isinstance(data, Mapping), "it is not an object")
    require(is_text(data.get("model")), "the model has no name")
    require_fields("setting", data.get("setting"), CONDITIONS)
    names = data.get("names")
    require(is_list_of(is_text)(names) and bool(names) and len(set(names)) == len(names), "its names are not a list")
    require_choices(data.get("choices"), len(names))
    pieces = data.get("pieces")
    require(is_list(pieces) and bool(pieces), "its pieces are not a list")
    for position, piece in enumerate(pieces):
        require_piece(f"pieces[{position}]", piece, names)
    for part in ("measured", "held_out"):
        require(is_list(data.get(part)), f"its {part} structures are not a list")
        for position, timed in enumerate(data[part]):
            require_timed(f"{part}[{position}]", timed, len(names), len(pieces))
    require(bool(data["measured"]), "it holds no measured structure")
    _require_corrections(data.get("corrections"), len(names))
    for name in ("accepts_noise", "elsewhere"):
        require(is_truth(data.get(name, False)), f"{name} is neither true nor false")


def require_timed(place: str, timed: Any, groups: int | None = None, pieces: int | None = None) -> None:
    """Reject a measurement that does not describe a structure with its seconds.

    Args:
        place: where the measurement lies in its file, for the message.
        timed: the measurement.
        groups: how many groups a structure has, if that is known.
        pieces: how many pieces the network has, if that is known.
    """
    require_fields(place, timed, TIMED)
    require(groups is None or len(timed["structure"]) == groups, f"{place} is not a structure of {groups} groups")
    require(pieces is None or len(timed["pieces"]) == pieces, f"{place} does not have the seconds of {pieces} pieces")


def require_piece(place: str, piece: Any, names: list[str]) -> None:
    """Reject data that do not describe a piece; `place` is where it lies in its file."""
    require_fields(place, piece, PIECE)
    for position, width in enumerate(piece["widths"]):
        require_fields(f"{place}.widths[{position}]", width, WIDTH)
        known = all(name in names for name, _ in width["groups"])
        require(known, f"{place}.widths[{position}] names a group that does not exist")


def require_choices(choices: Any, groups: int) -> None:
    """Reject data that are not the rising counts of each group."""
    require(is_list(choices) and len(choices) == groups, f"it does not have choices for {groups} groups")
    for position, choice in enumerate(choices):
        is_counts = is_list_of(COUNT)(choice) and bool(choice)
        rises = is_counts and all(low < high for low, high in itertools.pairwise(choice))
        require(rises, f"choices[{position}] is not a list of rising counts")


def _require_corrections(corrections: Any, groups: int) -> None:
    require(is_list(corrections), "its corrections are not a list")
    for position, pair in enumerate(corrections):
        is_pair = is_list(pair) and len(pair) == 2
        is_complete = is_pair and is_list_of(COUNT)(pair[0]) and len(pair[0]) == groups and is_positive(pair[1])
        require(is_complete, f"corrections[{position}] is not a structure with its seconds")
