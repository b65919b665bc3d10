"""Damaged files given to every reader: whatever a file holds, the answer is a sentence."""

from __future__ import annotations

from faults import plants
from faults.cases import Case
from faults.catalogue.options import SEARCH, TASK

GROUP = "damaged file"
READ = "DamagedFile|UnreadableFile"
PRUNE = f"aacp prune {SEARCH} --epochs 1 --batch-size 8 --no-export"

# Damage that makes any file unreadable, whatever its format.
ANY = (
    plants.raw(b""), plants.raw(b"\xff\xfe\x00\x9f not UTF-8"), plants.FIFO, plants.ENDLESS, plants.FOLDER, plants.LOOP,
    plants.raw(b"\x00" * 64), plants.shortened(0.5), plants.large(5 << 30),
)  # fmt: skip
# Damage to JSON.
JSON = (
    plants.text("[]"), plants.text("{}"), plants.text("null"), plants.text("NaN"), plants.text('"text"'),
    plants.text("1"), plants.NESTED, plants.HUGE_NUMBER, plants.text('{"a": 1e999}'), plants.text("{} {}"),
    plants.text("[" * 2000), plants.text('{"a": "\\ud83d"}'),
)  # fmt: skip
# Headers of safetensors files that lie.
TENSOR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HEADERS = (
    plants.header({}), plants.header({"a": TENSOR}, b"\0" * 4), plants.header({"a": {**TENSOR, "dtype": "F99"}}, b"\0" * 16),
    plants.header({"a": {**TENSOR, "shape": [10**10], "data_offsets": [0, 4 * 10**10]}}),
    plants.header({"a": {**TENSOR, "shape": [-4]}}, b"\0" * 16),
    plants.header({"a": {**TENSOR, "data_offsets": [16, 0]}}, b"\0" * 16),
    plants.header({"a": 1}), plants.raw((2**63).to_bytes(8, "little") + b"{"), plants.raw((2**40).to_bytes(8, "little") + b"{}"),
    plants.header({"__metadata__": {"aacp": "[" * 5000}}), plants.header({"__metadata__": {"aacp": "null"}}),
    plants.header({"__metadata__": {"aacp": '{"format": 1}'}}), plants.header({"__metadata__": {"aacp": '{"format": 99, "aacp": "9"}'}}),
    plants.header({"__metadata__": {"aacp": "NaN"}}),
)  # fmt: skip

# Each reader: a command, the file that it reads, the classes that are right, and the kinds of damage that matter.
READERS = (
    (f"{PRUNE} --weights trained/weights.safetensors", "trained/weights.safetensors", "InvalidWeights", (*ANY, *HEADERS)),
    ("aacp evaluate net.safetensors --data faults.subjects:data", "net.safetensors", "BrokenArtefact|RunMismatch|UnknownModel", (*ANY, *HEADERS)),
    ("aacp.load('net.safetensors', into=s.Net())", "net.safetensors", "BrokenArtefact", (*ANY, *HEADERS)),
    (f"aacp prune {TASK.replace('faults.subjects:data', 'tensors:data.safetensors')} --prune-macs 0.4 --no-training --run new",
     "data.safetensors", "InvalidData|UnknownData", (*ANY, *HEADERS)),
    (f"aacp prune {TASK.replace('faults.subjects:data', 'tensors:data.npy')} --prune-macs 0.4 --no-training --run new",
     "data.npy", "InvalidData|UnknownData", (*ANY[:7], plants.large(5 << 30))),
    ("aacp.LatencyTable.load('table.json')", "table.json", "GraphMismatch", (*ANY, *JSON)),
    (f"aacp search {TASK} --max-latency 1ms --evaluations 4 --calibration 16 --runtime faults.subjects:EXACT --runs-on npu "
     "--batch 1 --threads 2 --table table.json --run new", "table.json", "GraphMismatch", (*ANY[:5], *JSON[:8])),
)  # fmt: skip


def _planted(place: str, damage: plants.Plant) -> dict[str, plants.Plant]:
    """The damage to a file of the world, or to a copy of one."""
    copies = {"net.safetensors": "done/trainings/finetuned/pruned.safetensors"}
    return {place: plants.both(plants.copied(copies[place]), damage) if place in copies else damage}


CASES = (
    *(
        Case(GROUP, call, f"{classes}|{READ}", (), _planted(place, damage), adds=("new",) if "--max-latency" in call else ())
        for call, place, classes, damages in READERS
        for damage in damages
    ),
)  # fmt: skip
