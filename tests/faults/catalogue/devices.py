"""Devices that are not here: folders that cannot be exported to, and results that are damaged, incomplete or of others."""

from __future__ import annotations

from faults import plants
from faults.cases import USAGE, Case
from faults.catalogue.files import ANY, JSON, READ
from faults.subjects import EXPORT

GROUP = "device that is not here"
MEASURE = "aacp measure --from networks/results.json --out t.json"
CHECK = "aacp check boarded --from check/results.json"
EXPORT_TO = f"aacp {' '.join(EXPORT)}"
NETWORK = "structure-003.weights"
RUNNING = "aacp measure faults.subjects:net --input 1x1x8x8 --out t.json"

# Files of a device, damaged: the command that reads each.
DAMAGED = (
    (MEASURE, "networks/results.json", (*ANY, *JSON)),
    (MEASURE, "networks/manifest.json", (*ANY, *JSON)),
    (CHECK, "check/results.json", (*ANY, *JSON)),
)
# Well formed results that are not those of the folder, with the class of the error and what it names.
CHANGED = (
    ("RunMismatch", ("belongs to another", "exported"), plants.edited("manifest", value=64 * "0")),
    ("RunMismatch", ("runtime", "ncnn"), plants.edited("runtime", value="ncnn")),
    ("RunMismatch", ("incomplete", "runner.py"), plants.edited("networks", value={})),
    ("RunMismatch", (NETWORK,), plants.edited("networks", NETWORK, "sha256", value=64 * "0")),
    ("RunMismatch", ("aacp check",), plants.edited("kind", value="check")),
    ("InconclusiveMeasurement", ("clock", "0.01"), plants.edited("clock_resolution", value=0.01)),
    ("InconclusiveMeasurement", (NETWORK,), plants.edited("networks", NETWORK, "turns", value=[[0.0, 0.0]] * 9)),
    ("DamagedFile", ("turns",), plants.edited("networks", NETWORK, "turns", value=[])),
    ("DamagedFile", ("turns",), plants.edited("networks", NETWORK, "turns", value=[[-1.0, 1.0]])),
    ("DamagedFile", ("repeats",), plants.edited("networks", NETWORK, "repeats", value=[0, 9])),
    ("DamagedFile", ("format",), plants.edited("format", value=2)),
)
CHANGED_CHECK = (
    ("RunMismatch", ("check", "runner.py"), plants.edited("manifest", value=64 * "0")),
    ("RunMismatch", ("incomplete",), plants.edited("networks", value={})),
    ("RunMismatch", ("aacp measure",), plants.edited("kind", value="table")),
    ("DeviceMismatch", ("a board", "a laptop"), plants.edited("machine", value="a laptop")),
    ("DeviceMismatch", ("1.0", "2.0"), plants.edited("version", value="2.0")),
    ("InconclusiveMeasurement", ("clock",), plants.edited("clock_resolution", value=0.01)),
)
OTHERS = (
    (MEASURE, "MissingFile", ("manifest.json", "exported"), {"networks/manifest.json": plants.MISSING}),
    ("aacp measure --from nowhere", "MissingFile", ("nowhere",), {}),
    ("aacp measure --from images --out t.json", "MissingFile", ("images/results.json",), {}),
    (f"{MEASURE} --runtime ncnn", USAGE, ("--runtime", "--from"), {}),
    (f"{MEASURE} --precision int8 --batch 4", USAGE, ("--batch and --precision|--precision and --batch",), {}),
    ("aacp measure faults.subjects:net --from networks", USAGE, ("MODEL",), {}),
    ("aacp check done --from check/results.json", "RunMismatch", ("done", "check"), {}),
    ("aacp check boarded --from networks", "RunMismatch", ("aacp measure --from",), {}),
    ("aacp check boarded --from nowhere", "MissingFile", ("nowhere",), {}),
    (f"{EXPORT_TO} images", "InvalidOption", ("images", "new folder"), {}),
    (f"{EXPORT_TO} data.npy", "InvalidOption", ("data.npy", "new folder"), {}),
    (f"{EXPORT_TO} networks --batch 2", "RunMismatch", ("networks", "batch is 1 there and 2 here"), {}),
    (f"{EXPORT_TO} networks", READ, ("exported.jsonl", "Line 1"), {"networks/exported.jsonl": plants.text("[]\n")}),
    (f"{EXPORT_TO} x --step auto", "InvalidOption", ("auto",), {}),
    (f"{EXPORT_TO} x --seconds 3", USAGE, ("--seconds",), {}),
    (f"{EXPORT_TO.replace('EXACT_FILES', 'EXACT')} x", "InvalidOption", ("exact", "files"), {}),
    (
        f"{RUNNING} --runtime faults.subjects:EXACT --device npu --precision int8",
        "InvalidOption",
        ("exact", "int8"),
        {},
    ),
    (f"{RUNNING} --runtime torch --precision int8", "InvalidOption", ("torch", "int8"), {}),
    (f"{RUNNING} --precision int4", USAGE, ("int4",), {}),
)

CASES = (
    *(
        Case(GROUP, call, f"{READ}|MissingFile", (), {file: damage})
        for call, file, damages in DAMAGED
        for damage in damages
    ),
    *(Case(GROUP, MEASURE, error, words, {"networks/results.json": plant}) for error, words, plant in CHANGED),
    *(Case(GROUP, CHECK, error, words, {"check/results.json": plant}) for error, words, plant in CHANGED_CHECK),
    *(Case(GROUP, *other) for other in OTHERS),
)
