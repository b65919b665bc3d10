"""Manifests and results of a device as plain data, checked before they are used: results come from another machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aacp.latency.plain_tables import COUNT, require_choices, require_piece
from aacp.plain_checks import (
    Check,
    is_list,
    is_list_of,
    is_number,
    is_positive,
    is_text,
    is_whole,
    require,
    require_fields,
)

FORMAT = 1  # of both files
MAX_TURNS = 100_000  # of one network


def _is_file_name(value: Any) -> bool:
    """Whether a value is the name of a file in the same folder."""
    return is_text(value) and 0 < len(value) <= 100 and not set(value) & set("/\\\0") and value not in (".", "..")


def _is_sha256(value: Any) -> bool:
    return is_text(value) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _is_pair_of(check: Check) -> Check:
    return lambda value: is_list(value) and len(value) == 2 and all(map(check, value))


MANIFEST: dict[str, Check] = {
    "format": lambda value: value == FORMAT,
    "model": is_text,
    "runtime": is_text,
    "device": is_text,
    "precision": is_text,
    "batch": COUNT,
    "threads": COUNT,
    "inputs": is_list,
    "names": is_list_of(is_text),
    "choices": is_list,
    "pieces": is_list,
    "original": lambda value: isinstance(value, Mapping),
    "networks": is_list,
}
ORIGINAL: dict[str, Check] = {"file": _is_file_name, "sha256": _is_sha256}
NETWORK: dict[str, Check] = {
    **ORIGINAL,
    "structure": is_list_of(COUNT),
    "held_out": lambda value: isinstance(value, bool),
    "shares": is_list_of(is_number),
}
RESULTS: dict[str, Check] = {
    "format": lambda value: value == FORMAT,
    "manifest": _is_sha256,
    "runtime": is_text,
    "version": is_text,
    "machine": is_text,
    "clock_resolution": is_positive,
    "networks": lambda value: isinstance(value, Mapping),
}
TIMED: dict[str, Check] = {
    "sha256": _is_sha256,
    "repeats": _is_pair_of(is_whole(1)),
    "turns": is_list_of(_is_pair_of(is_number), MAX_TURNS),
}


def require_manifest(data: Any) -> None:
    """Reject data that do not describe the networks to be timed."""
    require_fields("it", data, MANIFEST)
    require_fields("original", data["original"], ORIGINAL)
    require_choices(data["choices"], len(data["names"]))
    for position, piece in enumerate(data["pieces"]):
        require_piece(f"pieces[{position}]", piece, data["names"])
    for position, network in enumerate(data["networks"]):
        place = f"networks[{position}]"
        require_fields(place, network, NETWORK)
        fits = len(network["structure"]) == len(data["names"]) and len(network["shares"]) == len(data["pieces"])
        require(fits, f"{place} does not fit the groups and pieces")


def require_results(data: Any) -> None:
    """Reject data that do not describe the times of networks."""
    require_fields("it", data, RESULTS)
    for name, timed in data["networks"].items():
        require_fields(f"networks[{name[:40]!r}]", timed, TIMED)
        require(len(timed["turns"]) > 0, f"networks[{name[:40]!r}] has no turns")
