"""Channel graphs from the plain data of a file, which are checked before anything is built from them.

A file may come from anybody. Its numbers decide how much memory a graph takes and which of its parts refer to which
others, so all of them are compared with limits and with each other. Every failure is a ValueError with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aacp.channels.elements import Activation, ChannelGroup, HardCodedSize, Layer, Member, Tensor
from aacp.channels.lanes import from_runs, uneven_lane
from aacp.disk.plain_checks import (
    MAX_NUMBER,
    Check,
    checks_of,
    is_list,
    is_list_of,
    is_text,
    is_whole,
    require,
    require_fields,
)
from aacp.user.values import shown

MAX_UNITS = 10_000_000  # of all groups together
MAX_INDICES = 50_000_000  # of all lanes together
MAX_LANE_SIZES = 20_000_000  # lanes times groups: a matrix of this size is built
MAX_LIFETIMES = 50_000_000  # activations times steps: a matrix of this size is built
MAX_DIMS = 64  # of a tensor
FORMS = ("module", "exported")


def _is_run(value: Any) -> bool:
    """Whether a value is [first, step, count], a stretch of a lane."""
    return is_list_of(is_whole(-MAX_NUMBER), 3)(value) and len(value) == 3


def _is_path(value: Any) -> bool:
    """Whether a value leads from a module to a number: names, keys and indices."""
    return bool(value) and is_list_of(_is_step_of_path, MAX_DIMS)(value)


def _is_step_of_path(value: Any) -> bool:
    return is_text(value) or is_whole(-MAX_NUMBER)(value)


COUNT = is_whole(1)
# The fields of each part of a graph. Those in DEFAULTS were added later and may be missing.
FIELDS: dict[str, dict[str, Check]] = {
    "groups": checks_of(ChannelGroup, width=COUNT, unit_channels=COUNT, members=is_list_of(is_text)),
    "layers": checks_of(Layer, MAX_DIMS),
    "tensors": checks_of(Tensor, MAX_DIMS, element_bytes=COUNT),
    "sizes": checks_of(HardCodedSize, path=_is_path, times=COUNT, over=COUNT),
    "activations": checks_of(Activation, MAX_DIMS, born=is_whole(-1), dies=is_whole(-1)),
}
DEFAULTS = {"frozen", "element_bytes", "times", "over"}


def graph_fields(data: Any) -> dict[str, Any]:
    """The fields of a ChannelGraph from what its `to_json` returned; data that do not describe a graph are rejected."""
    require_graph(data)
    groups = [{**group, "members": [Member.parse(text) for text in group["members"]]} for group in data["groups"]]
    lanes = tuple(from_runs(runs) for runs in data["lanes"])
    uneven = uneven_lane(lanes, [group["width"] for group in groups])
    require(uneven is None, f"lane {uneven} holds the units of a group unequally often")
    return {
        "model": data["model"],
        "groups": tuple(ChannelGroup(**_tuples(group)) for group in groups),
        "lanes": lanes,
        "layers": tuple(Layer(**_tuples(layer)) for layer in data["layers"]),
        "tensors": tuple(Tensor(**_tuples(tensor)) for tensor in data["tensors"]),
        "sizes": tuple(HardCodedSize(**_tuples(size)) for size in data["sizes"]),
        "activations": tuple(Activation(**_tuples(activation)) for activation in data["activations"]),
        "form": data["form"],
        "notes": tuple(data["notes"]),
        "ties": tuple(map(tuple, data.get("ties", ()))),  # older files have none
        "parts": tuple(data.get("parts", ())),  # nor these
    }


def _tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}


def require_graph(data: Any) -> None:
    """Reject data that do not describe a channel graph."""
    if not isinstance(data, Mapping):
        raise ValueError("it is not an object")
    require(is_text(data.get("model")), "the model has no name")
    require(data.get("form") in FORMS, f"its form is {shown(data.get('form'))}")
    require(is_list_of(is_text)(data.get("notes")), "its notes are not a list of text")
    for part, fields in FIELDS.items():
        items = data.get(part)
        require(is_list(items), f"its {part} are not a list")
        for position, item in enumerate(items or ()):
            require_fields(f"{part}[{position}]", item, fields, DEFAULTS)
    names = [group["name"] for group in data["groups"]]
    require(len(set(names)) == len(names), "two of its groups have the same name")
    ties = data.get("ties", [])
    require(is_list_of(is_list_of(lambda name: name in names))(ties), "its ties do not name groups")
    require(is_list_of(is_text)(data.get("parts", [])), "its parts are not a list of names")
    _require_lanes(data)
    _require_references(data)
    _require_lifetimes(data["activations"])


def _require_lanes(data: Mapping[str, Any]) -> None:
    """Reject lanes that are too long, or refer to units that no group has."""
    units = sum(group["width"] for group in data["groups"])
    require(units <= MAX_UNITS, f"its groups have {units:,} units, more than {MAX_UNITS:,}")
    lanes = data.get("lanes")
    require(is_list(lanes), "its lanes are not a list")
    assert lanes is not None
    require(len(lanes) * len(data["groups"]) <= MAX_LANE_SIZES, "it has too many lanes and groups")
    total = 0
    for position, runs in enumerate(lanes):
        require(is_list_of(_is_run)(runs), f"lanes[{position}] is not a list of runs")
        for first, step, count in runs:
            last = first + step * max(0, count - 1)
            fits = count >= 0 and min(first, last) >= -1 and max(first, last) < units
            require(fits, f"lanes[{position}] refers to units that no group has")
            total += count
    require(total <= MAX_INDICES, f"its lanes have {total:,} indices, more than {MAX_INDICES:,}")


def _require_references(data: Mapping[str, Any]) -> None:
    """Reject parts that refer to lanes that do not exist, and members that are not a dimension of a tensor."""
    lanes = len(data["lanes"])
    for part, names in {
        "layers": ("input", "output", "macs_lanes"),
        "tensors": ("lanes",),
        "sizes": ("lane",),
        "activations": ("lanes",),
    }.items():
        for position, item in enumerate(data[part]):
            for name in names:
                used = item[name] if is_list(item[name]) else [item[name]]
                known = all(lane is None or lane < lanes for lane in used)
                require(known, f"{part}[{position}].{name} refers to a lane that does not exist")
    for position, tensor in enumerate(data["tensors"]):
        same = len(tensor["shape"]) == len(tensor["lanes"])
        require(same, f"tensors[{position}] has {len(tensor['shape'])} dimensions and {len(tensor['lanes'])} lanes")
    for group in data["groups"]:
        for member in group["members"]:
            dim = member.removesuffix("]").rpartition("[")[2]
            require(dim.isdecimal() and len(dim) < 4, f"{shown(member)} is not a dimension of a tensor")


def _require_lifetimes(activations: list[Mapping[str, Any]]) -> None:
    """Reject activations that end before they begin, or last for more steps than can be added up."""
    for position, activation in enumerate(activations):
        born, dies = activation["born"], activation["dies"]
        require(born <= dies, f"activations[{position}] is born at step {born:,} and dies at step {dies:,}")
    steps = 2 + max((activation["dies"] for activation in activations), default=0)
    fits = steps * len(activations) <= MAX_LIFETIMES
    require(fits, f"its {len(activations):,} activations last for {steps:,} steps, more than can be added up")
