"""Requests that do not belong to the folder they name, and folders that cannot be used."""

from __future__ import annotations

from faults import plants
from faults.cases import USAGE, Case
from faults.catalogue.options import SEARCH, TASK

GROUP = "request and folder do not belong together"
PLACE = f"InvalidOption|DiskError|RunMismatch|{USAGE}"
IN_DONE = SEARCH.replace("--run new", "--run done")
RECIPE = "--epochs 2 --batch-size 8 --lr 0.01 --no-export"
LONG = 300 * "n"

# Each differs in one setting from the request that the folder records.
OTHER_REQUESTS = (
    (f"prune {IN_DONE.replace('0.4', '0.6')} {RECIPE}", ("macs", "40", "60")),
    (f"prune {IN_DONE.replace('--prune-macs 0.4', '--max-macs 8000')} {RECIPE}", ("macs",)),
    (f"prune {IN_DONE} --prune-params 0.2 {RECIPE}", ("params",)),
    (f"prune {IN_DONE} {RECIPE} --seed 1", ("seed", "0", "1")),
    (f"prune {IN_DONE} {RECIPE} --evaluations 5", ("evaluations", "4", "5")),
    (f"prune {IN_DONE} {RECIPE} --step 2", ("step", "2")),
    (f"prune {IN_DONE} {RECIPE} --method random", ("method", "random")),
    (f"prune {IN_DONE} {RECIPE} --importance l2", ("importance", "l2")),
    (f"prune {IN_DONE} {RECIPE} --reconstruction repair", ("reconstruction", "repair")),
    (f"prune {IN_DONE} {RECIPE} --calibration 8", ("calibration", "8")),
    (f"prune {IN_DONE} {RECIPE} --frozen conv1", ("frozen", "conv1")),
    (f"prune {IN_DONE} {RECIPE} --weights trained/weights.safetensors", ("weights",)),
    (f"prune {IN_DONE} {RECIPE} --metric faults.subjects:metric", ("metric",)),
    (f"prune {IN_DONE.replace('subjects:data', 'subjects:other_data')} {RECIPE}", ("data", "other")),
    (f"prune {IN_DONE} --epochs 3 --batch-size 8 --lr 0.01 --no-export", ("epochs", "--again")),
    (f"prune {IN_DONE} --epochs 2 --batch-size 16 --lr 0.01 --no-export", ("batch", "--again")),
    (f"prune {IN_DONE} --epochs 2 --batch-size 8 --lr 0.02 --no-export", ("lr", "--again")),
    (f"search {IN_DONE.replace('0.4', '0.6')}", ("macs",)),
    (f"search {SEARCH.replace('--run new', '--run half')} --seed 3", ("seed", "3")),
    (f"search {SEARCH.replace('--run new', '--run half').replace('0.4', '0.5')}", ("macs",)),
    (f"train {TASK} --epochs 3 --batch-size 8 --lr 0.01 --run trained", ("epochs", "3")),
    (f"train {TASK} --epochs 2 --batch-size 8 --lr 0.03 --run trained", ("lr", "0.03")),
    (f"train {TASK} --epochs 2 --batch-size 8 --lr 0.01 --seed 4 --run trained", ("seed", "4")),
    ("measure faults.subjects:net --input 1x1x8x8 --runtime faults.subjects:EXACT --device npu --structures 9 "
     "--seconds 0.01 --out table.json", ("table.json",)),
    ("measure faults.subjects:net --input 1x1x10x10 --runtime faults.subjects:EXACT --device npu --structures 8 "
     "--seconds 0.01 --out table.json", ("table.json",)),
)  # fmt: skip

# A finished folder must not answer another request, even if the file that records its own is gone.
WITHOUT_RECORD = (
    f"prune {IN_DONE.replace('0.4', '0.6')} {RECIPE}",
    f"prune {IN_DONE} {RECIPE} --seed 1",
    f"search {IN_DONE.replace('0.4', '0.6')}",
)

# A folder that cannot hold a run.
PLACES = (
    ("data.safetensors", ("data.safetensors",), {}),
    ("data.safetensors/inner", ("data.safetensors",), {}),
    (LONG, ("n",), {}),
    ("/".join(40 * [120 * "d"]), ("d",), {}),
    ("dangling/run", ("dangling",), {"dangling": plants.LOOP}),
    ("pipe", ("pipe",), {"pipe": plants.FIFO}),
    ("device", ("device",), {"device": plants.ENDLESS}),
    ("/proc/aacp", ("/proc/aacp",), {}),
    ("/dev/null", ("/dev/null",), {}),
    ("/dev/null/run", ("/dev/null",), {}),
    ("''", (), {}),
)

CASES = (
    *(Case(GROUP, f"aacp {call}", f"RunMismatch|{USAGE}", words) for call, words in OTHER_REQUESTS),
    *(
        Case(GROUP, f"aacp {call}", "RunMismatch", ("done",), {"done/run.json": plants.MISSING}, adds=("done/run.json",))
        for call in WITHOUT_RECORD
    ),
    *(
        Case(GROUP, f"aacp {command} {SEARCH.replace('--run new', '')} --run {place}", PLACE, words, given)
        for command in ("search",)
        for place, words, given in PLACES
    ),
    *(
        Case(GROUP, f"aacp train {TASK} --epochs 1 --batch-size 8 --run {place}", PLACE, words, given)
        for place, words, given in PLACES[:5]
    ),
    *(
        Case(GROUP, f"aacp sweep {TASK} --prune-macs 0.2,0.4 --evaluations 4 --calibration 16 --run {place}", PLACE,
             words, given)
        for place, words, given in PLACES[:5]
    ),
)  # fmt: skip
