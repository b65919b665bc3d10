"""Manifests and results of a device as plain data, checked before they are used: results come from another machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aacp.disk.plain_checks import (
    Check,
    is_list,
    is_list_of,
    is_number,
    is_positive,
    is_text,
    is_truth,
    is_whole,
    require,
    require_fields,
)
from aacp.latency.plain_tables import COUNT, require_choices, require_piece

FORMAT = 1  # of both files
MAX_TURNS = 100_000  # of one network


def _is_file_name(value: Any) -> bool:
    """Whether a value is the name of a file in the same folder."""
    return is_text(value) and 0 < len(value) <= 100 and not set(value) & set("/\\\0") and value not in (".", "..")


def _is_sha256(value: Any) -> bool:
    return is_text(value) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _is_pair_of(check: Check) -> Check:
    return lambda value: is_list(value) and len(value) == 2 and all(map(check, value))


def _is_listing(value: Any) -> bool:
    """Whether a value lists the SHA-256 of files by their names."""
    return isinstance(value, Mapping) and all(_is_file_name(name) and _is_sha256(value[name]) for name in value)


def _is_limit(value: Any) -> bool:
    """Whether a value is a limit on latency: a share to remove, or a number of seconds."""
    if not isinstance(value, Mapping) or set(value) != {"pruning_rate", "at_most"}:
        return False
    rate, most = value["pruning_rate"], value["at_most"]
    return (is_positive(most) and rate is None) or (is_number(rate) and rate < 1 and most is None)


TABLE = "table"  # the kind of a folder whose networks are timed for a latency table
CHECK = "check"  # the kind of a folder that decides whether one network meets a limit
MANIFEST: dict[str, Check] = {
    "format": lambda value: value == FORMAT,
    "kind": lambda value: value in (TABLE, CHECK),
    "model": is_text,
    "runtime": is_text,
    "device": is_text,
    "precision": is_text,
    "batch": COUNT,
    "threads": COUNT,
    "inputs": is_list,
    "original": lambda value: isinstance(value, Mapping),
    "networks": is_list,
}
# Fields of a manifest that depend on the kind of the folder.
OF_KIND: dict[str, dict[str, Check]] = {
    TABLE: {"names": is_list_of(is_text), "choices": is_list, "pieces": is_list},
    CHECK: {"version": is_text, "machine": is_text, "limit": _is_limit},
}
ORIGINAL: dict[str, Check] = {"file": _is_file_name, "sha256": _is_sha256, "beside": _is_listing}
NETWORK: dict[str, Check] = {**ORIGINAL, "structure": is_list_of(COUNT)}
NETWORK_OF_TABLE: dict[str, Check] = {
    **NETWORK,
    "held_out": is_truth,
    "shares": is_list_of(is_number),
}
RESULTS: dict[str, Check] = {
    "format": lambda value: value == FORMAT,
    "kind": lambda value: value in (TABLE, CHECK),
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
    require(isinstance(data, Mapping), "it is not an object")
    kind = data.get("kind")
    require(kind in OF_KIND, f"its kind is {kind!r:.40}")
    require_fields("it", data, {**MANIFEST, **OF_KIND[kind]})
    require_fields("original", data["original"], ORIGINAL)
    if kind == TABLE:
        _require_networks_of_table(data)
        return
    require(len(data["networks"]) == 1, f"it has {len(data['networks'])} networks, not one")
    require_fields("networks[0]", data["networks"][0], NETWORK)


def _require_networks_of_table(data: Mapping[str, Any]) -> None:
    require_choices(data["choices"], len(data["names"]))
    for position, piece in enumerate(data["pieces"]):
        require_piece(f"pieces[{position}]", piece, data["names"])
    for position, network in enumerate(data["networks"]):
        place = f"networks[{position}]"
        require_fields(place, network, NETWORK_OF_TABLE)
        fits = len(network["structure"]) == len(data["names"]) and len(network["shares"]) == len(data["pieces"])
        require(fits, f"{place} does not fit the groups and pieces")


def require_results(data: Any) -> None:
    """Reject data that do not describe the times of networks."""
    require_fields("it", data, RESULTS)
    for name, timed in data["networks"].items():
        require_fields(f"networks[{name[:40]!r}]", timed, TIMED)
        require(len(timed["turns"]) > 0, f"networks[{name[:40]!r}] has no turns")
